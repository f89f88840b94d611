//! What agents scrape and tail: `--farm-…` for `-t metricagent`, `--log-…` for `-t logagent` and `-t logs-fluentbit`.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use sluice_load_test::generate::{Farm, LogFiles};
use sluice_load_test::report::Target;
use sluice_load_test::run::{BUILT_IN_NAMES, Definition, DefinitionError, Unable};

use super::load::name;
use super::subjects::OURS;
use crate::arguments::seconds;

#[derive(Debug, Args)]
pub(super) struct AgentArguments {
    /// Prometheus targets of -t metricagent [default: 20]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    farm_targets: Option<u16>,
    /// Metrics of each target [default: 1000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    farm_metrics: Option<u32>,
    /// Series of each metric [default: 10]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    farm_series: Option<u32>,
    /// How many of the metrics are counters, the others being gauges [default: 0]
    #[arg(long, value_name = "COUNT")]
    farm_counters: Option<u32>,
    /// All series are replaced by new ones so often; 0: never [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    farm_churn: Option<Duration>,
    /// Pods that write log files for -t logagent and -t logs-fluentbit [default: 10]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    log_pods: Option<u16>,
    /// Size at which a log file is rotated; five files of each pod are kept [default: 10]
    #[arg(long, value_name = "MIB", value_parser = mebibytes)]
    log_rotate: Option<u64>,
    /// How often the sizes of log files are looked at [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    log_rotate_every: Option<Duration>,
}

fn mebibytes(text: &str) -> Result<u64, String> {
    let mebibytes = text.parse().ok().filter(|mebibytes: &f64| (0.01..=10_240.0).contains(mebibytes));
    let mebibytes = mebibytes.ok_or_else(|| "give a number of MiB from 0.01 to 10240".to_owned())?;
    Ok((mebibytes * f64::from(1 << 20)) as u64)
}

impl AgentArguments {
    /// An error where an option has no effect on any of the targets.
    pub(super) fn check(&self, targets: &[Target]) -> Result<()> {
        let farm = [self.farm_metrics, self.farm_series, self.farm_counters].iter().any(Option::is_some)
            || self.farm_targets.is_some()
            || self.farm_churn.is_some();
        if farm && !targets.contains(&Target::MetricAgent) {
            bail!("the options --farm-… say what a metric agent scrapes: use them with -t metricagent");
        }
        let logs = self.log_pods.is_some() || self.log_rotate.is_some() || self.log_rotate_every.is_some();
        if logs && !targets.iter().any(|target| matches!(target, Target::LogAgent | Target::LogsFluentBit)) {
            bail!("the options --log-… say what a log agent tails: use them with -t logagent or -t logs-fluentbit");
        }
        Ok(())
    }

    pub(super) fn farm(&self) -> Farm {
        let default = Farm::default();
        Farm {
            targets: self.farm_targets.map_or(default.targets, usize::from),
            metrics: self.farm_metrics.unwrap_or(default.metrics),
            series: self.farm_series.unwrap_or(default.series),
            counters: self.farm_counters.unwrap_or(default.counters),
            churn_every: self.farm_churn.map_or(default.churn_every, |every| (!every.is_zero()).then_some(every)),
            ..default
        }
    }

    /// `body_bytes` is -s.
    pub(super) fn log_files(&self, body_bytes: Option<u32>) -> LogFiles {
        let default = LogFiles::default();
        LogFiles {
            pods: self.log_pods.map_or(default.pods, usize::from),
            rotate_bytes: self.log_rotate.unwrap_or(default.rotate_bytes),
            rotate_every: self.log_rotate_every.unwrap_or(default.rotate_every),
            body_bytes: body_bytes.map_or(default.body_bytes, |bytes| bytes as usize),
            ..default
        }
    }
}

/// The subjects that can be tested in this way, and those that cannot with the reason. The latter is an error unless
/// `-t all` was given.
pub(super) fn able(
    subjects: &[Definition],
    target: Target,
    is_one_of_all: bool,
) -> Result<(Vec<Definition>, Vec<Unable>)> {
    let (mut able, mut unable) = (Vec::new(), Vec::new());
    for subject in subjects {
        match subject.require_target(target) {
            Ok(()) => able.push(subject.clone()),
            Err(error) => unable.push(Unable { name: subject.name.clone(), reason: reason(subject, target, &error) }),
        }
    }
    match unable.first() {
        Some(Unable { reason, .. }) if !is_one_of_all => bail!("{reason}"),
        _ => Ok((able, unable)),
    }
}

fn reason(subject: &Definition, target: Target, error: &DefinitionError) -> String {
    if subject.name != OURS {
        return error.to_string();
    }
    let others: Vec<_> = BUILT_IN_NAMES
        .iter()
        .filter(|name| Definition::built_in(name).is_ok_and(|other| other.targets().contains(&target)))
        .map(|name| format!("--subject {name}"))
        .collect();
    let (does, name) =
        (if target == Target::MetricAgent { "scrapes no targets" } else { "tails no files" }, name(target));
    format!("Sluice has no agent yet, it {does}: -t {name} can be tested with {}", others.join(", "))
}
