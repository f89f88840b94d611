//! `sluice demo`: this binary as a gateway, three backends, the Kyma load test, and a table.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_load_test::demo;
use sluice_load_test::run::Definition;
use sluice_net::server::ReadScheduler;

use crate::arguments::DemoArguments;
use crate::output::complain;
use crate::runtime::runtime;
use crate::text::terminal_width;

/// Time for the healthy and the refusing backend to get the rest after the load has ended.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn demo(arguments: &DemoArguments) -> Result<ExitCode> {
    let mut gateway = Definition::built_in("sluice")?;
    gateway
        .set_program(&std::env::current_exe().context("cannot find this program's own file")?)?;
    complain!(
        "A gateway with three pipelines: one backend healthy, one answering 70 % of requests with \
         503, one dead."
    );
    let seconds = arguments.seconds.as_secs();
    let rate = arguments.rate;
    complain!("It is sent {rate} spans a second, of 40 attributes each, for {seconds} seconds.\n");
    let runtime = runtime(None, &ReadScheduler::new())?;
    let load = demo::run(gateway, rate as f64, arguments.seconds, DRAIN_WITHIN);
    let kpis = runtime.block_on(load)?;
    let table = demo::table(&kpis);
    // Where it is too wide for the terminal it would be wrapped amid figures.
    let table = terminal_width().map_or_else(|| table.to_string(), |width| table.within(width));
    crate::output::print(&format!("\n{table}\n"))
}
