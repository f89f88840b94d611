//! Reads configurations; the commands `validate` and `plan`.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use sluice_config::{Diagnostics, Sources, SystemEnvironment};
use sluice_engine::{Plan, plan};

use crate::arguments::ConfigurationArguments;
use crate::output::{self, complain};
use crate::text;

/// As [`load`], with warnings about the command line.
pub(crate) fn load_for(arguments: &ConfigurationArguments) -> (Result<Plan>, Sources) {
    warn_of_feature_gates(arguments);
    load(&arguments.locations())
}

fn warn_of_feature_gates(arguments: &ConfigurationArguments) {
    for gates in &arguments.feature_gates {
        complain!("warning: `--feature-gates {gates}` has no effect: Sluice has no feature gates");
    }
}

/// Reads, checks and plans. Prints errors and warnings, and returns a plan if there are no errors.
pub(crate) fn load(locations: &[String]) -> (Result<Plan>, Sources) {
    shown(plan::load(locations, &SystemEnvironment))
}

fn shown((plan, diagnostics): (Option<Plan>, Diagnostics)) -> (Result<Plan>, Sources) {
    let text = diagnostics.render(std::io::stderr().is_terminal());
    if !text.is_empty() {
        complain!("{text}");
    }
    let plan = plan.ok_or_else(|| {
        let errors = text::counted(diagnostics.errors().count() as u64, "error");
        anyhow!("the configuration has {errors}")
    });
    (plan, diagnostics.sources)
}

pub(crate) fn validate(arguments: &ConfigurationArguments) -> Result<ExitCode> {
    warn_of_feature_gates(arguments);
    let plan = shown(plan::validate(&arguments.locations(), &SystemEnvironment)).0?;
    let receivers = text::counted(plan.receivers.len() as u64, "receiver");
    let pipelines = text::counted(plan.pipelines.len() as u64, "pipeline");
    let deliveries = match plan.deliveries.len() {
        1 => "1 delivery".to_owned(),
        many => format!("{many} deliveries"),
    };
    output::print(&format!("valid: {receivers}, {pipelines}, {deliveries}\n"))
}

pub(crate) fn plan(arguments: &ConfigurationArguments) -> Result<ExitCode> {
    let described = load_for(arguments).0?.describe();
    output::print(&match text::terminal_width() {
        Some(width) => text::wrapped(&described, width),
        None => described,
    })
}
