//! `sluice load-test`: one scenario for one or several subjects, and a report.

mod agents;
mod faults;
mod find_limit;
mod interruption;
mod k6;
mod load;
mod output;
mod prometheus;
mod subjects;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use sluice_load_test::report::Target;
use sluice_load_test::run::{self, Cores, K6Programs, Plan, pipelines};

use agents::AgentArguments;
use faults::FaultArguments;
use find_limit::LimitArguments;
use interruption::INTERRUPTED;
use k6::K6Arguments;
use load::LoadArguments;
use output::OutputArguments;
use prometheus::PrometheusArguments;
use subjects::SubjectArguments;

// Each group of options is defined where its subject is.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LoadTestArguments {
    #[command(subcommand)]
    command: Option<LoadTestCommand>,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    agents: AgentArguments,
    #[command(flatten)]
    k6: K6Arguments,
    #[command(flatten)]
    faults: FaultArguments,
    #[command(flatten)]
    limit: LimitArguments,
    #[command(flatten)]
    subjects: SubjectArguments,
    #[command(flatten)]
    prometheus: PrometheusArguments,
    #[command(flatten)]
    output: OutputArguments,
    /// Check everything and print what would be done, but run nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Subcommand)]
enum LoadTestCommand {
    /// List the subjects that come with this program
    #[command(after_help = "Example:\n  sluice load-test subjects")]
    Subjects,
    /// Merge the records of several runs into one table
    #[command(after_help = "Examples:\n  sluice load-test report results-1.1 results-1.2\n  \
        sluice load-test report results-1.1 results-1.2 --output both")]
    Report {
        /// Records, or folders that `--output` wrote
        #[arg(required = true, value_name = "DIR")]
        places: Vec<PathBuf>,
        /// Write all reports into this folder
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
        /// Replace reports that are in this folder
        #[arg(long, requires = "output")]
        overwrite: bool,
    },
}

pub(crate) fn load_test(arguments: &LoadTestArguments) -> Result<ExitCode> {
    match &arguments.command {
        Some(LoadTestCommand::Report { places, output, overwrite }) => {
            output::merge(places, output.as_deref(), *overwrite)
        }
        Some(LoadTestCommand::Subjects) => subjects::list(),
        None => run_plans(arguments),
    }
}

fn run_plans(arguments: &LoadTestArguments) -> Result<ExitCode> {
    let plans = plans(arguments)?;
    if arguments.dry_run {
        return crate::output::print(&plans.iter().map(Plan::in_words).collect::<String>());
    }
    arguments.output.prepare()?;
    // Before the runtime: its threads are to be the bench's.
    let cores = Cores::divide();
    let runtime = crate::runtime::runtime_builder(cores.of_bench()).build();
    let runtime = runtime.context("cannot start the runtime")?;
    let records = runtime.block_on(async {
        let (once, twice) = interruption::listen()?;
        tokio::select! {
            records = run::run_all(&plans, &cores, once) => records.map(Some),
            // The run is dropped, and with it its processes and files.
            () = twice => Ok(None),
        }
    })?;
    let Some(records) = records else { return Ok(ExitCode::from(INTERRUPTED)) };
    arguments.output.put_out(&records)?;
    Ok(output::verdict(&records))
}

/// One plan a target, in the order in which they are run.
fn plans(arguments: &LoadTestArguments) -> Result<Vec<Plan>> {
    let targets = arguments.load.targets()?;
    arguments.agents.check(targets)?;
    arguments.k6.check(targets, arguments)?;
    arguments.output.check(targets.len())?;
    targets.iter().map(|target| plan(arguments, *target, targets.len() > 1)).collect()
}

fn plan(arguments: &LoadTestArguments, target: Target, is_one_of_all: bool) -> Result<Plan> {
    let LoadTestArguments { load, output, .. } = arguments;
    let subjects = arguments.subjects.definitions()?;
    let (able, unable) = agents::able(&subjects, target, is_one_of_all)?;
    let duration = load.duration(arguments.limit.find_limit);
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let plan = Plan {
        name: load.name.clone(),
        multi: load.multi,
        faults: arguments.faults.schedule(duration, pipelines(load.multi))?,
        duration,
        pace: load.pace(),
        requests: load.requests,
        find_limit: arguments.limit.search(duration, &output.fail_if)?,
        body_bytes: load.body_bytes.map(|bytes| bytes as usize),
        farm: arguments.agents.farm(),
        log_files: arguments.agents.log_files(),
        k6: if target == Target::K6 { arguments.k6.programs()? } else { K6Programs::default() },
        unable,
        turns: arguments.subjects.turns.into(),
        cpus: arguments.subjects.cpus,
        memory_mib: arguments.subjects.memory_limit,
        drain_within: load.drain_within,
        fail_if: output.fail_if.clone(),
        prometheus: arguments.prometheus.plan(),
        metrics_listen: arguments.prometheus.metrics_listen(),
        quiet: output.quiet,
        command: Some(format!("sluice {command}")),
        ..Plan::new(target, able)
    };
    plan.check_requests()?;
    Ok(plan)
}
