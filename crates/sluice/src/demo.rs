//! `sluice demo`: this binary as a gateway or an agent, three backends, a load, and a table.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_load_test::demo::{GATEWAY, LOG_AGENT, METRIC_AGENT};
use sluice_load_test::run::Definition;
use sluice_net::server::ReadScheduler;

use crate::arguments::DemoArguments;
use crate::output::complain;
use crate::runtime::runtime;
use crate::text::terminal_width;

/// Time for the backends that are not dead to get the rest after the load has ended.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn demo(arguments: &DemoArguments) -> Result<ExitCode> {
    let mut subject = Definition::built_in("sluice")?;
    subject
        .set_program(&std::env::current_exe().context("cannot find this program's own file")?)?;
    let demonstration = match arguments {
        DemoArguments { log_agent: true, .. } => &LOG_AGENT,
        DemoArguments { metric_agent: true, .. } => &METRIC_AGENT,
        _ => &GATEWAY,
    };
    let rate = arguments.rate.unwrap_or(demonstration.usual_rate);
    complain!("{}\n", (demonstration.introduction)(rate, arguments.seconds.as_secs()));
    let runtime = runtime(None, &ReadScheduler::new())?;
    let load = demonstration.run(subject, rate as f64, arguments.seconds, DRAIN_WITHIN);
    let kpis = runtime.block_on(load)?;
    let table = demonstration.table(&kpis);
    // Where it is too wide for the terminal it would be wrapped amid figures.
    let table = terminal_width().map_or_else(|| table.to_string(), |width| table.within(width));
    crate::output::print(&format!("\n{table}\n"))
}
