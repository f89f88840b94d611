//! `sluice load-test`: one scenario for one or several subjects, and a report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use sluice_load_test::report::{self, RunRecord, Target};
use sluice_load_test::run::{self, Backpressure, Cores, Definition, Plan, Threshold};
use sluice_otlp::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::arguments::seconds;

/// The path of a Collector, where it is not `otelcol` in PATH.
const COLLECTOR_VARIABLE: &str = "SLUICE_TEST_OTELCOL";
/// As shells say it of a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LoadTestArguments {
    #[command(subcommand)]
    command: Option<LoadTestCommand>,
    /// What is under load
    #[arg(short = 't', long, default_value = "traces", value_name = "TARGET")]
    target: Target,
    /// Name of the row in reports, for instance a version
    #[arg(short = 'n', long, default_value = env!("CARGO_PKG_VERSION"))]
    name: String,
    /// Three pipelines instead of one
    #[arg(short = 'm', long, value_name = "BOOL", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    multi: bool,
    /// Backends that answer a share of the requests 503 while the load lasts
    #[arg(short = 'b', long, value_name = "BOOL", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    backpressure: bool,
    /// Share of the requests that -b refuses, 0 to 1 [default: 0.7]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    fault_share: Option<f64>,
    /// Delay the same share of the requests as well [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    fault_delay: Option<Duration>,
    /// How long the load lasts
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "60", value_parser = load_seconds)]
    duration: Duration,
    /// Items a second, open loop [default: traces as fast as they are answered, metrics 6667, logs 1000]
    #[arg(short = 'r', long, value_name = "ITEMS", value_parser = rate)]
    rate: Option<f64>,
    /// Bytes of a log record's body, for -t logs-otel [default: 2000]
    #[arg(short = 's', long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    body_bytes: Option<u32>,
    /// Who is tested; may be given several times [default: sluice]
    #[arg(long, value_name = "NAME")]
    subject: Vec<SubjectName>,
    /// Another subject: a folder with `subject.json` and a configuration template; may be given several times
    #[arg(long, value_name = "DIR")]
    subject_dir: Vec<PathBuf>,
    /// Turns of each subject, interleaved
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    turns: u16,
    /// How long the rest may take to arrive when the load has ended
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    drain_within: Duration,
    /// Exit with 1 where this holds, for instance 'lost>0'; may be given several times
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Threshold>,
    /// Write the record of the run to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write record and all reports into this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum LoadTestCommand {
    /// Merge the records of several runs into one table
    Report {
        /// Folders that `--output` wrote, or records
        #[arg(required = true, value_name = "DIR")]
        places: Vec<PathBuf>,
        /// Write all reports into this folder
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
}

/// A subject that the load test knows by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SubjectName {
    Sluice,
    Otelcol,
    Rotel,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "give a share from 0 to 1".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= 1e9);
    rate.ok_or_else(|| "give a number of items above 0".to_owned())
}

fn load_seconds(text: &str) -> Result<Duration, String> {
    let duration = seconds(text)?;
    if duration < Duration::from_secs(1) { Err("give 1 second or more".to_owned()) } else { Ok(duration) }
}

pub(crate) fn load_test(arguments: &LoadTestArguments) -> Result<ExitCode> {
    if let Some(LoadTestCommand::Report { places, output }) = &arguments.command {
        let records = report::load(places)?;
        print!("{}", report::to_markdown(&records));
        if let Some(folder) = output {
            create_folder(folder)?;
            report::write_reports(&records, folder)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let plan = plan(arguments)?;
    if let Some(folder) = &arguments.output {
        create_folder(folder)?;
    }
    // Before the runtime: its threads are to be the bench's.
    let cores = Cores::divide();
    let mut builder = match cores.of_bench() {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(cores.of_bench()).enable_all().build().context("cannot start the runtime")?;
    let record = runtime.block_on(async { run::run(&plan, &cores, interruption()?).await })?;
    print!("{}", report::to_markdown(std::slice::from_ref(&record)));
    tell(&record);
    write(arguments, &record)?;
    Ok(verdict(&record))
}

/// True as soon as this process is asked to end. The second time it ends at once, and its subjects with it.
fn interruption() -> Result<watch::Receiver<bool>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if sender.send_replace(true) {
                std::process::exit(i32::from(INTERRUPTED));
            }
            eprintln!("interrupted: the load ends, what was measured is reported");
        }
    });
    Ok(receiver)
}

