//! The programs under test, and one of them between a generator and its backends.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sluice_load::backend::{Backend, BackendOptions, Counting, Faults};
use sluice_load::generate::{Load, LoadReport, Retry, RunningLoad, Shape};
use sluice_load::latency::{Latency, milliseconds};
use sluice_load_test::run::{Processes, cpu_s_since, drained};
use sluice_load_test::scrape::Scrape;
use sluice_load_test::subject::{
    GatewayConfig, Limits, Subject, SubjectSpec, free_addr, nginx_relay, usage_of_process,
};
use tokio::time::{Instant, sleep};

use crate::figures::{Figures, with};
use crate::options::Options;
use crate::scenario::Turn;

/// A subject that gathers items before it sends any gets this long to show the first.
const FIRST_ITEMS_WITHIN: Duration = Duration::from_secs(30);
/// Interval of reading memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Time before counting begins: connections are made, allocators and windows grow.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);

/// Time before counting begins, where that is not fixed.
#[derive(Clone, Copy)]
pub(crate) struct WarmUp {
    pub(crate) time: Duration,
    /// After that time until no more is accepted than is delivered, but not longer than
    /// [`BALANCED_WITHIN`]: a buffer that fills takes more than its subject can deliver.
    pub(crate) until_balanced: bool,
}

impl From<Duration> for WarmUp {
    fn from(time: Duration) -> Self {
        WarmUp { time, until_balanced: false }
    }
}

const BALANCED_WITHIN: Duration = Duration::from_secs(90);
/// Accepted and delivered items are compared over this time.
const BALANCE_OVER: Duration = Duration::from_secs(4);
/// Accepted items of the delivered ones, of a subject in balance: counters are read at one moment
/// and requests are large.
const IN_BALANCE: f64 = 1.03;

/// A sender that is turned away comes back a little later, as clients do, and does not spin.
pub(crate) const COME_BACK: Retry = Retry::Backoff {
    initial: Duration::from_millis(50),
    max: Duration::from_millis(500),
    give_up_after: Duration::from_secs(10),
};

/// The subject and the backends of a turn. Unset options have the subject's own default.
pub(crate) struct Setting<'a> {
    turn: Turn<'a>,
    pub(crate) config: GatewayConfig,
    /// Further arguments.
    pub(crate) args: Vec<String>,
    /// Further variables of its environment.
    pub(crate) env: Vec<(String, String)>,
    /// Backends that are to get everything, each with a pipeline of its own.
    backends: Vec<Faults>,
    /// Backends of further pipelines, of which nothing is expected.
    sick: Vec<Faults>,
    counting: Counting,
    pub(crate) limits: Limits,
    pub(crate) cpus: Vec<usize>,
}

impl<'a> Setting<'a> {
    /// Spans, `memory_limiter` alone, lines of YAML that only Sluice gets, and one healthy backend.
    pub(crate) fn of(turn: Turn<'a>, limit_mib: u64, sluice_only: &str) -> Result<Self> {
        let mut config = GatewayConfig::new(free_addr()?, free_addr()?, Vec::new());
        config.memory_limit_mib = Some(limit_mib);
        if turn.contestant.is_sluice() {
            config.sections = sluice_only.to_owned();
        }
        Ok(Setting {
            turn,
            config,
            args: Vec::new(),
            env: Vec::new(),
            backends: vec![Faults::default()],
            sick: Vec::new(),
            counting: Counting::Verify,
            limits: Limits::default(),
            cpus: turn.options.subject_cpus.clone(),
        })
    }

    pub(crate) fn with_backends(self, backends: Vec<Faults>, sick: Vec<Faults>) -> Self {
        Setting { backends, sick, ..self }
    }

    /// Lets backends count at the least cost, to measure the subject's cost.
    pub(crate) fn counting_lightly(self) -> Self {
        let bytes_per_item = Shape::of(self.config.signal).bytes_per_item();
        Setting { counting: Counting::Light { bytes_per_item }, ..self }
    }

    pub(crate) async fn start(self) -> Result<Stage> {
        let Setting { mut config, counting, .. } = self;
        let (count, mut backends) = (self.backends.len(), Vec::new());
        for faults in self.backends.into_iter().chain(self.sick) {
            let options = BackendOptions { counting, faults, ..Default::default() };
            backends.push(Backend::start(options).await?);
        }
        config.backends = backends.iter().map(Backend::addr).collect();
        let spec = self.turn.contestant.spec(&config, self.turn.options);
        let args = [spec.args, self.args].concat();
        let env = [spec.env, self.env].concat();
        let spec = SubjectSpec { args, env, cpus: self.cpus, limits: self.limits, ..spec };
        let subject = Subject::start(spec).await?;
        // Without its limits the numbers would mean something else.
        ensure!(subject.warnings.is_empty(), "{}", subject.warnings.join("; "));
        let sick = backends.split_off(count);
        let is_verified = counting == Counting::Verify;
        Ok(Stage { subject, backends, _sick: sick, is_verified, config })
    }
}

