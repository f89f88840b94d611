//! `sluice-bench`: CPU seconds a million items of Sluice, beside nginx relaying the same bytes and
//! beside the OpenTelemetry Collector doing the same work, and what becomes of delivery when
//! something is wrong. In interleaved turns on the same cores.

mod contestant;
mod disk;
mod figures;
mod rows;
mod scenario;
mod scenarios;
mod stage;
mod table;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use sluice_load_test::subject::pin_this_thread;
use sluice_otlp::Signal;

use contestant::{BASELINE, Contestant, Kind};
use scenario::Scenario;
use scenarios::{ONLY_BY_NAME, SCENARIOS};

/// Measures what Sluice costs, side by side with an nginx relay and the OpenTelemetry Collector.
///
/// Subjects run in turn on CPU 0, the bench itself on CPU 1; those without a binary are left out.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  sluice-bench --quick --row plain --row gzip --signal traces\n  \
        sluice-bench --row plain --baseline before/sluice --json out.json"
)]
struct Args {
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
    #[arg(long, value_name = "ID")]
    row: Vec<String>,
    /// Only these signals: traces, metrics, logs. The scenarios are of traces
    #[arg(long, value_name = "SIGNAL", value_parser = parse_signal)]
    signal: Vec<Signal>,
    /// Turns of each subject and row
    #[arg(long, default_value_t = 3, conflicts_with = "quick")]
    turns: usize,
    /// Counted seconds of each turn
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
}

/// What to measure, how often and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) contestants: Vec<Contestant>,
    /// Ids of rows; empty: all.
    pub(crate) rows: Vec<String>,
    /// Empty: all.
    pub(crate) signals: Vec<Signal>,
    pub(crate) turns: usize,
    /// Counted time of each turn of a row; scenarios say how many of it they take.
    pub(crate) window: Duration,
    /// Where a scenario has an open loop of a fixed rate.
    pub(crate) spans_per_s: f64,
    /// CPUs of the subjects; empty: not pinned.
    pub(crate) subject_cpus: Vec<usize>,
    /// Those and the bench's own, for a subject that may have whatever it takes.
    pub(crate) all_cpus: Vec<usize>,
}

fn parse_signal(name: &str) -> Result<Signal, String> {
    Signal::from_name(name).ok_or_else(|| format!("no signal `{name}`: traces, metrics or logs"))
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "a number above zero is needed".to_owned())
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.list {
        let mut rows = rows::all_rows();
        rows.dedup_by_key(|row| row.id);
        rows.iter().for_each(|row| println!("{:20} {}", row.id, row.title));
        SCENARIOS.iter().for_each(|scenario| println!("{:20} {}", scenario.id, scenario.title));
        return Ok(());
    }
    check_rows(&args.row)?;
    let options = options(&args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            done = run(&args, &options) => done,
            // Dropping the run ends its subjects and removes their folders.
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

/// The rows of the table, then the scenarios.
async fn run(args: &Args, options: &Options) -> anyhow::Result<()> {
    let mut progress = |line: &str| eprintln!("{line}");
    let results = table::measure_rows(options, &mut progress).await;
    let mut sections = Vec::new();
    for scenario in SCENARIOS.into_iter().filter(|scenario| is_wanted(args, scenario)) {
        sections.push(scenario.run(options, &mut progress).await);
    }
    if !results.is_empty() {
        println!("{}", table::to_markdown(&results, &options.contestants));
    }
    if let Some(ratio) = table::further_pipeline(&results) {
        println!("\nEach further pipeline costs {ratio:.2} × nginx.");
    }
    sections.iter().for_each(|section| println!("\n{}", section.markdown));
    if args.quick && args.row.is_empty() {
        println!(
            "\nWithout the scenarios: name them with --row (see --list), or leave --quick out."
        );
    }
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&table::to_json(&results, &sections))?;
        std::fs::write(path, json).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn is_wanted(args: &Args, scenario: &Scenario) -> bool {
    let has_traces = args.signal.is_empty() || args.signal.contains(&Signal::Traces);
    let is_named = args.row.iter().any(|id| id == scenario.id);
    // However short their windows, all of them take too long for a first impression.
    let is_usual = args.row.is_empty() && !args.quick && !ONLY_BY_NAME.contains(&scenario.id);
    has_traces && (is_named || is_usual)
}

fn check_rows(wanted: &[String]) -> anyhow::Result<()> {
    let mut ids: Vec<&str> = rows::all_rows().iter().map(|row| row.id).collect();
    ids.extend(SCENARIOS.iter().map(|scenario| scenario.id));
    let is_known = |id: &str| ids.contains(&id);
    match wanted.iter().find(|id| !is_known(id)) {
        Some(unknown) => bail!("no row `{unknown}`: --list names them"),
        None => Ok(()),
    }
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let from_environment =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let nginx = args.nginx.clone().or_else(|| from_environment("SLUICE_TEST_NGINX"));
    let otelcol = args.otelcol.clone().or_else(|| from_environment("SLUICE_TEST_OTELCOL"));
    let beside = std::env::current_exe()?.with_file_name("sluice");
    let sluice = args.sluice.clone().or_else(|| beside.exists().then_some(beside));
    let (keepalive, batch) = (args.nginx_keepalive, args.batch);
    let contestants: Vec<Contestant> = [
        ("nginx", Kind::Nginx { keepalive }, nginx),
        ("sluice", Kind::Sluice { batch }, sluice),
        (BASELINE, Kind::Sluice { batch }, args.baseline.clone()),
        ("otelcol", Kind::Collector, otelcol),
    ]
    .into_iter()
    .filter_map(|(name, kind, binary)| Some(Contestant { name, kind, binary: binary? }))
    .collect();
    if contestants.is_empty() {
        bail!(
            "nothing to measure: give --sluice, --nginx or --otelcol, or set SLUICE_TEST_NGINX, \
             SLUICE_TEST_OTELCOL"
        );
    }
    let (turns, seconds) = if args.quick { (1, 2) } else { (args.turns.max(1), args.seconds) };
    let (subject_cpus, all_cpus) = pin()?;
    Ok(Options {
        contestants,
        rows: args.row.clone(),
        signals: args.signal.clone(),
        turns,
        window: Duration::from_secs(seconds),
        spans_per_s: args.rate,
        subject_cpus,
        all_cpus,
    })
}

/// Puts this process on CPU 1 and says which CPUs are left for the subjects, and which there are.
fn pin() -> anyhow::Result<(Vec<usize>, Vec<usize>)> {
    let cpus = std::thread::available_parallelism()?.get();
    if cpus < 2 || !Path::new("/usr/bin/taskset").exists() && !Path::new("/bin/taskset").exists() {
        eprintln!(
            "warning: two CPUs and taskset (util-linux) are needed to keep subject and bench \
             apart; \
             nothing is pinned"
        );
        return Ok((Vec::new(), Vec::new()));
    }
    pin_this_thread(&[1]).context("pinning the bench to CPU 1")?;
    Ok((vec![0], (0..cpus).collect()))
}
