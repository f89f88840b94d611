//! `sluice demo`: this binary as a gateway, three backends, the load of the Kyma load test, and a table.

use std::process::ExitCode;

use anyhow::{Context, Result};
use sluice_load_test::demo::{self, DemoOptions};
use sluice_load_test::run::Definition;
use sluice_net::server::ReadScheduler;

use crate::arguments::DemoArguments;
use crate::run;

pub(crate) fn demo(arguments: &DemoArguments) -> Result<ExitCode> {
    let mut gateway = Definition::built_in("sluice")?;
    gateway.set_program(&std::env::current_exe().context("cannot find this program's own file")?)?;
    eprintln!(
        "A gateway with three pipelines: one backend healthy, one answering 70 % of requests with 503, one dead."
    );
    let seconds = arguments.seconds.as_secs();
    eprintln!("It is sent {} spans a second, of 40 attributes each, for {seconds} seconds.\n", arguments.rate);
    let options =
        DemoOptions { spans_per_s: arguments.rate as f64, duration: arguments.seconds, ..DemoOptions::default() };
    let kpis = run::runtime(None, &ReadScheduler::new())?.block_on(demo::run(gateway, options))?;
    println!("\n{}", demo::to_markdown(&kpis));
    Ok(ExitCode::SUCCESS)
}