/// A running contestant with its backends.
pub(crate) struct Stage {
    subject: Subject,
    /// Backends that are to get everything.
    pub(crate) backends: Vec<Backend>,
    _sick: Vec<Backend>,
    is_verified: bool,
    config: GatewayConfig,
}

/// Measurements of the counted part of a load.
pub(crate) struct Observed {
    pub(crate) elapsed_s: f64,
    /// Time for which load was offered, with the warm-up.
    pub(crate) load_s: f64,
    subject_cpu_s: f64,
    bench_cpu_s: f64,
    /// Items that arrived at each backend, and items that were acknowledged.
    pub(crate) arrived: Vec<u64>,
    pub(crate) acknowledged: u64,
    /// Latency from sending to arrival, of the backend with the highest p99.
    latency: Latency,
    /// Highest resident memory that was seen.
    rss_bytes: u64,
    pub(crate) report: LoadReport,
}

impl Stage {
    /// Spans of 40 attributes, 100 a request, unless the configuration is of another signal.
    pub(crate) fn load(&self) -> Load {
        Load::new(self.config.signal, self.config.listen)
    }

    /// The sum of its own metric's samples with these labels. `None`: it does not say.
    pub(crate) async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        Scrape::fetch(self.config.metrics, "/metrics").await.ok()?.sum(name, labels)
    }

    fn arrived(&self) -> Vec<u64> {
        let of = if self.is_verified { Backend::unique_items } else { Backend::items };
        self.backends.iter().map(of).collect()
    }

    /// Fails with the end of the subject's output if the subject has ended.
    pub(crate) fn processes(&self) -> Result<Processes> {
        let processes = Processes::now(&self.subject);
        processes.subject.with_context(|| {
            let (name, output) = (&self.subject.name, self.subject.output_tail());
            format!("{name} has ended; the end of its output:\n{output}")
        })?;
        Ok(processes)
    }

    /// Measures a load after a warm-up. A load without a duration ends with the measurement.
    pub(crate) async fn under_load(
        &self,
        load: Load,
        warm_up: impl Into<WarmUp>,
        counted: Duration,
    ) -> Result<Observed> {
        let WarmUp { time, until_balanced } = warm_up.into();
        let longest = if until_balanced { time + BALANCED_WITHIN } else { time };
        let loaded = Instant::now();
        let mut running =
            Load { duration: load.duration.or(Some(longest + counted)), ..load }.start()?;
        sleep(time).await;
        if until_balanced {
            self.balanced(&running).await;
        }
        self.backends.iter().for_each(|backend| backend.store().latency_us.reset());
        let counters =
            || anyhow::Ok((self.processes()?, self.arrived(), running.report().accepted));
        let before = counters()?;
        let (began, mut rss_bytes) = (Instant::now(), 0);
        let nothing_came = || !self.backends.is_empty() && self.arrived() == before.1;
        while began.elapsed() < counted || nothing_came() && began.elapsed() < FIRST_ITEMS_WITHIN {
            let left = counted.saturating_sub(began.elapsed());
            sleep(left.clamp(Duration::from_millis(1), SAMPLE_EVERY)).await;
            // One that has ended shows in the counters after the window.
            let usage = usage_of_process(self.subject.pid());
            rss_bytes = rss_bytes.max(usage.map_or(0, |usage| usage.rss_bytes));
        }
        let after = counters()?;
        let latencies = self.backends.iter().map(Backend::latency);
        let latency = latencies.max_by_key(|latency| latency.p99).unwrap_or_default();
        let load_s = loaded.elapsed().as_secs_f64();
        running.stop();
        let report = running.finish().await?;
        let arrived: Vec<u64> =
            before.1.iter().zip(after.1).map(|(before, after)| after - before).collect();
        let is_alive = arrived.is_empty() || arrived.iter().any(|items| *items > 0);
        let name = &self.subject.name;
        ensure!(is_alive, "{name}: nothing arrived at the backend: {:?}", report.messages);
        Ok(Observed {
            elapsed_s: after.0.seconds_since(&before.0),
            load_s,
            subject_cpu_s: cpu_s_since(before.0.subject, after.0.subject).unwrap_or(f64::NAN),
            bench_cpu_s: cpu_s_since(before.0.bench, after.0.bench).unwrap_or(f64::NAN),
            arrived,
            acknowledged: after.2 - before.2,
            latency,
            rss_bytes,
            report,
        })
    }

    /// Waits until no more is accepted than the slowest backend gets, or [`BALANCED_WITHIN`].
    async fn balanced(&self, running: &RunningLoad) {
        let counters = || {
            let arrived = self.arrived().into_iter().min().unwrap_or(0);
            (running.report().accepted, arrived)
        };
        let (until, mut before) = (Instant::now() + BALANCED_WITHIN, counters());
        while Instant::now() < until {
            sleep(BALANCE_OVER).await;
            let after = counters();
            let (accepted, arrived) = (after.0 - before.0, after.1 - before.1);
            if arrived > 0 && accepted as f64 <= IN_BALANCE * arrived as f64 {
                return;
            }
            before = after;
        }
    }

    /// Time until the backends have all acknowledged items; `None`: longer than `limit`.
    pub(crate) async fn drained(&self, report: &LoadReport, limit: Duration) -> Option<Duration> {
        drained(report, self.backends.iter(), limit, || false).await
    }

    /// Highest resident memory since the start, and its share of the configured limit.
    pub(crate) fn memory(&self) -> Result<Figures> {
        let peak_bytes = self.processes()?.subject.map_or(0, |usage| usage.peak_rss_bytes);
        let limit_bytes = self.config.memory_limit_mib.map(|mib| mib << 20);
        Ok(json!({
            "peak_rss_bytes": peak_bytes,
            "memory_limit_bytes": limit_bytes,
            "memory_share": limit_bytes.map(|limit| peak_bytes as f64 / limit as f64),
        }))
    }

    /// The figures of every turn under load, and others. To be called after the drain.
    pub(crate) fn figures(&self, observed: &Observed, others: Figures) -> Result<Figures> {
        let Observed { elapsed_s, subject_cpu_s, report, latency, .. } = observed;
        let count = observed.arrived.len().max(1) as f64;
        let mean = observed.arrived.iter().sum::<u64>() as f64 / count;
        let slowest = (!observed.arrived.is_empty()).then(|| observed.delivered_per_s());
        let each = |of: fn(&LoadReport, &Backend) -> u64| -> Option<u64> {
            self.is_verified.then(|| self.backends.iter().map(|backend| of(report, backend)).sum())
        };
        let endings = report.endings.iter().filter(|(ending, _)| !ending.is_ok());
        let figures = json!({
            "spans_per_s": slowest,
            "items_per_s": mean / elapsed_s,
            "cpu_s_per_million": subject_cpu_s / mean * 1e6,
            "p50_ms": milliseconds(latency.p50),
            "p99_ms": milliseconds(latency.p99),
            "p999_ms": milliseconds(latency.p999),
            "max_ms": milliseconds(latency.max),
            "acknowledged_p50_ms": milliseconds(report.acknowledged_after.p50),
            "acknowledged_p99_ms": milliseconds(report.acknowledged_after.p99),
            "offered": report.offered,
            "accepted": report.accepted,
            "never_sent": report.never_sent,
            "refused": report.refused,
            "failed": report.failed,
            "unanswered": report.unanswered,
            "refusals_without_delay": report.refusals_without_delay,
            "turned_away": endings.map(|(_, count)| count).sum::<u64>(),
            "lost": each(|report, backend| report.missing_at(backend)),
            "doubled": each(|_, backend| backend.counts().doubled),
            "rss_bytes": observed.rss_bytes,
            "subject_core": subject_cpu_s / elapsed_s,
            "bench_core": observed.bench_cpu_s / elapsed_s,
        });
        Ok(with(with(figures, self.memory()?), others))
    }
}

