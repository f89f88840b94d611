//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sluice_net::server::Rule;

use crate::load_test::LoadTestArguments;
use crate::log::arguments::LogCommand;
use crate::migrate::arguments::MigrateCommand;
use crate::reconcile::arguments::ReconcileArguments;
use crate::values::{seconds, up_to};

/// A telemetry pipeline engine: receives traces, metrics and logs, stores them safely, and delivers
/// them to every backend that should have them.
#[derive(Debug, Parser)]
#[command(
    name = "sluice",
    version,
    about,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  sluice demo\n  sluice validate gateway.yaml\n  \
        sluice run gateway.yaml"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// The arguments of this process.
    pub(crate) fn of_process() -> Self {
        Arguments::parse_from(with_command(std::env::args_os().collect()))
    }
}

/// A command line that begins with an option of the Collector's, which has no subcommand for it,
/// means `run`.
fn with_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let first = arguments.get(1).and_then(|first| first.to_str()).unwrap_or_default();
    if ["--config", "--set", "--feature-gates"].contains(&first.split('=').next().unwrap_or(first))
    {
        arguments.insert(1, "run".into());
    }
    arguments
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the pipelines of a configuration
    #[command(after_help = "Examples:\n  sluice run gateway.yaml\n  \
        sluice run --config base.yaml --config site.yaml\n  \
        sluice run --watch gateway.yaml     # reload when the file changes; \
        SIGHUP reloads in any case")]
    Run(RunArguments),
    /// Check a configuration and print all errors and warnings
    #[command(after_help = "Example:\n  sluice validate gateway.yaml")]
    Validate(ConfigurationArguments),
    /// Print the plan of a configuration: topology, budgets, and each delivery's promise
    #[command(after_help = "Example:\n  sluice plan gateway.yaml")]
    Plan(ConfigurationArguments),
    /// Run a demo: a gateway or an agent with healthy and sick backends, under load
    #[command(after_help = "Examples:\n  sluice demo\n  sluice demo --seconds 10 --rate 5000\n  \
        sluice demo --log-agent\n  sluice demo --metric-agent")]
    Demo(DemoArguments),
    /// Put a pipeline engine under load and report its throughput, loss and cost
    #[command(after_help = "Examples:\n  sluice load-test\n  \
        sluice load-test -t metrics -n 1.2 -m true -b true -d 1200\n  \
        sluice load-test --subject sluice --subject otelcol --turns 3 --output results\n  \
        sluice load-test --fail-if 'lost>0'\n  sluice load-test report results-1.1 results-1.2")]
    LoadTest(Box<LoadTestArguments>),
    /// Inspect telemetry on disk: list, show, replay, verify, repair, drop
    #[command(subcommand, after_help = "Example:\n  sluice log ls /var/lib/sluice")]
    Log(LogCommand),
    /// Translate another program's configuration
    #[command(
        subcommand,
        after_help = "Example:\n  sluice migrate telegraf telegraf.conf --output sluice.yaml"
    )]
    Migrate(MigrateCommand),
    /// Compare k6's summary of a test with what InfluxDB has of it: exit code 0 if all is equal, 1
    /// if something differs, 2 if it cannot be compared
    #[command(after_help = "Examples:\n  \
        sluice reconcile --summary summary.json --influxdb http://localhost:8086\n  \
        sluice reconcile --summary summary.json --influxdb http://localhost:8086 \
        --ledger http://localhost:8888")]
    Reconcile(Box<ReconcileArguments>),
    /// List the components of this build
    #[command(after_help = "Example:\n  sluice components")]
    Components,
    /// Print a reference: of all configuration options, of all metrics, or a Grafana dashboard
    #[command(after_help = "Examples:\n  sluice docs > configuration.md\n  \
        sluice docs metrics > metrics.md\n  \
        sluice docs dashboard > sluice.json")]
    Docs {
        #[arg(value_enum, default_value_t = Reference::Configuration)]
        reference: Reference,
    },
    /// Print completions for a shell
    #[command(after_help = "Example:\n  sluice completions bash > /etc/bash_completion.d/sluice")]
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
}

/// The references of `sluice docs`, from the code that reads options and writes metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reference {
    /// Every option of every component
    Configuration,
    /// Every metric that `/metrics` exposes
    Metrics,
    /// A dashboard to import into Grafana
    Dashboard,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigurationArguments {
    /// Configuration files; several are merged in their order
    #[arg(value_name = "FILE", required_unless_present = "config")]
    files: Vec<String>,
    /// A file, `env:NAME` or `yaml:TEXT`; may be given several times
    #[arg(long, value_name = "LOCATION")]
    config: Vec<String>,
    /// A value that overrides the files', as `processors.batch.timeout=2s`; may be given several
    /// times
    #[arg(long, value_name = "OPTION=VALUE", value_parser = set_location)]
    set: Vec<String>,
    /// Accepted for the Collector's command lines; Sluice has no feature gates
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Vec<String>,
}

