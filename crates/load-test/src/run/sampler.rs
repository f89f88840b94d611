//! A turn second by second: the subject's metrics and resources, and arrivals at the backends.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::{Instant, sleep};

use super::definition::{Metrics, PipelineMetrics, Selector};
use crate::backend::Backend;
use crate::generate::{LoadReport, RunningLoad};
use crate::latency::{Latency, milliseconds, new_histogram};
use crate::report::{PipelineKpis, Sample};
use crate::scrape::Scrape;
use crate::subject::{Subject, Usage, cpu_of_threads, usage_of_process};

/// Tells the CPU time of the backends' threads from the generator's. At most 15 bytes.
pub(super) const BACKEND_THREADS: &str = "load-backend";

#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) processes: Processes,
    /// Items taken, by the subject's own count.
    pub(super) received: Option<f64>,
    pub(super) queue: Option<f64>,
    /// Items that the subject holds, by its own count.
    pub(super) held: Option<f64>,
    /// Queue, held and dropped of each pipeline, by the subject's own count.
    pub(super) pipelines: Vec<PipelineKpis>,
    pub(super) backends_cpu: Duration,
    /// Distinct items at each backend.
    pub(super) arrived: Vec<u64>,
    /// Bytes of the requests that the backends took.
    pub(super) arrived_bytes: u64,
    /// By the subject's own count.
    pub(super) received_bytes: Option<f64>,
    pub(super) exported_bytes: Option<f64>,
    /// By its own count, else the size of its files; only where bytes are counted.
    pub(super) buffer_bytes: Option<f64>,
    /// Items acknowledged to the generator.
    pub(super) acknowledged: u64,
    /// Items that were sent and not turned away.
    pub(super) sent: u64,
}

pub(super) struct Sampler<'a> {
    pub(super) addr: SocketAddr,
    pub(super) metrics: Metrics,
    /// True for a subject that tails files.
    pub(super) counts_bytes: bool,
    pub(super) backends: &'a [Backend],
    pub(super) readings: Vec<Reading>,
    pub(super) samples: Vec<Sample>,
    pub(super) latencies_before: Histogram<u64>,
}

impl Sampler<'_> {
    pub(super) async fn read(&self, subject: &Subject, load: Option<&RunningLoad>) -> Reading {
        let names = &self.metrics;
        // A subject without metrics, or too busy to answer, has no values for this second.
        let scrape = Scrape::fetch(self.addr, &names.path).await.ok();
        let value = |selector: &Option<Selector>| selector.as_ref()?.read(scrape.as_ref()?);
        // A counter is absent until it has counted something.
        let is_told = scrape.is_some() && names.received.is_some();
        let received = is_told.then(|| value(&names.received).unwrap_or(0.0));
        let on_disk = || self.counts_bytes.then(|| size_below(subject.folder(), false) as f64);
        let progress = load.map(|load| {
            let report = load.report();
            (report.accepted, report.offered.saturating_sub(report.refused + report.failed))
        });
        let (acknowledged, sent) = progress.unwrap_or_default();
        let of_pipeline = |one: &PipelineMetrics| PipelineKpis {
            queue: value(&one.queue),
            held: value(&one.held),
            dropped: value(&one.dropped),
            ..PipelineKpis::default()
        };
        Reading {
            processes: Processes::now(subject),
            received,
            queue: value(&names.queue),
            held: value(&names.held),
            pipelines: names.pipelines.iter().map(of_pipeline).collect(),
            backends_cpu: cpu_of_threads(BACKEND_THREADS),
            arrived: self.backends.iter().map(Backend::unique_items).collect(),
            arrived_bytes: self.backends.iter().map(|backend| backend.counts().bytes).sum(),
            received_bytes: value(&names.received_bytes),
            exported_bytes: value(&names.exported_bytes),
            buffer_bytes: value(&names.buffer_bytes).or_else(on_disk),
            acknowledged,
            sent,
        }
    }

    /// Adds a reading and the sample since the last one. The first reading is from before the load.
    pub(super) async fn sample(&mut self, subject: &Subject, load: &RunningLoad) {
        let reading = self.read(subject, Some(load)).await;
        let (Some(first), Some(before)) = (self.readings.first(), self.readings.last()) else {
            return;
        };
        let elapsed_s = reading.processes.seconds_since(&before.processes);
        let cpu_s = cpu_s_since(before.processes.subject, reading.processes.subject);
        let latencies = all_latencies(self.backends);
        let mut since = latencies.clone();
        // Fails only if the earlier histogram holds more, which never happens.
        let _ = since.subtract(&self.latencies_before);
        let latency = Latency::of(&since);
        let everywhere = reading.arrived.iter().min().copied().unwrap_or(0);
        self.samples.push(Sample {
            t_s: reading.processes.seconds_since(&first.processes),
            received_per_s: Some(reading.taken_since(before) / elapsed_s),
            exported_per_s: Some((total(&reading.arrived) - total(&before.arrived)) / elapsed_s),
            queue: reading.queue,
            backlog_items: Some(reading.sent.saturating_sub(everywhere) as f64),
            memory_bytes: reading.processes.subject.map(|usage| usage.rss_bytes as f64),
            cpu_cores: cpu_s.map(|cpu_s| cpu_s / elapsed_s),
            latency_p99_ms: (latency.count > 0).then(|| milliseconds(latency.p99)),
        });
        self.latencies_before = latencies;
        self.readings.push(reading);
    }

    /// Items that the subject has taken while the load ran.
    pub(super) fn taken(&self) -> f64 {
        self.readings.windows(2).map(|pair| pair[1].taken_since(&pair[0])).sum()
    }
}