impl Observed {
    /// Items a second at the slowest backend.
    pub(crate) fn delivered_per_s(&self) -> f64 {
        self.arrived.iter().min().copied().unwrap_or(0) as f64 / self.elapsed_s
    }
}

/// Name of another build of Sluice, with which the first is compared.
pub(crate) const BASELINE: &str = "sluice (baseline)";

/// A program under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) binary: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Sluice,
    Collector,
    VmAgent,
}

impl Contestant {
    pub(crate) fn is_sluice(&self) -> bool {
        self.kind == Kind::Sluice
    }

    /// Whether it is configured as the Collector is.
    pub(crate) fn is_gateway(&self) -> bool {
        matches!(self.kind, Kind::Sluice | Kind::Collector)
    }

    pub(crate) fn is_nginx(&self) -> bool {
        self.kind == Kind::Nginx
    }

    pub(crate) fn is_vmagent(&self) -> bool {
        self.kind == Kind::VmAgent
    }

    /// `config` is a gateway's; a relay uses its listen address and its first backend.
    fn spec(&self, config: &GatewayConfig, options: &Options) -> SubjectSpec {
        let (args, yaml): (&[&str], _) = match self.kind {
            Kind::Nginx => (
                &["-e", "{dir}/error.log", "-p", "{dir}", "-c", "{config}"],
                nginx_relay(config.listen, config.backends[0], options.nginx_keepalive),
            ),
            Kind::Sluice => (&["run", "--config", "{config}"], config.to_yaml()),
            Kind::Collector => (&["--config", "{config}"], config.to_yaml()),
            // A scenario says what is scraped, and where it goes.
            Kind::VmAgent => {
                (&["-remoteWrite.tmpDataPath={dir}/queue", "-loggerLevel=ERROR"], String::new())
            }
        };
        let mut args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        if self.is_vmagent() {
            args.push(format!("-httpListenAddr={}", config.listen));
        }
        // Go programs have one core, but would by themselves count the machine's.
        let is_go = matches!(self.kind, Kind::Collector | Kind::VmAgent);
        let one_core = is_go.then(|| ("GOMAXPROCS".to_owned(), "1".to_owned()));
        SubjectSpec {
            name: self.name.to_owned(),
            binary: self.binary.clone(),
            args,
            config: yaml,
            config_file: "config.yaml".to_owned(),
            env: one_core.into_iter().collect(),
            ready: Some(config.listen.into()),
            ..SubjectSpec::default()
        }
    }
}
