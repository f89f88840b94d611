//! The figures of a turn, from the sums at both ends and the usage of its parts.

use std::time::Duration;

use super::Parts;
use crate::report::{BenchCost, K6Counter, K6Figures, Kpis, Sample, Turn, Warning};
use crate::run::machine::{CoreTimes, Cores, Noise};
use crate::run::plan::Plan;
use crate::run::turn::TurnOutcome;
use crate::run::warnings::{Facts, warnings};
use crate::subject::{Limits, Subject, Usage, usage_of_process};

/// The counter whose sum is the number of HTTP requests.
const REQUESTS: &str = "http_reqs";

pub(super) struct Figures<'a> {
    pub(super) plan: &'a Plan,
    pub(super) cores: &'a Cores,
    pub(super) name: &'a str,
    pub(super) parts: &'a Parts,
    /// Usages of source, subject and database when the load began.
    pub(super) before: [Option<Usage>; 3],
    pub(super) load_s: f64,
    pub(super) counters: Vec<K6Counter>,
    /// From the last write of the source to the last arrival; `None`: something is missing.
    pub(super) drained_after: Option<Duration>,
    pub(super) is_still_arriving: bool,
    pub(super) core_times: Option<(CoreTimes, CoreTimes)>,
}

impl Figures<'_> {
    pub(super) fn outcome(&self, samples: Vec<Sample>) -> TurnOutcome {
        let (kpis, k6) = (self.kpis(&samples), self.k6());
        let mut warnings = warnings(&self.facts(&kpis, &k6));
        warnings.iter_mut().for_each(|one| one.subject = Some(self.name.to_owned()));
        let bench = BenchCost {
            generator_cpu_cores: k6.source_cpu_cores,
            backend_cpu_cores: k6.database_cpu_cores,
            memory_max_bytes: usage_of_process(std::process::id())
                .map(|usage| usage.peak_rss_bytes as f64),
            late_requests: None,
        };
        let limits = self.parts.subject.as_ref().map_or(Limits::default(), Subject::limits);
        let turn = Turn { kpis, samples, bench, k6: Some(k6), ..Turn::default() };
        TurnOutcome { turn, warnings, limits }
    }

    /// CPU seconds of a part since the load began.
    fn cpu_s(&self, part: usize) -> Option<f64> {
        let (before, now) = (self.before[part]?, self.parts.usages[part]?);
        Some(now.cpu.saturating_sub(before.cpu).as_secs_f64())
    }

    fn cores_of(&self, part: usize) -> Option<f64> {
        Some(self.cpu_s(part)? / self.load_s)
    }

    fn memory_of(&self, part: usize) -> Option<f64> {
        Some(self.parts.usages[part]?.peak_rss_bytes as f64)
    }

    fn requests(&self) -> Option<f64> {
        self.counters.iter().find(|one| one.name == REQUESTS)?.generated
    }

    fn kpis(&self, samples: &[Sample]) -> Kpis {
        let requests = self.requests();
        let whole = |number: Option<f64>| number.map(|number| number as u64);
        let dropped = self.parts.source.requests_dropped();
        let memory: Vec<f64> = samples.iter().filter_map(|sample| sample.memory_bytes).collect();
        let stored = self.counters.iter().find(|one| one.name == REQUESTS);
        let stored = stored.and_then(|one| one.stored);
        let million = stored.filter(|stored| *stored > 0.0).map(|stored| stored / 1e6);
        Kpis {
            received_per_s: requests.map(|requests| requests / self.load_s),
            exported_per_s: stored.map(|stored| stored / self.load_s),
            memory_bytes: (!memory.is_empty())
                .then(|| memory.iter().sum::<f64>() / memory.len() as f64),
            memory_max_bytes: self.memory_of(1),
            cpu_cores: self.cores_of(1),
            restarts: self.parts.subject.as_ref().map(|subject| subject.lives().restarts),
            offered: whole(requests),
            accepted: whole(requests.zip(dropped).map(|(all, dropped)| all - dropped as f64)),
            refused: dropped,
            lost: worst(&self.counters, requests, |missing| missing),
            doubled: worst(&self.counters, requests, |missing| -missing),
            cpu_s_per_million: self.cpu_s(1).zip(million).map(|(cpu_s, million)| cpu_s / million),
            wire_in_bytes: self.parts.source.bytes(),
            drain_s: self.drained_after.map(|after| after.as_secs_f64()),
            ..Kpis::default()
        }
    }

    fn k6(&self) -> K6Figures {
        let flushes = self.parts.source.flushes();
        let ms = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e3);
        K6Figures {
            source: self.parts.source.name(),
            database: self.parts.database.name(),
            requests_per_s: self.requests().map(|requests| requests / self.load_s),
            samples_per_s: self.parts.source.samples().map(|samples| samples as f64 / self.load_s),
            source_cpu_cores: self.cores_of(0),
            source_memory_max_bytes: self.memory_of(0),
            database_cpu_cores: self.cores_of(2),
            database_memory_max_bytes: self.memory_of(2),
            flushes: flushes.number,
            flushes_failed: flushes.failed,
            flush_mean_ms: ms(flushes.mean),
            flush_max_ms: ms(flushes.max),
            counters: self.counters.clone(),
        }
    }

    fn facts(&self, kpis: &Kpis, k6: &K6Figures) -> Facts {
        let own_s: f64 = (0..3).filter_map(|part| self.cpu_s(part)).sum();
        let noise = self
            .core_times
            .map(|(before, after)| Noise::between(before, after, Duration::from_secs_f64(own_s)));
        Facts {
            told: self.told(k6),
            generator_cores: k6.source_cpu_cores.unwrap_or(0.0),
            backend_cores: k6.database_cpu_cores.unwrap_or(0.0),
            bench_cores: self.cores.of_bench(),
            lost: kpis.lost.unwrap_or(0),
            is_still_draining: self.is_still_arriving,
            noise,
            ..Facts::default()
        }
    }

    fn told(&self, k6: &K6Figures) -> Vec<Warning> {
        let mut told = Vec::new();
        if self.parts.database.is_sink() {
            let message = "the database is a sink that adds up counters: its CPU and memory are \
                           not those of InfluxDB";
            told.push(Warning::new(message, "install InfluxDB 1.x, or name it with --influxdb"));
        }
        if let Some(failed) = k6.flushes_failed.filter(|failed| *failed > 0) {
            let why = self.parts.source.flushes().failure.unwrap_or_default();
            let all = k6.flushes.unwrap_or(failed);
            let message = format!("{failed} of {all} writes failed, and k6 drops these: {why}");
            told.push(Warning::new(message, ""));
        }
        if let Some(subject) = &self.parts.subject {
            let limits = subject.warnings.iter();
            told.extend(limits.map(|message| Warning::new(message.clone(), "")));
            let lives = subject.lives();
            if lives.restarts > 0 || lives.is_down {
                let last = subject.last_words().unwrap_or_default();
                let message = format!("the subject ended during the run; its last words: {last}");
                told.push(Warning::new(message, "see whether its memory limit is high enough"));
            }
        }
        if self.counters.is_empty() && self.plan.k6.k6.is_some() {
            told.push(Warning::new("k6 was ended before its summary: no sum is known", ""));
        }
        told
    }
}

