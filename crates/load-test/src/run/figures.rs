//! What a turn came to, from what was seen of it.

use std::time::Duration;

use super::machine::Cores;
use super::plan::Plan;
use super::sampler::{Look, Sampler, all_latencies, milliseconds, total};
use crate::backend::Backend;
use crate::generate::LoadReport;
use crate::latency::Latency;
use crate::report::{BenchCost, Kpis, PipelineKpis, Warning};
use crate::subject::Subject;

/// Share of its cores from which on the bench is taken for the limit.
pub(super) const BENCH_SHARE: f64 = 0.85;
/// Share of the requests that may be late without a warning.
const LATE_SHARE: f64 = 0.01;

/// What a turn's figures are made of.
pub(super) struct Figures<'a> {
    pub(super) plan: &'a Plan,
    pub(super) subject: &'a Subject,
    pub(super) sampler: &'a Sampler<'a>,
    pub(super) report: &'a LoadReport,
    /// After the drain.
    pub(super) last: &'a Look,
    pub(super) drained_after: Option<Duration>,
}

impl Figures<'_> {
    fn first(&self) -> &Look {
        &self.sampler.looks[0]
    }

    /// The last while the load ran.
    fn at_end(&self) -> &Look {
        self.sampler.looks.last().unwrap_or(self.last)
    }

    pub(super) fn load_s(&self) -> f64 {
        (self.at_end().at - self.first().at).as_secs_f64().max(1e-3)
    }

    fn mean(&self, value: impl Fn(&crate::report::Sample) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.sampler.samples.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn highest(&self, value: impl Fn(&crate::report::Sample) -> Option<f64>) -> Option<f64> {
        self.sampler.samples.iter().filter_map(value).reduce(f64::max)
    }

    fn cpu_s(&self, until: &Look) -> Option<f64> {
        Some(until.subject?.cpu.saturating_sub(self.first().subject?.cpu).as_secs_f64())
    }

    fn missing(&self) -> u64 {
        self.sampler.backends.iter().map(|backend| self.report.missing_at(backend)).sum()
    }

    /// Missing and not held by the subject either, by its own count where it has one.
    fn lost(&self) -> u64 {
        let held = self.last.held.filter(|_| self.last.subject.is_some()).unwrap_or(0.0);
        self.missing().saturating_sub(held as u64)
    }

    /// The same of one pipeline. `None` where the subject tells what it holds of all together only.
    fn lost_in(&self, index: usize) -> Option<u64> {
        let missing = self.report.missing_at(self.sampler.backends.get(index)?);
        match self.last.pipelines.get(index).and_then(|pipeline| pipeline.held) {
            Some(held) if self.last.subject.is_some() => Some(missing.saturating_sub(held as u64)),
            Some(_) => Some(missing),
            None => self.last.held.is_none().then_some(missing),
        }
    }

    pub(super) fn kpis(&self) -> Kpis {
        let (at_end, load_s, report) = (self.at_end(), self.load_s(), self.report);
        let latency = Latency::of(&all_latencies(self.sampler.backends));
        let known = |quantile| (latency.count > 0).then(|| milliseconds(quantile));
        let delivered = total(&self.last.arrived) / self.last.arrived.len() as f64;
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
            lost: Some(self.lost()),
            doubled: Some(self.sampler.backends.iter().map(|backend| backend.counts().doubled).sum()),
            latency_p50_ms: known(latency.p50),
            latency_p99_ms: known(latency.p99),
            latency_p999_ms: known(latency.p999),
            cpu_s_per_million: self.cpu_s(self.last).filter(|_| delivered > 0.0).map(|cpu_s| cpu_s / delivered * 1e6),
            wire_in_bytes: Some(report.bytes_sent),
            wire_out_bytes: Some(self.sampler.backends.iter().map(|backend| backend.counts().bytes).sum()),
            drain_s: self.drained_after.map(|after| after.as_secs_f64()),
            pipelines: self.pipelines(),
            ..self.byte_kpis()
        }
    }

    fn pipelines(&self) -> Vec<PipelineKpis> {
        let is_only = self.sampler.backends.len() == 1;
        let one = |(index, backend): (usize, &Backend)| {
            let latency = backend.latency();
            let queue = self.at_end().pipelines.get(index).and_then(|pipeline| pipeline.queue);
            PipelineKpis {
                name: format!("{}/{index}", self.plan.signal),
                exported_per_s: self.at_end().arrived.get(index).map(|&items| items as f64 / self.load_s()),
                queue: queue.or(self.at_end().queue.filter(|_| is_only)),
                lost: self.lost_in(index).or(is_only.then(|| self.lost())),
                doubled: Some(backend.counts().doubled),
                latency_p99_ms: (latency.count > 0).then(|| milliseconds(latency.p99)),
            }
        };
        self.sampler.backends.iter().enumerate().map(one).collect()
    }

    pub(super) fn bench(&self) -> BenchCost {
        let (first, at_end, load_s) = (self.first(), self.at_end(), self.load_s());
        let backends = at_end.backends_cpu.saturating_sub(first.backends_cpu);
        let all = at_end.bench.zip(first.bench).map(|(now, then)| now.cpu.saturating_sub(then.cpu));
        BenchCost {
            generator_cpu_cores: all.map(|all| all.saturating_sub(backends).as_secs_f64() / load_s),
            backend_cpu_cores: Some(backends.as_secs_f64() / load_s),
            memory_max_bytes: at_end.bench.map(|usage| usage.peak_rss_bytes as f64),
            late_requests: Some(self.report.late_requests),
        }
    }

    /// Where it did not live through the turn: how often and how it ended, and what helps.
    fn ends(&self) -> Option<(String, &'static str)> {
        let lives = self.subject.lives();
        let how = lives.last_end.map_or_else(|| "in a way that is not known".to_owned(), |status| status.to_string());
        let ends = lives.restarts + u64::from(lives.is_down);
        let message = match ends {
            0 => return None,
            1 => format!("it ended during the run ({how})"),
            _ => format!("it ended {ends} times during the run (the last time: {how})"),
        };
        let after = match (lives.restarts, lives.is_down) {
            (0, _) => " and was not started again".to_owned(),
            (_, true) => ", and does not run at the end".to_owned(),
            (_, false) => " and was started again".to_owned(),
        };
        let words = self.subject.last_words().map_or_else(String::new, |words| format!("; its last words: {words}"));
        let remedy = match self.subject.oom_kills() {
            Some(1..) => "its memory limit ended it: give it more with --memory-limit, or lower the rate with -r",
            _ => "find out why it ended: --fail-if 'restarts>0' makes that a failure",
        };
        Some((format!("{message}{after}{words}"), remedy))
    }

    pub(super) fn warnings(&self, kpis: &Kpis, bench: &BenchCost, cores: &Cores) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut warn = |message: String, remedy: &str| {
            warnings.push(Warning { subject: None, message, remedy: Some(remedy.to_owned()) });
        };
        for problem in self.subject.warnings() {
            warn(problem.clone(), "run as root, or where control groups are delegated");
        }
        for problem in &self.report.problems {
            warn(problem.message.clone(), problem.remedy);
        }
        if let Some((message, remedy)) = self.ends() {
            warn(message, remedy);
        }
        let used = bench.generator_cpu_cores.unwrap_or(0.0) + bench.backend_cpu_cores.unwrap_or(0.0);
        if used > BENCH_SHARE * cores.of_bench() as f64 {
            let message = format!(
                "generator and backends took {used:.2} of their {} cores: the bench was the limit",
                cores.of_bench()
            );
            warn(message, "give the bench more cores, or set a lower rate with -r");
        }
        let late = self.report.late_requests as f64;
        if late > LATE_SHARE * self.report.requests as f64 {
            let message = format!("{late:.0} of {} requests were sent more than 50 ms late", self.report.requests);
            warn(message, "set a lower rate with -r: the subject or the bench does not keep up");
        }
        let waits = self.last.queue.is_some_and(|queue| queue > 0.0) && self.last.held.is_none();
        if waits && kpis.lost.is_some_and(|lost| lost > 0) {
            let message = "its queue was not empty at the end of the drain and it does not say how many items it holds: \
                           they are counted as lost";
            warn(message.to_owned(), "wait longer with --drain-within");
        }
        warnings
    }
}