fn plan(arguments: &LoadTestArguments) -> Result<Plan> {
    let signal = match arguments.target {
        Target::Traces => Signal::Traces,
        Target::Metrics => Signal::Metrics,
        Target::LogsOtel => Signal::Logs,
        other => {
            let name = other.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            bail!("-t {name} is not there yet: use traces, metrics or logs-otel");
        }
    };
    if arguments.body_bytes.is_some() && signal != Signal::Logs {
        bail!("-s sets the size of log bodies: use it with -t logs-otel");
    }
    if !arguments.backpressure && (arguments.fault_share.is_some() || arguments.fault_delay.is_some()) {
        bail!("--fault-share and --fault-delay say how backends refuse: add -b");
    }
    let backpressure = arguments.backpressure.then(|| Backpressure {
        share: arguments.fault_share.unwrap_or(0.7),
        delay: arguments.fault_delay.unwrap_or_default(),
    });
    let command = std::env::args().collect::<Vec<_>>();
    Ok(Plan {
        target: arguments.target,
        signal,
        name: arguments.name.clone(),
        multi: arguments.multi,
        backpressure,
        duration: arguments.duration,
        rate: arguments.rate,
        body_bytes: arguments.body_bytes.map(|bytes| bytes as usize),
        subjects: subjects(arguments)?,
        turns: usize::from(arguments.turns),
        drain_within: arguments.drain_within,
        fail_if: arguments.fail_if.clone(),
        command: Some(format!("sluice {}", command.get(1..).unwrap_or_default().join(" "))),
    })
}

fn subjects(arguments: &LoadTestArguments) -> Result<Vec<Definition>> {
    let mut definitions = Vec::new();
    for name in &arguments.subject {
        definitions.push(match name {
            SubjectName::Sluice => sluice()?,
            SubjectName::Otelcol => Definition::collector(COLLECTOR_VARIABLE)?,
            SubjectName::Rotel => bail!("--subject rotel is not there yet: describe it in a folder for --subject-dir"),
        });
    }
    for folder in &arguments.subject_dir {
        definitions.push(Definition::read(folder)?);
    }
    if definitions.is_empty() {
        definitions.push(sluice()?);
    }
    let mut names: Vec<_> = definitions.iter().map(|definition| &definition.name).collect();
    names.sort();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("subject `{}` is given twice: --turns repeats a subject", twice[0]);
    }
    Ok(definitions)
}

fn sluice() -> Result<Definition> {
    Ok(Definition::sluice(&std::env::current_exe().context("cannot find this program's own file")?))
}

fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn write(arguments: &LoadTestArguments, record: &RunRecord) -> Result<()> {
    let save = |path: &PathBuf, text: String| {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &arguments.json {
        save(path, record.to_json())?;
    }
    if let Some(path) = &arguments.csv {
        save(path, report::to_csv(std::slice::from_ref(record)))?;
    }
    if let Some(folder) = &arguments.output {
        report::write_all(record, folder)?;
    }
    Ok(())
}

/// What the tables leave to standard error.
fn tell(record: &RunRecord) {
    for warning in &record.warnings {
        let subject = warning.subject.as_ref().map_or_else(String::new, |subject| format!("{subject}: "));
        let remedy = warning.remedy.as_ref().map_or_else(String::new, |remedy| format!(" (remedy: {remedy})"));
        eprintln!("warning: {subject}{}{remedy}", warning.message);
    }
    for verdict in record.verdicts.iter().filter(|verdict| verdict.failed) {
        let value = verdict.value.map_or_else(|| "not known".to_owned(), |value| value.to_string());
        eprintln!("FAILED: {}: {} ({value})", verdict.subject, verdict.fail_if);
    }
}

fn verdict(record: &RunRecord) -> ExitCode {
    let has_failed = record.verdicts.iter().any(|verdict| verdict.failed)
        || !record.interrupted && record.subjects.iter().any(|subject| subject.turns.is_empty());
    match (record.interrupted, has_failed) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::FAILURE,
        (false, false) => ExitCode::SUCCESS,
    }
}
