//! `sluice log`: inspects telemetry on disk, and makes changes that only an operator may decide.
//!
//! Commands that only read see the files that are written, also while a process runs on the
//! directory. Commands that change something take its lock.

pub(crate) mod arguments;
mod body;
mod dead_letters;
mod directory;
mod drop;
mod frames;
mod listing;
mod ls;
mod repair;
mod replay;
mod show;
mod verify;

use std::io;
use std::process::ExitCode;

use anyhow::Result;

use self::arguments::LogCommand;

pub(crate) fn run(command: &LogCommand) -> Result<ExitCode> {
    let result = match command {
        LogCommand::Ls(arguments) => ls::run(arguments),
        LogCommand::Show(arguments) => show::run(arguments),
        LogCommand::DeadLetters(arguments) => dead_letters::run(arguments),
        LogCommand::Replay(arguments) => replay::run(arguments),
        LogCommand::Verify { directory } => verify::run(directory),
        LogCommand::Repair(arguments) => repair::run(arguments),
        LogCommand::Drop(arguments) => drop::run(arguments),
    };
    let is_broken_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    match result {
        // The reader of the output has ended (`| head`).
        Err(error) if error.downcast_ref().is_some_and(is_broken_pipe) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}
