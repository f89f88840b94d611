//! The work: what is sent, how fast, for how long, and what is wrong with the backends meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use sluice_otlp::Signal;

use super::definition::Definition;
use super::verdict::Threshold;
use crate::backend::{Delay, Faults};
use crate::generate::{Load, Pace, Retry, Shape};
use crate::report::{Scenario, Target};
use crate::status::Code;

/// Pipelines of a multi-pipeline run, as in the Kyma load test.
const SEVERAL_PIPELINES: usize = 3;

/// Backends that refuse: a share of the requests is answered 503 (over gRPC UNAVAILABLE), and the same share is delayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backpressure {
    /// Of all requests, 0.0 to 1.0.
    pub share: f64,
    pub delay: Duration,
}

/// One call of the load test.
#[derive(Clone, Debug)]
pub struct Plan {
    pub target: Target,
    pub signal: Signal,
    pub name: String,
    pub multi: bool,
    pub backpressure: Option<Backpressure>,
    pub duration: Duration,
    /// Items a second; `None`: as the target's generators do in the Kyma load test.
    pub rate: Option<f64>,
    /// Of a log record's body; `None`: 2,000.
    pub body_bytes: Option<usize>,
    pub subjects: Vec<Definition>,
    /// Of each subject, interleaved.
    pub turns: usize,
    /// How long the backends may take to get the rest when the load has ended.
    pub drain_within: Duration,
    pub fail_if: Vec<Threshold>,
    /// The call, for the report.
    pub command: Option<String>,
}

impl Plan {
    pub(super) fn pipelines(&self) -> usize {
        if self.multi { SEVERAL_PIPELINES } else { 1 }
    }

    /// A Kyma gateway's: 500 MiB and 1500 MiB more a pipeline.
    pub(super) fn memory_limit_mib(&self) -> u64 {
        500 + 1500 * self.pipelines() as u64
    }

    pub(super) fn faults(&self) -> Faults {
        let Some(Backpressure { share, delay }) = self.backpressure else { return Faults::none() };
        let delay = (!delay.is_zero()).then_some(Delay { share, by: delay });
        Faults { delay, ..Faults::refusing(share, Code::UNAVAILABLE) }
    }

    /// In words; `None` without faults.
    pub(super) fn faults_in_words(&self) -> Option<String> {
        let Backpressure { share, delay } = self.backpressure?;
        let percent = 100.0 * share;
        let refused = format!("{percent:.0} % of requests answered 503");
        Some(match delay.is_zero() {
            true => refused,
            false => format!("{refused}, {percent:.0} % delayed by {} s", delay.as_secs_f64()),
        })
    }

    /// Items offered a second; `None`: closed loop.
    pub(super) fn rate_per_s(&self) -> Option<f64> {
        self.rate.or(match self.signal {
            Signal::Traces => None,
            // 2,000 producers that push once in 30 seconds each, and log/s by default.
            Signal::Metrics => Some(2000.0 / 30.0 * f64::from(Shape::of(Signal::Metrics).items_per_request)),
            Signal::Logs => Some(1000.0),
        })
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
        Scenario {
            target: self.target,
            name: self.name.clone(),
            multi: self.multi,
            backpressure: self.backpressure.is_some(),
            faults: self.faults_in_words(),
            load_s: self.duration.as_secs_f64(),
            rate_per_s: self.rate_per_s(),
            body_bytes: (self.signal == Signal::Logs).then_some(load.shape.body_bytes as u64),
            items_per_request: Some(u64::from(load.shape.items_per_request)),
            pipelines: self.pipelines() as u32,
            command: self.command.clone(),
        }
    }
}