impl ConfigurationArguments {
    /// All locations, in the order in which they are merged.
    pub(crate) fn locations(&self) -> Vec<String> {
        self.files.iter().chain(&self.config).chain(&self.set).cloned().collect()
    }
}

/// `a.b=c` as a location of configuration, as the Collector reads it.
fn set_location(text: &str) -> Result<String, &'static str> {
    let (option, value) = text.split_once('=').ok_or("it has no `=`: write `a.b=c`")?;
    let (option, value) = (option.trim(), value.trim());
    if option.is_empty() || option.split('.').any(str::is_empty) {
        return Err("it names no option: write `a.b=c`");
    }
    Ok(format!("yaml:{}: {value}", option.replace('.', "::")))
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub configuration: ConfigurationArguments,
    /// Reload when the content of a configuration file changes
    #[arg(long)]
    pub watch: bool,
    /// Number of worker threads; by default one for each core that the process may use
    #[arg(long, value_name = "COUNT", value_parser = up_to::<u16>(1024))]
    pub threads: Option<u16>,
    /// Time limit for deliveries to send their backlog after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub drain_timeout: Duration,
    /// Rule of the read scheduler to switch off, for benchmarks
    #[arg(long, value_name = "RULE", hide = true)]
    pub scheduler_without: Vec<Rule>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Duration of the load
    #[arg(long, default_value = "30", value_parser = seconds)]
    pub seconds: Duration,
    /// Spans offered a second, lines with --log-agent, samples with --metric-agent [default: 20000
    /// spans, 5000 lines, 20000 samples]
    #[arg(long)]
    pub rate: Option<u64>,
    /// Show a log agent that tails files, in place of a gateway
    #[arg(long)]
    pub log_agent: bool,
    /// Show a metric agent that scrapes Prometheus targets, in place of a gateway
    #[arg(long, conflicts_with = "log_agent")]
    pub metric_agent: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// The words of a line as a shell splits it, up to a comment, a pipe or a redirection.
    fn words(line: &str) -> Vec<&str> {
        let mut words = Vec::new();
        for (index, piece) in line.split('\'').enumerate() {
            // Every second piece stands between quotes.
            if index % 2 == 1 {
                words.push(piece);
                continue;
            }
            for word in piece.split_whitespace() {
                if ["#", "|", ">"].contains(&word) {
                    return words;
                }
                words.push(word);
            }
        }
        words
    }

    fn assert_has_examples(command: &clap::Command, path: &str) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.lines().filter(|line| line.starts_with("  "));
        let mut own = 0;
        for example in examples {
            let parsed = Arguments::try_parse_from(words(example));
            assert!(parsed.is_ok(), "{path}: `{example}`: {}", parsed.unwrap_err());
            own += usize::from(format!("{} ", example.trim()).starts_with(&format!("{path} ")));
        }
        assert!(own > 0, "no example of `{path}`");
        for child in command.get_subcommands() {
            assert_has_examples(child, &format!("{path} {}", child.get_name()));
        }
    }

    #[test]
    fn every_command_has_an_example_and_every_example_is_taken() {
        assert_has_examples(&Arguments::command(), "sluice");
    }

    #[test]
    fn files_and_config_options_are_merged_in_order() {
        let arguments =
            Arguments::try_parse_from(["sluice", "validate", "a.yaml", "--config", "b.yaml"])
                .unwrap();
        let Command::Validate(configuration) = arguments.command else { panic!("validate") };
        assert_eq!(configuration.locations(), ["a.yaml", "b.yaml"]);
        assert!(Arguments::try_parse_from(["sluice", "run"]).is_err(), "a configuration is needed");
    }

    /// Scenario: command lines of the Collector, which has no `run`. Guarantee: they mean `run`,
    /// and `--set` comes after all files, whatever its place.
    #[test]
    fn command_lines_of_the_collector_are_taken() {
        for line in [
            "sluice --config a.yaml --set a.b=c --set exporters.otlp/2.tls.insecure=true",
            "sluice --set=a.b=c --set=exporters.otlp/2.tls.insecure=true --config=a.yaml",
            "sluice --feature-gates=-x,+y --set a.b=c --set exporters.otlp/2.tls.insecure=true \
             --config a.yaml",
        ] {
            let words = with_command(line.split_whitespace().map(OsString::from).collect());
            let Command::Run(run) = Arguments::try_parse_from(words).unwrap().command else {
                panic!("{line}")
            };
            let expected =
                ["a.yaml", "yaml:a::b: c", "yaml:exporters::otlp/2::tls::insecure: true"];
            assert_eq!(run.configuration.locations(), expected, "{line}");
            assert_eq!(run.configuration.feature_gates.is_empty(), !line.contains("gates"));
        }
        for wrong in ["a.b", "=c", "a..b=c", ".=c"] {
            assert!(set_location(wrong).is_err(), "{wrong}");
        }
        assert_eq!(set_location(" a.b = c=d "), Ok("yaml:a::b: c=d".to_owned()));
    }
}
