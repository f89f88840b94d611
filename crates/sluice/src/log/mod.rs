//! `sluice log`: looks into a directory that pipelines keep their telemetry in, and does what only an operator may decide.
//!
//! What reads needs no lock and works while a process runs on the directory; it then sees what that process has written.
//! What changes takes the directory's lock.

pub(crate) mod arguments;
mod body;
mod dead_letters;
mod directory;
mod drop;
mod frames;
mod ls;
mod record;
mod replay;
mod show;
mod text;
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
        LogCommand::Verify(arguments) => verify::run(arguments),
        LogCommand::Drop(arguments) => drop::run(arguments),
    };
    match result {
        // Whoever reads the output has seen enough (`| head`).
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
