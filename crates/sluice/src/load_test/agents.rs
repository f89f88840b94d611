//! The farm that agents scrape (`--farm-…`) and the files that they tail (`--log-…`).

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use sluice_load_test::generate::{Farm, LogFiles};
use sluice_load_test::report::{SubjectRecord, Target};
use sluice_load_test::run::Definition;

use crate::values::{number, seconds, up_to};

/// Each group is there where one of its options is given.
#[derive(Debug, Args)]
pub(super) struct AgentArguments {
    #[command(flatten)]
    farm: Option<FarmArguments>,
    #[command(flatten)]
    logs: Option<LogArguments>,
}

#[derive(Debug, Args)]
struct FarmArguments {
    /// Prometheus targets of -t metricagent
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = up_to::<u16>(1_000))]
    farm_targets: u16,
    /// Metrics of each target
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    #[arg(value_parser = up_to::<u32>(1_000_000))]
    farm_metrics: u32,
    /// Series of each metric
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = up_to::<u32>(1_000_000))]
    farm_series: u32,
    /// Number of metrics of each target that are counters; the others are gauges
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    farm_counters: u32,
    /// Interval at which all series are replaced by new ones; 0: never
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    farm_churn: Duration,
}

#[derive(Debug, Args)]
struct LogArguments {
    /// Pods that write log files for -t logagent and -t logs-fluentbit
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = up_to::<u16>(1_000))]
    log_pods: u16,
    /// Size at which a log file is rotated; five files of each pod are kept
    #[arg(long, value_name = "MIB", default_value = "10")]
    #[arg(value_parser = number(0.01..=10_240.0, "give a number of MiB from 0.01 to 10240"))]
    log_rotate: f64,
    /// Interval at which the sizes of log files are checked
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    log_rotate_every: Duration,
}

impl AgentArguments {
    /// Fails if an option has no effect on any of the targets.
    pub(super) fn check(&self, targets: &[Target]) -> Result<()> {
        if self.farm.is_some() && !targets.contains(&Target::MetricAgent) {
            bail!(
                "the options --farm-… describe what a metric agent scrapes: use them with -t \
                 metricagent"
            );
        }
        if self.logs.is_some() && !targets.iter().any(|target| target.tails_files()) {
            bail!(
                "the options --log-… describe what a log agent tails: use them with -t logagent or \
                 -t logs-fluentbit"
            );
        }
        Ok(())
    }

    pub(super) fn farm(&self) -> Farm {
        let Some(arguments) = &self.farm else { return Farm::default() };
        Farm {
            targets: arguments.farm_targets.into(),
            metrics: arguments.farm_metrics,
            series: arguments.farm_series,
            counters: arguments.farm_counters,
            churn_every: Some(arguments.farm_churn).filter(|every| !every.is_zero()),
            ..Farm::default()
        }
    }

    pub(super) fn log_files(&self) -> LogFiles {
        let Some(arguments) = &self.logs else { return LogFiles::default() };
        LogFiles {
            pods: arguments.log_pods.into(),
            rotate_bytes: (arguments.log_rotate * f64::from(1 << 20)) as u64,
            rotate_every: arguments.log_rotate_every,
            ..LogFiles::default()
        }
    }
}

/// The subjects that can do the target, and those that cannot: an error without `-t all`.
pub(super) fn able(
    subjects: &[Definition],
    target: Target,
    is_one_of_all: bool,
) -> Result<(Vec<Definition>, Vec<SubjectRecord>)> {
    let (mut able, mut unable) = (Vec::new(), Vec::new());
    for subject in subjects {
        match subject.require_target(target) {
            Ok(()) => able.push(subject.clone()),
            Err(error) if !is_one_of_all => return Err(error),
            Err(error) => {
                let (name, cannot) = (subject.name.clone(), Some(error.to_string()));
                unable.push(SubjectRecord { name, cannot, ..SubjectRecord::default() });
            }
        }
    }
    Ok((able, unable))
}
