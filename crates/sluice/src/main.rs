//! The command line of Sluice.

mod allocator;
mod arguments;
mod configuration;
mod demo;
mod load_test;
mod log;
mod migrate;
mod output;
mod reconcile;
mod run;
mod runtime;
mod text;
mod values;
mod watched;

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::CommandFactory;
use sluice_config::{Catalog, Class};
use sluice_engine::{Components, reference};

use crate::arguments::{Arguments, Command, Reference};

fn main() -> ExitCode {
    let result = match Arguments::of_process().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Validate(arguments) => configuration::validate(&arguments),
        Command::Plan(arguments) => configuration::plan(&arguments),
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::LoadTest(arguments) => load_test::load_test(&arguments),
        Command::Log(command) => log::run(&command),
        Command::Migrate(command) => migrate::run(&command),
        Command::Reconcile(arguments) => reconcile::reconcile(&arguments),
        Command::Components => output::print(&components()),
        Command::Docs { reference } => output::print(&match reference {
            Reference::Configuration => reference::markdown(),
            Reference::Metrics => reference::metrics_markdown(),
            Reference::Dashboard => reference::dashboard_json(),
        }),
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

fn components() -> String {
    let mut list = format!("sluice {}\n", env!("CARGO_PKG_VERSION"));
    for class in Class::ALL {
        let _ = writeln!(list, "\n{}:", class.key());
        let components = Components::default();
        for kind in components.kinds(class).iter().filter(|kind| kind.missing.is_none()) {
            let aliases = match kind.aliases {
                [] => String::new(),
                aliases => format!(" (also {})", aliases.join(", ")),
            };
            let _ = writeln!(list, "  {}{aliases}\n      {}", kind.name, kind.summary);
        }
    }
    list
}
