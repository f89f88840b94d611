//! What can be said on the command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::load_test::LoadTestArguments;
use crate::log::arguments::LogCommand;

/// A telemetry pipeline engine: receives traces, metrics and logs, holds them safely, and delivers each to every backend
/// that should have it.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, about, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run pipelines as a configuration says
    #[command(
        after_help = "Examples:\n  sluice run gateway.yaml\n  sluice run --config base.yaml --config site.yaml\n  \
        sluice run --watch gateway.yaml     # reload when the file changes; SIGHUP reloads in any case"
    )]
    Run(RunArguments),
    /// Check a configuration and say everything that is wrong with it
    #[command(after_help = "Example:\n  sluice validate gateway.yaml")]
    Validate(ConfigurationArguments),
    /// Print what a configuration comes to: topology, budgets, and each delivery's promise
    #[command(after_help = "Example:\n  sluice plan gateway.yaml")]
    Plan(ConfigurationArguments),
    /// See it work: a gateway with a healthy, a failing and a dead backend, under load
    #[command(after_help = "Examples:\n  sluice demo\n  sluice demo --seconds 10 --rate 5000")]
    Demo(DemoArguments),
    /// Put a pipeline engine under load and report what it takes, loses and costs
    #[command(
        after_help = "Examples:\n  sluice load-test\n  sluice load-test -t metrics -n 1.2 -m true -b true -d 1200\n  \
        sluice load-test --subject sluice --subject otelcol --turns 3 --output results\n  \
        sluice load-test --fail-if 'lost>0'\n  sluice load-test report results-1.1 results-1.2"
    )]
    LoadTest(Box<LoadTestArguments>),
    /// Look into a directory of held telemetry: list, show, replay, verify, drop
    #[command(subcommand)]
    Log(LogCommand),
    /// List the components of this build
    Components,
    /// Print the reference of all configuration options as Markdown
    Docs,
    /// Print completions for a shell
    #[command(after_help = "Example:\n  sluice completions bash > /etc/bash_completion.d/sluice")]
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConfigurationArguments {
    /// Configuration files; several are merged in their order
    #[arg(value_name = "FILE", required_unless_present = "config")]
    files: Vec<String>,
    /// A file, or `env:NAME`, `yaml:TEXT`; may be given several times
    #[arg(long, value_name = "LOCATION")]
    config: Vec<String>,
}

impl ConfigurationArguments {
    /// All locations, in the order in which they are merged.
    pub(crate) fn locations(&self) -> Vec<String> {
        self.files.iter().chain(&self.config).cloned().collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub configuration: ConfigurationArguments,
    /// Reload when the content of a configuration file changes
    #[arg(long)]
    pub watch: bool,
    /// Threads that do the work; by default one a core that the process may use
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// How long deliveries may go on sending after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub drain_timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// How long the load lasts
    #[arg(long, default_value = "30", value_parser = seconds)]
    pub seconds: Duration,
    /// Spans offered a second
    #[arg(long, default_value_t = 20_000)]
    pub rate: u64,
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.trim_end_matches('s').parse().map_err(|_| "give a number of seconds".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("give 0 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn files_and_config_options_are_merged_in_order() {
        let arguments = Arguments::try_parse_from(["sluice", "validate", "a.yaml", "--config", "b.yaml"]).unwrap();
        let Command::Validate(configuration) = arguments.command else { panic!("validate") };
        assert_eq!(configuration.locations(), ["a.yaml", "b.yaml"]);
        assert!(Arguments::try_parse_from(["sluice", "run"]).is_err(), "a configuration is needed");
    }
}
