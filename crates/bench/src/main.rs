//! `sluice-bench`: the cost of an item in Sluice, in nginx relaying the same bytes and in the
//! Collector doing the same work; and delivery, latency and memory when something is wrong.

mod disk;
mod figures;
mod rows;
mod scenario;
mod scenarios;
mod stage;
mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use sluice_load_test::subject::{in_path, pin_this_thread};
use sluice_otlp::Signal;

use rows::ROWS;
use scenario::Scenario;
use scenarios::{ONLY_BY_NAME, SCENARIOS};
use stage::{BASELINE, Contestant, Kind};

/// Measures what Sluice costs, side by side with an nginx relay and the OpenTelemetry Collector.
///
/// Subjects run in turn on CPU 0, the bench itself on CPU 1; those without a binary are left out.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  sluice-bench --quick --row plain --row gzip --signal traces\n  \
        sluice-bench --row plain --baseline before/sluice --json out.json"
)]
struct Options {
    /// The sluice binary [default: the one beside this program, if there is one]
    #[arg(long, value_name = "PATH")]
    sluice: Option<PathBuf>,
    /// Another sluice binary, for instance of the state before a change: measured in the same turns
    #[arg(long, value_name = "PATH")]
    baseline: Option<PathBuf>,
    /// The nginx binary [default: $SLUICE_TEST_NGINX]
    #[arg(long, value_name = "PATH")]
    nginx: Option<PathBuf>,
    /// The Collector's binary [default: $SLUICE_TEST_OTELCOL]
    #[arg(long, value_name = "PATH")]
    otelcol: Option<PathBuf>,
    /// One turn of 2 seconds each, and of the scenarios only those that --row names, for a first
    /// impression
    #[arg(long)]
    quick: bool,
    /// Only these rows (see --list)
    #[arg(long, value_name = "ID", value_parser = parse_row)]
    row: Vec<String>,
    /// Only these cases of scenarios, as the table names them
    #[arg(long, value_name = "CASE", value_parser = parse_case)]
    case: Vec<String>,
    /// Only these signals: traces, metrics, logs. The scenarios are of traces
    #[arg(long, value_name = "SIGNAL", value_parser = parse_signal)]
    signal: Vec<Signal>,
    /// Turns of each subject and row
    #[arg(long, default_value_t = 3, conflicts_with = "quick")]
    turns: usize,
    /// Counted seconds of each turn of a row; scenarios say how many of these they take
    #[arg(
        long,
        default_value_t = 5,
        conflicts_with = "quick",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    seconds: u64,
    /// Spans a second of the scenarios isolation, backpressure, backlog and durable
    #[arg(long, value_name = "N", default_value_t = 20_000.0, value_parser = parse_rate)]
    rate: f64,
    /// Let nginx keep its connections to the backend, which makes it a harder yardstick
    #[arg(long)]
    nginx_keepalive: bool,
    /// Give Sluice `memory_limiter` and `batch` as well, which the Collector always has
    #[arg(long)]
    batch: bool,
    /// Write every turn's numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// List the rows and end
    #[arg(long)]
    list: bool,
    /// The programs whose binaries there are.
    #[arg(skip)]
    contestants: Vec<Contestant>,
    /// CPUs of the subjects; empty: not pinned.
    #[arg(skip)]
    subject_cpus: Vec<usize>,
    /// CPUs of subjects and bench, for a subject that is not held to its own.
    #[arg(skip)]
    all_cpus: Vec<usize>,
}

/// Ids and titles of the rows, then of the scenarios.
fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = ROWS.iter().map(|&(id, title, ..)| (id, title));
    rows.chain(SCENARIOS.iter().map(|scenario| (scenario.id, scenario.title)))
}

fn parse_row(id: &str) -> Result<String, String> {
    let is_known = listed().any(|(known, _)| known == id);
    is_known.then(|| id.to_owned()).ok_or_else(|| format!("no row `{id}`: --list names them"))
}

fn parse_case(name: &str) -> Result<String, String> {
    let is_known = SCENARIOS.iter().any(|scenario| scenario.cases.contains(&name));
    is_known.then(|| name.to_owned()).ok_or_else(|| format!("no scenario has a case `{name}`"))
}

