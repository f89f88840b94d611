//! A turn second by second: what the subject says of itself, what it takes, and what arrives.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::definition::{MetricNames, Setting};
use super::source::RunningSource;
use crate::backend::Backend;
use crate::latency::Latency;
use crate::report::Sample;
use crate::scrape::Scrape;
use crate::subject::{Subject, Usage, cpu_of_threads, usage_of_process};

/// Threads of the backends' runtime have this name, which tells their CPU time from the generator's. At most 15 bytes.
pub(super) const BACKEND_THREADS: &str = "load-backend";

/// One look.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) at: Instant,
    /// Items taken, by the subject's own count.
    pub(super) received: Option<f64>,
    pub(super) queue: Option<f64>,
    /// Items that the subject says it holds.
    pub(super) held: Option<f64>,
    /// `None`: it has ended.
    pub(super) subject: Option<Usage>,
    pub(super) bench: Option<Usage>,
    pub(super) backends_cpu: Duration,
    /// Different items at each backend.
    pub(super) arrived: Vec<u64>,
    /// Items acknowledged to the generator.
    pub(super) acknowledged: u64,
    /// Items that were sent and not turned away.
    pub(super) sent: u64,
}

pub(super) struct Sampler<'a> {
    metrics: SocketAddr,
    names: MetricNames,
    pub(super) backends: &'a [Backend],
    pub(super) looks: Vec<Look>,
    pub(super) samples: Vec<Sample>,
    latencies_before: Histogram<u64>,
}

impl<'a> Sampler<'a> {
    pub(super) fn new(setting: &Setting, names: &MetricNames, backends: &'a [Backend]) -> Self {
        let fill = |name: &Option<String>| name.as_ref().map(|name| setting.fill(name));
        let names = MetricNames { received: fill(&names.received), queue: fill(&names.queue), held: fill(&names.held) };
        let latencies_before = all_latencies(backends);
        Sampler { metrics: setting.metrics, names, backends, looks: Vec::new(), samples: Vec::new(), latencies_before }
    }

    pub(super) async fn look(&self, subject: &Subject, load: Option<&RunningSource>) -> Look {
        let has_metrics = [&self.names.received, &self.names.queue, &self.names.held].iter().any(|name| name.is_some());
        // One that is too busy to answer leaves a gap in this second.
        let scrape = if has_metrics { Scrape::fetch(self.metrics).await.ok() } else { None };
        let value = |name: &Option<String>| scrape.as_ref()?.sum(name.as_ref()?, &[]);
        // A counter that nothing was counted in yet is not there.
        let received =
            scrape.as_ref().and(self.names.received.as_ref()).map(|_| value(&self.names.received).unwrap_or(0.0));
        Look {
            at: Instant::now(),
            received,
            queue: value(&self.names.queue),
            held: value(&self.names.held),
            subject: subject.usage(),
            bench: usage_of_process(std::process::id()),
            backends_cpu: cpu_of_threads(BACKEND_THREADS),
            arrived: self.backends.iter().map(Backend::unique_items).collect(),
            acknowledged: load.map_or(0, |load| load.progress().accepted()),
            sent: load.map_or(0, |load| load.progress().offered().saturating_sub(load.progress().turned_away())),
        }
    }

    /// The first look, before the load.
    pub(super) async fn begin(&mut self, subject: &Subject) {
        let look = self.look(subject, None).await;
        self.looks.push(look);
    }

    /// A look while the load runs, and the sample of the time since the one before.
    pub(super) async fn sample(&mut self, subject: &Subject, load: &RunningSource) {
        let look = self.look(subject, Some(load)).await;
        let (Some(first), Some(before)) = (self.looks.first(), self.looks.last()) else { return };
        let elapsed_s = (look.at - before.at).as_secs_f64().max(1e-3);
        let latencies = all_latencies(self.backends);
        let mut since = latencies.clone();
        // Fails only where the one before holds more, which it never does.
        let _ = since.subtract(&self.latencies_before);
        let latency = Latency::of(&since);
        let cpu_cores = match (look.subject, before.subject) {
            (Some(now), Some(then)) => Some(now.cpu.saturating_sub(then.cpu).as_secs_f64() / elapsed_s),
            _ => None,
        };
        self.samples.push(Sample {
            t_s: (look.at - first.at).as_secs_f64(),
            received_per_s: Some(look.taken_since(before) / elapsed_s),
            exported_per_s: Some((total(&look.arrived) - total(&before.arrived)) / elapsed_s),
            queue: look.queue,
            backlog_items: Some(look.backlog()),
            memory_bytes: look.subject.map(|usage| usage.rss_bytes as f64),
            cpu_cores,
            latency_p99_ms: (latency.count > 0).then(|| milliseconds(latency.p99)),
        });
        self.latencies_before = latencies;
        self.looks.push(look);
    }
}

impl Look {
    /// Items on their way: sent and not at every backend.
    fn backlog(&self) -> f64 {
        let arrived = self.arrived.iter().min().copied().unwrap_or(0);
        self.sent.saturating_sub(arrived) as f64
    }

    /// Items that the subject has taken meanwhile: by its own count, else by its answers.
    pub(super) fn taken_since(&self, before: &Look) -> f64 {
        match (self.received, before.received) {
            (Some(now), Some(then)) => now - then,
            _ => self.acknowledged.saturating_sub(before.acknowledged) as f64,
        }
    }
}

pub(super) fn total(arrived: &[u64]) -> f64 {
    arrived.iter().sum::<u64>() as f64
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(super) fn all_latencies(backends: &[Backend]) -> Histogram<u64> {
    let mut all = crate::latency::new_histogram();
    for backend in backends {
        // All have the same bounds.
        let _ = all.add(backend.latency_histogram());
    }
    all
}
