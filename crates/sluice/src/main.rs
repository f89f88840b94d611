//! The command line of Sluice.

mod allocator;
mod arguments;
mod components;
mod configuration;
mod demo;
mod load_test;
mod log;
mod output;
mod run;
mod text;
mod values;
mod watched;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use sluice_engine::reference;

use crate::arguments::{Arguments, Command, Reference};

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Validate(arguments) => configuration::validate(&arguments.locations()),
        Command::Plan(arguments) => configuration::plan(&arguments.locations()),
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::LoadTest(arguments) => load_test::load_test(&arguments),
        Command::Log(command) => log::run(&command),
        Command::Components => output::print(&components::list()),
        Command::Docs { reference: Reference::Configuration } => {
            output::print(&reference::markdown())
        }
        Command::Docs { reference: Reference::Metrics } => {
            output::print(&reference::metrics_markdown())
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "sluice", &mut script);
            output::print(&String::from_utf8_lossy(&script))
        }
    };
    result.unwrap_or_else(|error| {
        output::complain!("sluice: {error:#}");
        ExitCode::FAILURE
    })
}
