//! The load: `-t`, `-n`, `-m`, `-d`, `-r`, `-s` and the options of requests.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use sluice_load_test::Pace;
use sluice_load_test::report::Target;
use sluice_load_test::run::Requests;
use sluice_otlp::Signal;

use crate::values::{number, seconds, up_to};

/// Default duration of a run.
const DURATION: Duration = Duration::from_secs(60);
/// Default duration of one try of a search.
const TRY: Duration = Duration::from_secs(10);

/// Not a `Vec` by name: clap would take it for an option that is given several times.
type Targets = Vec<Target>;

#[derive(Debug, Args)]
pub(super) struct LoadArguments {
    /// The load: a kind of telemetry, or files and endpoints that an agent reads
    #[arg(short = 't', long, default_value = "traces")]
    #[arg(value_name = "TARGET", value_parser = targets())]
    target: Targets,
    /// Name of the row in reports, for instance a version
    #[arg(short = 'n', long, default_value = env!("CARGO_PKG_VERSION"))]
    pub(super) name: String,
    /// Three pipelines instead of one
    #[arg(short = 'm', long, value_name = "BOOL")]
    #[arg(num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub(super) multi: bool,
    /// Duration of the load; with --find-limit, of each try [default: 60, with --find-limit 10]
    #[arg(short = 'd', long, value_name = "SECONDS", value_parser = load_seconds)]
    duration: Option<Duration>,
    /// Items a second, sent at a fixed rate even if answers are late (open loop) [default: traces
    /// as fast as they are answered, metrics 6667, metricagent one scrape of every target in 30 s,
    /// logs-otel 1000, lines of log files as fast as they arrive, k6 10000 HTTP requests]
    #[arg(short = 'r', long, value_name = "ITEMS")]
    #[arg(value_parser = number(f64::MIN_POSITIVE..=1e9, "give a number of items above 0"))]
    rate: Option<f64>,
    /// Send the next request when one is answered, as fast as possible (closed loop)
    #[arg(long, conflicts_with = "rate")]
    closed_loop: bool,
    /// Bytes of a log record's body [default: logs-otel 2000, lines of log files 400]
    #[arg(short = 's', long, value_name = "BYTES", value_parser = up_to::<u32>(1_000_000))]
    pub(super) body_bytes: Option<u32>,
    #[command(flatten)]
    pub(super) requests: Requests,
    /// Time limit for outstanding items to arrive after the load has ended
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(super) drain_within: Duration,
}

/// `-t`: one, or all of them in the order in which they are run.
fn targets() -> impl TypedValueParser<Value = Vec<Target>> {
    let each = Target::value_variants().iter().filter_map(Target::to_possible_value);
    let all =
        PossibleValue::new("all").help("each of these in turn but k6, whose table is another");
    PossibleValuesParser::new(each.chain([all])).map(|name| match Target::from_str(&name, false) {
        Ok(target) => vec![target],
        Err(_) => {
            let all = Target::value_variants().iter().copied();
            all.filter(|target| *target != Target::K6).collect()
        }
    })
}

impl LoadArguments {
    /// The targets in the order in which they are run. Fails if an option has no effect on any.
    pub(super) fn targets(&self) -> Result<&[Target]> {
        let targets = &self.target;
        if let Some(option) = self.option_of_requests()
            && !targets.iter().any(|target| target.takes_requests())
        {
            let target = targets[0];
            bail!(
                "{option} is about OTLP requests: -t {target} sends none, use -t traces, metrics \
                 or logs-otel"
            );
        }
        let has_logs = targets.iter().any(|target| target.signal() == Signal::Logs);
        if self.body_bytes.is_some() && !has_logs {
            bail!(
                "-s sets the size of log bodies: use it with -t logs-otel, logagent or \
                 logs-fluentbit"
            );
        }
        Ok(targets)
    }

    /// The first option that only OTLP requests can have.
    fn option_of_requests(&self) -> Option<&'static str> {
        let options = [
            (self.requests.protocol.is_some(), "--protocol"),
            (self.requests.encoding.is_some(), "--compression"),
            (self.requests.items.is_some(), "--batch-size"),
            (self.requests.connections.is_some(), "--connections"),
            (self.requests.streams.is_some(), "--streams"),
            (self.closed_loop, "--closed-loop"),
        ];
        options.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
    }

    pub(super) fn duration(&self, is_search: bool) -> Duration {
        self.duration.unwrap_or(if is_search { TRY } else { DURATION })
    }

    pub(super) fn pace(&self) -> Option<Pace> {
        match self.rate {
            Some(items_per_s) => Some(Pace::Open { items_per_s }),
            None => self.closed_loop.then_some(Pace::Closed),
        }
    }
}

fn load_seconds(text: &str) -> Result<Duration, String> {
    let duration = Some(seconds(text)?).filter(|duration| *duration >= Duration::from_secs(1));
    duration.ok_or_else(|| "give 1 second or more".to_owned())
}
