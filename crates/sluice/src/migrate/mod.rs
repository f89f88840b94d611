//! `sluice migrate`: a configuration of another program becomes one of Sluice.
//!
//! `telegraf/` reads the file and decides what becomes of each option; `report.rs` is the list of
//! what could not be translated, `yaml.rs` writes the result.

pub(crate) mod arguments;
mod report;
mod telegraf;
mod yaml;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};

use self::arguments::{MigrateCommand, TelegrafArguments};
use self::report::Report;
use crate::output::{self, complain};
use crate::text;

/// Of a file that cannot be read, or written.
const UNREADABLE: u8 = 2;
const LEFT_OUT: u8 = 1;

pub(crate) fn run(command: &MigrateCommand) -> Result<ExitCode> {
    let MigrateCommand::Telegraf(arguments) = command;
    Ok(from_telegraf(arguments).unwrap_or_else(|error| {
        complain!("sluice: {error:#}");
        ExitCode::from(UNREADABLE)
    }))
}

fn from_telegraf(arguments: &TelegrafArguments) -> Result<ExitCode> {
    let name = arguments.file.display().to_string();
    let text = std::fs::read_to_string(&arguments.file)
        .with_context(|| format!("cannot read `{name}`"))?;
    let mut report = Report::default();
    let document = telegraf::translate(&text, &mut report)
        .map_err(|error| text::cell(&error).content())
        .map_err(|error| anyhow!("`{name}` is not valid TOML: {error}"))?;
    let base = Path::new(&name)
        .file_name()
        .map_or_else(|| name.clone(), |base| base.to_string_lossy().into_owned());
    let text = report.head(&base) + &yaml::write(&document);
    for line in report.lines(&name) {
        complain!("{line}");
    }
    match &arguments.output {
        Some(path) => std::fs::write(path, text)
            .with_context(|| format!("cannot write `{}`", path.display()))?,
        None => {
            output::print(&text)?;
        }
    }
    let is_whole = report.is_whole();
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(LEFT_OUT) })
}
