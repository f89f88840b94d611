//! The source of samples: the generator, on threads of its own, or k6 itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::database::own_usage;
use super::process::K6;
use crate::generate::k6::{COUNTERS, Output, Samples, Written};
use crate::run::machine::Cores;
use crate::run::plan::Plan;
use crate::run::runtime::OwnRuntime;
use crate::subject::Usage;

/// At most 15 bytes.
const THREADS: &str = "k6-generator";

pub(super) enum Source {
    Generator(Generator),
    K6(Box<K6>),
}

pub(super) struct Generator {
    written: Arc<Mutex<Written>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<()>>,
    _runtime: OwnRuntime,
}

/// A source's knowledge of its writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Flushes {
    pub(super) number: Option<u64>,
    pub(super) failed: Option<u64>,
    pub(super) mean: Option<Duration>,
    pub(super) max: Option<Duration>,
    /// The first reason of one that failed.
    pub(super) failure: Option<String>,
}

impl Source {
    pub(super) async fn start(plan: &Plan, cores: &Cores, output: Output) -> Result<Source> {
        if let Some(binary) = &plan.k6.k6 {
            return Ok(Source::K6(Box::new(K6::start(plan, binary, cores, output).await?)));
        }
        let requests_per_s = plan.rate_per_s().unwrap_or_default();
        let samples = Samples { output, requests_per_s };
        let runtime = OwnRuntime::start(cores.of_bench(), THREADS)?;
        let (written, (stop, stopped)) = (Arc::default(), watch::channel(false));
        let task = runtime.spawn(samples.run(stopped, Arc::clone(&written)));
        Ok(Source::Generator(Generator { written, stop, task, _runtime: runtime }))
    }

    /// `generator`, or k6 with its version.
    pub(super) fn name(&self) -> String {
        match self {
            Source::Generator(_) => "generator".to_owned(),
            Source::K6(k6) => k6.name(),
        }
    }

    /// Of the generator, the memory is that of the whole bench.
    pub(super) fn usage(&self) -> Option<Usage> {
        match self {
            Source::Generator(_) => own_usage(THREADS),
            Source::K6(k6) => k6.usage(),
        }
    }

    /// Ends the load. k6 ends by its own clock, and at once where it was interrupted.
    pub(super) fn stop(&mut self, was_interrupted: bool) {
        match self {
            Source::Generator(generator) => {
                generator.stop.send_replace(true);
            }
            Source::K6(k6) if was_interrupted => k6.abandon(),
            Source::K6(_) => {}
        }
    }

    /// Nothing more will be written.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Source::Generator(generator) => generator.task.is_finished(),
            Source::K6(k6) => k6.is_over(),
        }
    }

    /// Fails if it could not write, or k6 failed. To be asked once, when it is over.
    pub(super) async fn outcome(&mut self) -> Result<()> {
        match self {
            Source::Generator(generator) => (&mut generator.task).await?,
            Source::K6(k6) => k6.outcome(),
        }
    }

    /// HTTP requests until now; `None`: k6 says it at its end only.
    pub(super) fn requests_so_far(&self) -> Option<u64> {
        match self {
            Source::Generator(generator) => Some(generator.written.lock().requests),
            Source::K6(_) => None,
        }
    }

    /// The sums of its counters; none if k6 did not come to its end.
    pub(super) fn sums(&self) -> Vec<(String, f64)> {
        match self {
            Source::Generator(generator) => {
                let sums = generator.written.lock().sums;
                let pairs = COUNTERS.iter().zip(sums);
                pairs.map(|(name, sum)| ((*name).to_owned(), sum as f64)).collect()
            }
            Source::K6(k6) => k6.counters().to_vec(),
        }
    }

    /// Samples of all metrics, if they are known.
    pub(super) fn samples(&self) -> Option<u64> {
        match self {
            Source::Generator(generator) => Some(generator.written.lock().samples),
            Source::K6(k6) => k6.samples(),
        }
    }

    /// HTTP requests whose samples it gave up, if it knows.
    pub(super) fn requests_dropped(&self) -> Option<u64> {
        match self {
            Source::Generator(generator) => Some(generator.written.lock().requests_dropped),
            Source::K6(_) => None,
        }
    }

    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Source::Generator(generator) => Some(generator.written.lock().bytes),
            Source::K6(_) => None,
        }
    }

    pub(super) fn flushes(&self) -> Flushes {
        match self {
            Source::Generator(generator) => {
                let written = generator.written.lock();
                let number = u32::try_from(written.flushes).unwrap_or(u32::MAX);
                Flushes {
                    number: Some(written.flushes),
                    failed: Some(written.flushes_failed),
                    mean: written.flush_time.checked_div(number),
                    max: (number > 0).then_some(written.flush_max),
                    failure: written.failure.clone(),
                }
            }
            Source::K6(k6) => k6.flushes(),
        }
    }
}
