//! `sluice demo`: this binary as a gateway or log agent, three backends, a load, and a table.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_load_test::demo::{GATEWAY, LOG_AGENT};
use sluice_load_test::run::Definition;
use sluice_net::server::ReadScheduler;

use crate::arguments::DemoArguments;
use crate::output::complain;
use crate::runtime::runtime;
use crate::text::terminal_width;

/// Time for the backends that are not dead to get the rest after the load has ended.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// Spans a second that are sent to the gateway, and lines a second that are written for the agent.
const RATES: (u64, u64) = (20_000, 5_000);

pub(crate) fn demo(arguments: &DemoArguments) -> Result<ExitCode> {
    let mut subject = Definition::built_in("sluice")?;
    subject
        .set_program(&std::env::current_exe().context("cannot find this program's own file")?)?;
    let seconds = arguments.seconds.as_secs();
    let (demonstration, rate) = if arguments.log_agent {
        let rate = arguments.rate.unwrap_or(RATES.1);
        complain!(
            "A log agent with three pipelines: one backend healthy, one answering 70 % of requests \
             with 503, one away for a third of the time."
        );
        complain!(
            "Ten pods write {rate} lines a second for {seconds} seconds into files, which are \
             rotated every second.\n"
        );
        (&LOG_AGENT, rate)
    } else {
        let rate = arguments.rate.unwrap_or(RATES.0);
        complain!(
            "A gateway with three pipelines: one backend healthy, one answering 70 % of requests \
             with 503, one dead."
        );
        complain!(
            "It is sent {rate} spans a second, of 40 attributes each, for {seconds} seconds.\n"
        );
        (&GATEWAY, rate)
    };
    let runtime = runtime(None, &ReadScheduler::new())?;
    let load = demonstration.run(subject, rate as f64, arguments.seconds, DRAIN_WITHIN);
    let kpis = runtime.block_on(load)?;
    let table = demonstration.table(&kpis);
    // Where it is too wide for the terminal it would be wrapped amid figures.
    let table = terminal_width().map_or_else(|| table.to_string(), |width| table.within(width));
    crate::output::print(&format!("\n{table}\n"))
}
