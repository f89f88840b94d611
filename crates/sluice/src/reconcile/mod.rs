//! `sluice reconcile`: compares k6's own summary of a test with what InfluxDB has of it, and asks
//! Sluice's ledger where the difference is.
//!
//! `summary` reads k6's forms, `influxdb` asks the database, `ledger` asks Sluice, and `report`
//! compares.

pub(crate) mod arguments;
mod filter;
mod influxdb;
mod ledger;
mod report;
mod server;
mod summary;

use std::process::ExitCode;

use anyhow::{Context, Result};

use self::arguments::ReconcileArguments;
use self::influxdb::InfluxDb;
use self::ledger::Ledger;
use self::report::Report;
use self::summary::Summary;
use crate::output::{complain, print};
use crate::runtime::runtime_builder;

/// The exit codes beside 0, which says that all is equal.
const DIFFERS: u8 = 1;
const CANNOT_COMPARE: u8 = 2;

pub(crate) fn reconcile(arguments: &ReconcileArguments) -> Result<ExitCode> {
    match compare(arguments) {
        Ok(report) => {
            let text = if arguments.json { report.json() } else { report.text() };
            print(&text)?;
            Ok(if report.is_equal() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) })
        }
        Err(error) => {
            // It may have words of a server, which must not draw on a terminal.
            let said = format!("{error:#}").replace(|letter: char| letter.is_control(), " ");
            complain!("sluice: cannot compare: {said}");
            Ok(ExitCode::from(CANNOT_COMPARE))
        }
    }
}

fn compare(arguments: &ReconcileArguments) -> Result<Report> {
    let path = &arguments.summary;
    let shown = path.display();
    let text = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let summary = Summary::parse(&text).with_context(|| format!("{shown} is no summary of k6"))?;
    let influxdb = InfluxDb::new(arguments)?;
    let runtime = runtime_builder(1).build().context("cannot start the runtime")?;
    runtime.block_on(async {
        let found = influxdb.count(&summary).await?;
        let ledger = match &arguments.ledger {
            Some(url) => Some(Ledger::fetch(url).await?),
            None => None,
        };
        Ok(Report::new(&summary, &found, ledger.as_ref(), arguments.tolerance))
    })
}
