//! `sluice docs`: the reference of all options, from the code that reads them.

use std::process::ExitCode;

use anyhow::Result;

pub(crate) fn print() -> Result<ExitCode> {
    print!("{}", sluice_engine::reference::markdown());
    Ok(ExitCode::SUCCESS)
}
