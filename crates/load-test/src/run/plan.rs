//! The work: what is sent, how fast, for how long, and what is wrong with the backends meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use sluice_otlp::Signal;

use super::definition::Definition;
use super::faults::FaultSchedule;
use super::source::Source;
use super::verdict::Threshold;
use crate::generate::{Farm, Load, LogFiles, Pace, Retry, Shape};
use crate::report::{Scenario, Target};

/// Pipelines of a multi-pipeline run, as in the Kyma load test.
const SEVERAL_PIPELINES: usize = 3;

/// One call of the load test.
#[derive(Clone, Debug)]
pub struct Plan {
    pub target: Target,
    pub signal: Signal,
    pub name: String,
    pub multi: bool,
    /// What is wrong with the backends while the load lasts.
    pub faults: FaultSchedule,
    pub duration: Duration,
    /// Items a second; `None`: as the target's generators do in the Kyma load test.
    pub rate: Option<f64>,
    /// Of a log record's body; `None`: 2,000, and 400 of lines in files.
    pub body_bytes: Option<usize>,
    /// What a metric agent scrapes. `rate` sets how often.
    pub farm: Farm,
    /// What a log agent tails. `rate` and `body_bytes` go before its own.
    pub log_files: LogFiles,
    pub subjects: Vec<Definition>,
    /// Of each subject, interleaved.
    pub turns: usize,
    /// How long the backends may take to get the rest when the load has ended.
    pub drain_within: Duration,
    pub fail_if: Vec<Threshold>,
    /// The call, for the report.
    pub command: Option<String>,
}

/// How many pipelines there are, with and without `-m`.
pub fn pipelines(multi: bool) -> usize {
    if multi { SEVERAL_PIPELINES } else { 1 }
}

impl Plan {
    pub(super) fn pipelines(&self) -> usize {
        pipelines(self.multi)
    }

    /// A Kyma gateway's: 500 MiB and 1500 MiB more a pipeline.
    pub(super) fn memory_limit_mib(&self) -> u64 {
        500 + 1500 * self.pipelines() as u64
    }

    /// Items offered a second; `None`: closed loop.
    pub(super) fn rate_per_s(&self) -> Option<f64> {
        self.rate.or(match self.target {
            Target::Traces => None,
            // 2,000 producers that push once in 30 seconds each, and log/s by default.
            Target::Metrics => Some(2000.0 / 30.0 * f64::from(Shape::of(Signal::Metrics).items_per_request)),
            Target::MetricAgent => Some(self.farm.samples_per_s()),
            Target::LogsOtel => Some(1000.0),
            Target::LogAgent | Target::LogsFluentBit => self.log_files.lines_per_s,
        })
    }

    /// What offers the load. `listen` is where the subject takes requests, if that is what it is offered.
    pub(super) fn source(&self, listen: SocketAddr) -> anyhow::Result<Source> {
        Ok(match self.target {
            Target::Traces | Target::Metrics | Target::LogsOtel => Source::Otlp(self.load(listen)),
            Target::MetricAgent => Source::Farm(self.farm().open()?),
            Target::LogAgent | Target::LogsFluentBit => Source::LogFiles(self.log_files().open()?),
        })
    }

    pub(super) fn farm(&self) -> Farm {
        match self.rate {
            Some(samples_per_s) => self.farm.clone().scraped_at(samples_per_s),
            None => self.farm.clone(),
        }
    }

    fn log_files(&self) -> LogFiles {
        LogFiles {
            lines_per_s: self.rate_per_s(),
            body_bytes: self.body_bytes.unwrap_or(self.log_files.body_bytes),
            ..self.log_files.clone()
        }
    }

    /// The generators of the Kyma load test: 2 with 10 workers each and 512 spans a request; 20 with 100 workers each for
    /// metrics; for logs 4 with 8.
    pub(super) fn load(&self, target: SocketAddr) -> Load {
        let mut shape = Shape::of(self.signal);
        let (connections, streams) = match self.signal {
            Signal::Traces => (2, 10),
            Signal::Metrics => (20, 100),
            Signal::Logs => (4, 8),
        };
        if self.signal == Signal::Traces {
            shape.items_per_request = 512;
        }
        shape.body_bytes = self.body_bytes.unwrap_or(shape.body_bytes);
        Load {
            shape,
            connections,
            streams,
            pace: self.rate_per_s().map_or(Pace::Closed, |items_per_s| Pace::Open { items_per_s }),
            duration: Some(self.duration),
            retry: Retry::SDK,
            ..Load::new(self.signal, target)
        }
    }

    pub(super) fn scenario(&self) -> Scenario {
        let load = self.load(SocketAddr::from(([127, 0, 0, 1], 4317)));
        let (body_bytes, items_per_request) = match self.target {
            Target::Traces | Target::Metrics => (None, Some(u64::from(load.shape.items_per_request))),
            Target::LogsOtel => (Some(load.shape.body_bytes), Some(u64::from(load.shape.items_per_request))),
            // A scrape is a request, the other way round.
            Target::MetricAgent => (None, Some(self.farm.series_per_target())),
            Target::LogAgent | Target::LogsFluentBit => (Some(self.log_files().body_bytes), None),
        };
        Scenario {
            target: self.target,
            name: self.name.clone(),
            multi: self.multi,
            backpressure: !self.faults.is_empty(),
            faults: self.faults.in_words(),
            load_s: self.duration.as_secs_f64(),
            rate_per_s: self.rate_per_s(),
            body_bytes: body_bytes.map(|bytes| bytes as u64),
            items_per_request,
            pipelines: self.pipelines() as u32,
            command: self.command.clone(),
        }
    }
}
