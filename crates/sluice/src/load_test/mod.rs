//! `sluice load-test`: one scenario for one or several subjects, and a report.

mod agents;
mod arguments;
mod faults;
mod find_limit;
mod interruption;
mod load;
mod output;
mod plan;
mod prometheus;
mod subjects;

use std::process::ExitCode;

use anyhow::{Context, Result};
use sluice_load_test::run::{self, Cores, Plan};

pub(crate) use arguments::LoadTestArguments;
use arguments::LoadTestCommand;
use interruption::INTERRUPTED;

pub(crate) fn load_test(arguments: &LoadTestArguments) -> Result<ExitCode> {
    match &arguments.command {
        Some(LoadTestCommand::Report { places, output }) => {
            output::merge(places, output.as_deref())
        }
        Some(LoadTestCommand::Subjects) => subjects::list(),
        None => run_plans(arguments),
    }
}

fn run_plans(arguments: &LoadTestArguments) -> Result<ExitCode> {
    let plans = plan::plans(arguments)?;
    if arguments.dry_run {
        return crate::output::print(&plans.iter().map(Plan::in_words).collect::<String>());
    }
    arguments.output.prepare()?;
    // Before the runtime: its threads are to be the bench's.
    let cores = Cores::divide();
    let mut builder = match cores.of_bench() {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let builder = builder.worker_threads(cores.of_bench()).enable_all();
    let runtime = builder.build().context("cannot start the runtime")?;
    let records = runtime.block_on(async {
        let (once, twice) = interruption::listen()?;
        tokio::select! {
            records = run::run_all(&plans, &cores, once) => records.map(Some),
            // What was begun is dropped, and with it its processes and files.
            () = twice => Ok(None),
        }
    })?;
    let Some(records) = records else { return Ok(ExitCode::from(INTERRUPTED)) };
    arguments.output.put_out(&records)?;
    Ok(output::verdict(&records))
}