fn parse_signal(name: &str) -> Result<Signal, String> {
    Signal::from_name(name).ok_or_else(|| format!("no signal `{name}`: traces, metrics or logs"))
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "a number above zero is needed".to_owned())
}

fn main() -> Result<()> {
    let mut options = Options::parse();
    if options.list {
        listed().for_each(|(id, title)| println!("{id:20} {title}"));
        return Ok(());
    }
    (options.turns, options.seconds) =
        if options.quick { (1, 2) } else { (options.turns.max(1), options.seconds) };
    options.contestants = options.find_contestants()?;
    options.pin()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            done = run(&options) => done,
            // Dropping the run ends its subjects and removes their folders.
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

/// The rows of the table, then the scenarios.
async fn run(options: &Options) -> Result<()> {
    let results = table::measure_rows(options).await;
    let mut sections = Vec::new();
    for scenario in SCENARIOS.into_iter().filter(|scenario| options.wants(scenario)) {
        sections.push(scenario.run(options).await);
    }
    if !results.is_empty() {
        let names: Vec<&str> = options.contestants.iter().map(|one| one.name).collect();
        println!("{}", table::to_markdown(&results, &names));
    }
    if let Some(ratio) = table::further_pipeline(&results) {
        println!("\nEach further pipeline costs {ratio:.2} × nginx.");
    }
    sections.iter().for_each(|section| println!("\n{}", section.markdown));
    if options.quick && options.row.is_empty() {
        println!(
            "\nWithout the scenarios: name them with --row (see --list), or leave --quick out."
        );
    }
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&table::to_json(&results, &sections))?;
        std::fs::write(path, json).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

impl Options {
    /// Counted time of each turn of a row.
    fn window(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn wants(&self, scenario: &Scenario) -> bool {
        let has_traces = self.signal.is_empty() || self.signal.contains(&Signal::Traces);
        let is_named = self.row.iter().any(|id| id == scenario.id);
        // However short their windows, all of them take too long for a first impression.
        let is_usual = self.row.is_empty() && !self.quick && !ONLY_BY_NAME.contains(&scenario.id);
        has_traces && (is_named || is_usual)
    }

    fn find_contestants(&self) -> Result<Vec<Contestant>> {
        let find = |given: &Option<PathBuf>, variable: &str| {
            let found = std::env::var_os(variable).filter(|value| !value.is_empty());
            given.clone().or_else(|| found.map(PathBuf::from))
        };
        let beside = std::env::current_exe()?.with_file_name("sluice");
        let sluice = self.sluice.clone().or_else(|| beside.exists().then_some(beside));
        let contestants: Vec<Contestant> = [
            ("nginx", Kind::Nginx, find(&self.nginx, "SLUICE_TEST_NGINX")),
            ("sluice", Kind::Sluice, sluice),
            (BASELINE, Kind::Sluice, self.baseline.clone()),
            ("otelcol", Kind::Collector, find(&self.otelcol, "SLUICE_TEST_OTELCOL")),
        ]
        .into_iter()
        .filter_map(|(name, kind, binary)| Some(Contestant { name, kind, binary: binary? }))
        .collect();
        ensure!(
            !contestants.is_empty(),
            "nothing to measure: give --sluice, --nginx or --otelcol, or set SLUICE_TEST_NGINX, \
             SLUICE_TEST_OTELCOL"
        );
        Ok(contestants)
    }

    /// Puts this process on CPU 1, and leaves CPU 0 to the subjects.
    fn pin(&mut self) -> Result<()> {
        let cpus = std::thread::available_parallelism()?.get();
        if cpus < 2 || in_path("taskset").is_none() {
            eprintln!(
                "warning: two CPUs and taskset (util-linux) are needed to keep subject and bench \
                 apart; nothing is pinned"
            );
            return Ok(());
        }
        pin_this_thread(&[1]).context("pinning the bench to CPU 1")?;
        (self.subject_cpus, self.all_cpus) = (vec![0], (0..cpus).collect());
        Ok(())
    }
}