impl Reading {
    /// Items that the subject has taken since the reading just before: by its own count, which
    /// begins again at 0 when the subject is started again, else by its answers.
    fn taken_since(&self, before: &Reading) -> f64 {
        match (self.received, before.received) {
            (Some(now), Some(then)) => grown(now, then),
            _ => self.acknowledged.saturating_sub(before.acknowledged) as f64,
        }
    }
}

/// Growth of a counter that begins again at 0 with its process.
pub(super) fn grown(now: f64, before: f64) -> f64 {
    if now >= before { now - before } else { now }
}

pub(super) fn total(arrived: &[u64]) -> f64 {
    arrived.iter().sum::<u64>() as f64
}

pub(super) fn all_latencies(backends: &[Backend]) -> Histogram<u64> {
    let mut all = new_histogram();
    for backend in backends {
        // All have the same bounds.
        let _ = all.add(&backend.store().latency_us);
    }
    all
}

/// Size of all files in the folders below, and of those in this one if `is_own`.
fn size_below(folder: &Path, is_own: bool) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| match entry.metadata().ok()? {
        below if below.is_dir() => Some(size_below(&entry.path(), true)),
        file => is_own.then_some(file.len()),
    });
    sizes.sum()
}

const DRAIN_LOOK_EVERY: Duration = Duration::from_millis(20);

/// CPU time and memory of the processes at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Processes {
    pub at: Instant,
    /// `None`: the subject has ended.
    pub subject: Option<Usage>,
    /// Generator and backends.
    pub bench: Option<Usage>,
}

impl Processes {
    pub fn now(subject: &Subject) -> Processes {
        Processes {
            at: Instant::now(),
            subject: subject.usage(),
            bench: usage_of_process(std::process::id()),
        }
    }

    pub fn seconds_since(&self, before: &Processes) -> f64 {
        (self.at - before.at).as_secs_f64().max(1e-3)
    }
}

/// CPU time since then, in seconds. `None`: the process had ended.
pub fn cpu_s_since(then: Option<Usage>, now: Option<Usage>) -> Option<f64> {
    Some(now?.cpu.saturating_sub(then?.cpu).as_secs_f64())
}

/// Time until these backends have all acknowledged items. `None`: `limit` passed, or interrupted.
pub async fn drained<'a>(
    report: &LoadReport,
    backends: impl Iterator<Item = &'a Backend> + Clone,
    limit: Duration,
    mut is_interrupted: impl FnMut() -> bool,
) -> Option<Duration> {
    let began = Instant::now();
    loop {
        if backends.clone().all(|backend| report.missing_at(backend) == 0) {
            return Some(began.elapsed());
        }
        if began.elapsed() >= limit || is_interrupted() {
            return None;
        }
        sleep(DRAIN_LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_again_has_not_shrunk() {
        let readings = [100.0, 150.0, 20.0, 30.0];
        assert_eq!(readings.windows(2).map(|pair| grown(pair[1], pair[0])).sum::<f64>(), 80.0);
    }

    #[test]
    fn what_a_subject_keeps_on_disk_is_what_is_in_folders_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("output.log"), [0; 1000]).unwrap();
        fs::create_dir_all(folder.path().join("buffer/tail.0")).unwrap();
        fs::write(folder.path().join("buffer/a"), [0; 7]).unwrap();
        fs::write(folder.path().join("buffer/tail.0/b"), [0; 5]).unwrap();
        assert_eq!(size_below(folder.path(), false), 12);
    }
}
