//! The command line of Sluice.

mod arguments;
mod components;
mod configuration;
mod demo;
mod docs;
mod load_test;
mod log;
mod run;
mod watched;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Command};

/// Byte buffers of all sizes are often allocated on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Validate(arguments) => configuration::validate(&arguments.locations()),
        Command::Plan(arguments) => configuration::plan(&arguments.locations()),
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::LoadTest(arguments) => load_test::load_test(&arguments),
        Command::Log(command) => log::run(&command),
        Command::Components => components::list(),
        Command::Docs { reference } => docs::print(reference),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "sluice", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("sluice: {error:#}");
        ExitCode::FAILURE
    })
}
