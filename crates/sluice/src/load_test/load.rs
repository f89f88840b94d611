//! What is sent: `-t`, `-n`, `-m`, `-d`, `-r`, `-s`.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use sluice_load_test::report::Target;
use sluice_otlp::Signal;

use crate::arguments::seconds;

#[derive(Debug, Args)]
pub(super) struct LoadArguments {
    /// What is under load
    #[arg(short = 't', long, default_value = "traces", value_name = "TARGET")]
    pub(super) target: Target,
    /// Name of the row in reports, for instance a version
    #[arg(short = 'n', long, default_value = env!("CARGO_PKG_VERSION"))]
    pub(super) name: String,
    /// Three pipelines instead of one
    #[arg(short = 'm', long, value_name = "BOOL", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub(super) multi: bool,
    /// How long the load lasts
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "60", value_parser = load_seconds)]
    pub(super) duration: Duration,
    /// Items a second, open loop [default: traces as fast as they are answered, metrics 6667, logs 1000]
    #[arg(short = 'r', long, value_name = "ITEMS", value_parser = rate)]
    pub(super) rate: Option<f64>,
    /// Bytes of a log record's body, for -t logs-otel [default: 2000]
    #[arg(short = 's', long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) body_bytes: Option<u32>,
    /// How long the rest may take to arrive when the load has ended
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(super) drain_within: Duration,
}

impl LoadArguments {
    pub(super) fn signal(&self) -> Result<Signal> {
        let signal = match self.target {
            Target::Traces => Signal::Traces,
            Target::Metrics => Signal::Metrics,
            Target::LogsOtel => Signal::Logs,
            other => {
                let name = other.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
                bail!("-t {name} is not there yet: use traces, metrics or logs-otel");
            }
        };
        if self.body_bytes.is_some() && signal != Signal::Logs {
            bail!("-s sets the size of log bodies: use it with -t logs-otel");
        }
        Ok(signal)
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= 1e9);
    rate.ok_or_else(|| "give a number of items above 0".to_owned())
}

fn load_seconds(text: &str) -> Result<Duration, String> {
    let duration = seconds(text)?;
    if duration < Duration::from_secs(1) { Err("give 1 second or more".to_owned()) } else { Ok(duration) }
}
