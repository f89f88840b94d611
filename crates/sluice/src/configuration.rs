//! Reading configurations, and the commands that only do that.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Result, bail};
use sluice_config::{Diagnostics, SystemEnvironment};
use sluice_engine::{Plan, plan};

/// Reads, checks and plans. Prints what is wrong or doubtful; a plan comes back only if nothing is wrong.
pub(crate) fn load(locations: &[String]) -> Result<Plan> {
    let (plan, diagnostics) = plan::load(locations, &SystemEnvironment);
    print(&diagnostics);
    match plan {
        Some(plan) => Ok(plan),
        None => {
            let count = diagnostics.errors().count();
            bail!("the configuration has {count} error{}", if count == 1 { "" } else { "s" })
        }
    }
}

fn print(diagnostics: &Diagnostics) {
    let text = diagnostics.render(std::io::stderr().is_terminal());
    if !text.is_empty() {
        eprintln!("{text}");
    }
}

pub(crate) fn validate(locations: &[String]) -> Result<ExitCode> {
    let plan = load(locations)?;
    println!(
        "valid: {} receivers, {} pipelines, {} deliveries",
        plan.receivers.len(),
        plan.pipelines.len(),
        plan.deliveries.len()
    );
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn plan(locations: &[String]) -> Result<ExitCode> {
    print!("{}", load(locations)?.describe());
    Ok(ExitCode::SUCCESS)
}
