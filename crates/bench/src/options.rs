//! The options of the bench: subjects, rows, turns and time.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use sluice_load_test::subject::{in_path, pin_this_thread};
use sluice_otlp::Signal;

use crate::stage::{BASELINE, Contestant, Kind};

/// Measures what Sluice costs, side by side with an nginx relay and the OpenTelemetry Collector.
///
/// Subjects run in turn on CPU 0, the bench itself on CPU 1; those without a binary are left out.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  sluice-bench --quick --row plain --row gzip --signal traces\n  \
        sluice-bench --row plain --baseline before/sluice --json out.json"
)]
pub(crate) struct Options {
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
    /// The vmagent binary, for the scenario scrapes [default: $SLUICE_TEST_VMAGENT]
    #[arg(long, value_name = "PATH")]
    vmagent: Option<PathBuf>,
    /// One turn of 2 seconds each, and of the scenarios only those that --row names, for a first
    /// impression
    #[arg(long)]
    pub quick: bool,
    /// Only these rows (see --list)
    #[arg(long, value_name = "ID")]
    pub row: Vec<String>,
    /// Only these cases of scenarios, as the table names them
    #[arg(long, value_name = "CASE")]
    pub case: Vec<String>,
    /// Only these signals: traces, metrics, logs. The scenarios are of traces
    #[arg(long, value_name = "SIGNAL", value_parser = parse_signal)]
    pub signal: Vec<Signal>,
    /// Turns of each subject and row
    #[arg(long, default_value_t = 3, conflicts_with = "quick")]
    pub turns: usize,
    /// Counted seconds of each turn of a row; scenarios say how many of these they take
    #[arg(
        long,
        default_value_t = 5,
        conflicts_with = "quick",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub seconds: u64,
    /// Spans a second of the scenarios isolation, backpressure, backlog and durable
    #[arg(long, value_name = "N", default_value_t = 20_000.0, value_parser = parse_rate)]
    pub rate: f64,
    /// Let nginx keep its connections to the backend, which makes it a harder yardstick
    #[arg(long)]
    pub nginx_keepalive: bool,
    /// Give Sluice `memory_limiter` and `batch` as well, which the Collector always has
    #[arg(long)]
    pub batch: bool,
    /// Write every turn's numbers to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// List the rows and end
    #[arg(long)]
    pub list: bool,
    /// The programs whose binaries there are.
    #[arg(skip)]
    pub contestants: Vec<Contestant>,
    /// CPUs of the subjects; empty: not pinned.
    #[arg(skip)]
    pub subject_cpus: Vec<usize>,
    /// CPUs of subjects and bench, for a subject that is not held to its own.
    #[arg(skip)]
    pub all_cpus: Vec<usize>,
}

fn parse_signal(name: &str) -> Result<Signal, String> {
    Signal::from_name(name).ok_or_else(|| format!("no signal `{name}`: traces, metrics or logs"))
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "a number above zero is needed".to_owned())
}

impl Options {
    /// Counted time of each turn of a row.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(crate) fn find_contestants(&self) -> Result<Vec<Contestant>> {
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
            ("vmagent", Kind::VmAgent, find(&self.vmagent, "SLUICE_TEST_VMAGENT")),
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
    pub(crate) fn pin(&mut self) -> Result<()> {
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
