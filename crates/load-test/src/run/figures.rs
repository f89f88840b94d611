//! The figures of a turn, from its readings and reports.

use std::time::Duration;

use super::machine::{CoreTimes, Cores, Noise};
use super::plan::Plan;
use super::sampler::{Reading, Sampler, all_latencies, cpu_s_since, grown, total};
use super::warnings::Facts;
use crate::backend::Backend;
use crate::generate::LoadReport;
use crate::latency::{Latency, milliseconds};
use crate::report::{BenchCost, Kpis, PipelineKpis, Sample, Warning};
use crate::subject::Subject;

/// After this long without an arrival the subject counts as idle.
const QUIET: Duration = Duration::from_secs(2);

pub(super) struct Figures<'a> {
    pub(super) plan: &'a Plan,
    pub(super) subject: &'a Subject,
    pub(super) sampler: &'a Sampler<'a>,
    pub(super) report: &'a LoadReport,
    /// The reading after the drain.
    pub(super) last: &'a Reading,
    pub(super) drained_after: Option<Duration>,
    /// Times of the run's cores when the load began and when it ended.
    pub(super) core_times: Option<(CoreTimes, CoreTimes)>,
}

impl Figures<'_> {
    fn first(&self) -> &Reading {
        &self.sampler.readings[0]
    }

    /// The last reading while the load ran.
    fn at_end(&self) -> &Reading {
        self.sampler.readings.last().unwrap_or(self.last)
    }

    pub(super) fn load_s(&self) -> f64 {
        self.at_end().processes.seconds_since(&self.first().processes)
    }

    fn mean(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.sampler.samples.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn highest(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        self.sampler.samples.iter().filter_map(value).reduce(f64::max)
    }

    fn cpu_s(&self, until: &Reading) -> Option<f64> {
        cpu_s_since(self.first().processes.subject, until.processes.subject)
    }

    /// Items neither at the backends nor held by the subject. An ended subject holds none.
    fn lost(&self, backends: &[Backend], held: Option<f64>) -> u64 {
        let missing: u64 = backends.iter().map(|backend| self.report.missing_at(backend)).sum();
        let held = held.filter(|_| self.last.processes.subject.is_some()).unwrap_or(0.0);
        missing.saturating_sub(held as u64)
    }

    pub(super) fn kpis(&self) -> Kpis {
        let (at_end, load_s, report) = (self.at_end(), self.load_s(), self.report);
        let latency = Latency::of(&all_latencies(self.sampler.backends));
        let known = |quantile| (latency.count > 0).then(|| milliseconds(quantile));
        let delivered = total(&self.last.arrived) / self.last.arrived.len() as f64;
        let cpu_s = self.cpu_s(self.last).filter(|_| delivered > 0.0);
        let counts = || self.sampler.backends.iter().map(Backend::counts);
        Kpis {
            received_per_s: Some(self.sampler.taken() / load_s),
            exported_per_s: Some(total(&at_end.arrived) / load_s),
            queue: at_end.queue,
            queue_max: self.highest(|sample| sample.queue),
            memory_bytes: self.mean(|sample| sample.memory_bytes),
            memory_max_bytes: self.highest(|sample| sample.memory_bytes),
            cpu_cores: self.cpu_s(at_end).map(|cpu_s| cpu_s / load_s),
            restarts: Some(self.subject.lives().restarts),
            offered: Some(report.offered),
            accepted: Some(report.accepted),
            refused: Some(report.refused + report.failed + report.rejected),
            unanswered: Some(report.unanswered),
            never_sent: Some(report.never_sent),
            lost: Some(self.lost(self.sampler.backends, self.last.held)),
            doubled: Some(counts().map(|counts| counts.doubled).sum()),
            latency_p50_ms: known(latency.p50),
            latency_p99_ms: known(latency.p99),
            latency_p999_ms: known(latency.p999),
            cpu_s_per_million: cpu_s.map(|cpu_s| cpu_s / delivered * 1e6),
            wire_in_bytes: Some(report.bytes_sent),
            wire_out_bytes: Some(counts().map(|counts| counts.bytes).sum()),
            drain_s: self.drained_after.map(|after| after.as_secs_f64()),
            pipelines: self.pipelines(),
            ..self.byte_kpis()
        }
    }

    /// The figures in bytes of a subject that tails files; none for others. They come from the
    /// subject's own counters, else from the lines that it took and the bytes at the backends.
    fn byte_kpis(&self) -> Kpis {
        let [first, .., last] = &self.sampler.readings[..] else { return Kpis::default() };
        if !self.sampler.counts_bytes {
            return Kpis::default();
        }
        let own = |value: fn(&Reading) -> Option<f64>| {
            let values: Vec<f64> = self.sampler.readings.iter().filter_map(value).collect();
            let grown = values.windows(2).map(|pair| grown(pair[1], pair[0])).sum::<f64>();
            value(last).map(|_| grown)
        };
        let bytes_per_line = self.report.bytes_sent as f64 / self.report.accepted.max(1) as f64;
        let received = own(|reading| reading.received_bytes);
        let exported = own(|reading| reading.exported_bytes);
        let arrived = last.arrived_bytes.saturating_sub(first.arrived_bytes) as f64;
        let load_s = self.load_s();
        Kpis {
            received_bytes_per_s: Some(
                received.unwrap_or_else(|| self.sampler.taken() * bytes_per_line) / load_s,
            ),
            exported_bytes_per_s: Some(exported.unwrap_or(arrived) / load_s),
            buffer_bytes: last.buffer_bytes,
            ..Kpis::default()
        }
    }

    fn pipelines(&self) -> Vec<PipelineKpis> {
        let (backends, at_end) = (self.sampler.backends, self.at_end());
        let is_only = backends.len() == 1;
        let one = |(index, backend): (usize, &Backend)| {
            let (latency, counts) = (backend.latency(), backend.counts());
            let known = |quantile| (latency.count > 0).then(|| milliseconds(quantile));
            let last = self.last.pipelines.get(index).cloned().unwrap_or_default();
            let queue = at_end.pipelines.get(index).and_then(|pipeline| pipeline.queue);
            // Not known if the subject reports only the sum over several pipelines.
            let held = last.held.or(self.last.held.filter(|_| is_only));
            let is_known = held.is_some() || self.last.held.is_none();
            let lost = self.lost(std::slice::from_ref(backend), held);
            PipelineKpis {
                name: format!("{}/{index}", self.plan.target.signal()),
                exported_per_s: at_end.arrived.get(index).map(|&n| n as f64 / self.load_s()),
                queue: queue.or(at_end.queue.filter(|_| is_only)),
                lost: is_known.then_some(lost),
                doubled: Some(counts.doubled),
                latency_p99_ms: known(latency.p99),
                exported: Some(backend.unique_items()),
                latency_p50_ms: known(latency.p50),
                backend_requests: Some(counts.requests),
                backend_refused: Some(counts.refused.values().sum()),
                backend_resets: Some(counts.resets),
                ..last
            }
        };
        backends.iter().enumerate().map(one).collect()
    }

    pub(super) fn bench(&self) -> BenchCost {
        let (first, at_end, load_s) = (self.first(), self.at_end(), self.load_s());
        let backends = at_end.backends_cpu.saturating_sub(first.backends_cpu);
        let all_s = cpu_s_since(first.processes.bench, at_end.processes.bench);
        BenchCost {
            generator_cpu_cores: all_s
                .map(|all_s| (all_s - backends.as_secs_f64()).max(0.0) / load_s),
            backend_cpu_cores: Some(backends.as_secs_f64() / load_s),
            memory_max_bytes: at_end.processes.bench.map(|usage| usage.peak_rss_bytes as f64),
            late_requests: Some(self.report.late_requests),
        }
    }

    /// A warning if the subject ended during the turn: how often, how, and the remedy.
    fn ends(&self) -> Option<Warning> {
        let lives = self.subject.lives();
        let how = lives
            .last_end
            .map_or_else(|| "for an unknown reason".to_owned(), |status| status.to_string());
        let ended = match lives.restarts + u64::from(lives.is_down) {
            0 => return None,
            1 => format!("the subject ended during the run ({how})"),
            ends => format!("the subject ended {ends} times during the run (the last time: {how})"),
        };
        let after = match (lives.restarts, lives.is_down) {
            (0, _) => " and was not started again",
            (_, true) => "; it was started again, but does not run at the end",
            (_, false) => " and was started again",
        };
        let words = self.subject.last_words();
        let words = words.map_or_else(String::new, |words| format!("; its last output: {words}"));
        let remedy = match self.subject.oom_kills() {
            Some(1..) => {
                "it was killed at its memory limit: raise --memory-limit, or lower the rate with \
                 -r"
            }
            _ => "find out why it ended; with --fail-if 'restarts>0' such a run fails",
        };
        Some(Warning::new(format!("{ended}{after}{words}"), remedy))
    }

    pub(super) fn facts(&self, kpis: &Kpis, bench: &BenchCost, cores: &Cores) -> Facts {
        let unlimited = "run as root, or where control groups are delegated";
        let subject = self.subject.warnings.iter().map(|one| Warning::new(one, unlimited));
        let load = self.report.problems.iter();
        let load = load.map(|(message, remedy)| Warning::new(message, remedy));
        Facts {
            told: subject.chain(load).chain(self.ends()).collect(),
            generator_cores: bench.generator_cpu_cores.unwrap_or(0.0),
            backend_cores: bench.backend_cpu_cores.unwrap_or(0.0),
            bench_cores: cores.of_bench(),
            requests: self.report.requests,
            late_requests: self.report.late_requests,
            lost: kpis.lost.unwrap_or(0),
            queue_is_unknown: self.last.queue.is_some_and(|queue| queue > 0.0)
                && self.last.held.is_none(),
            is_still_draining: self.is_still_draining(),
            noise: self.noise(),
        }
    }

    /// The drain timed out although items had arrived shortly before.
    fn is_still_draining(&self) -> bool {
        let backends = self.sampler.backends.iter();
        let last_arrival = backends.filter_map(|backend| backend.store().last_arrival).max();
        let looked = self.last.processes.at.into_std();
        self.drained_after.is_none()
            && last_arrival.is_some_and(|at| looked.saturating_duration_since(at) < QUIET)
    }

    /// Noise on the cores of the run while the load ran.
    fn noise(&self) -> Option<Noise> {
        let (before, after) = self.core_times?;
        let (first, at_end) = (self.first(), self.at_end());
        let own_s =
            cpu_s_since(first.processes.bench, at_end.processes.bench)? + self.cpu_s(at_end)?;
        Some(Noise::between(before, after, Duration::from_secs_f64(own_s)))
    }
}