/// The missing part of the counter that lacks most, as a number of requests: the share of its sum.
/// `None`: a sum is not known.
fn worst(counters: &[K6Counter], requests: Option<f64>, of: fn(f64) -> f64) -> Option<u64> {
    let mut worst = 0.0_f64;
    for counter in counters {
        let (missing, sum) = (of(counter.missing()?), counter.generated?);
        if missing > 0.0 {
            worst = worst.max((missing / sum.max(1.0) * requests?).max(1.0));
        }
    }
    requests.map(|_| worst.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: the counter that lacks most decides, in requests; a sum that is not known makes
    /// the figure unknown, not zero.
    #[test]
    fn the_counter_that_lacks_most_is_the_loss() {
        let counter = |name: &str, generated: f64, stored: Option<f64>| K6Counter {
            name: name.to_owned(),
            generated: Some(generated),
            stored,
        };
        let all = |counters: &[K6Counter]| {
            let lost = worst(counters, Some(1_000.0), |missing| missing);
            (lost, worst(counters, Some(1_000.0), |missing| -missing))
        };
        let requests = counter("http_reqs", 1_000.0, Some(1_000.0));
        let bytes = counter("data_sent", 100_000.0, Some(75_000.0));
        let more = counter("iterations", 1_000.0, Some(1_003.0));
        assert_eq!(all(std::slice::from_ref(&requests)), (Some(0), Some(0)));
        assert_eq!(all(&[requests.clone(), bytes, more]), (Some(250), Some(3)));
        let one_byte = counter("data_sent", 1e9, Some(1e9 - 1.0));
        assert_eq!(all(&[requests.clone(), one_byte]), (Some(1), Some(0)));
        assert_eq!(all(&[requests, counter("iterations", 5.0, None)]), (None, None));
        assert_eq!(worst(&[], None, |missing| missing), None);
    }
}
