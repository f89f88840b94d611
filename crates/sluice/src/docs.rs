//! `sluice docs`: the references of all options and all metrics, from the code that reads and writes them.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reference {
    /// Every option of every component
    Configuration,
    /// Every metric that `/metrics` exposes
    Metrics,
}

pub(crate) fn print(reference: Reference) -> Result<ExitCode> {
    let text = match reference {
        Reference::Configuration => sluice_engine::reference::markdown(),
        Reference::Metrics => sluice_engine::reference::metrics_markdown(),
    };
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}
