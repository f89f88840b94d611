//! One turn: a subject starts, takes the load, hands it on, and is judged by the arrivals.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::definition::{Definition, Setting};
use super::figures::Figures;
use super::load::Source;
use super::machine::{CoreTimes, Cores};
use super::plan::{Plan, pipelines};
use super::promql;
use super::runtime::OwnRuntime;
use super::sampler::{BACKEND_THREADS, Sampler, all_latencies, drained};
use super::warnings::warnings;
use crate::backend::{Backend, BackendOptions};
use crate::generate::RunningLoad;
use crate::live::{LiveView, Phase};
use crate::report::{SubjectRecord, Turn, Warning};
use crate::subject::{Limits, Subject, SubjectSpec, free_addr};

pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// A load gives its requests in flight 10 s at its end. One that goes on is broken.
const FINISH_WITHIN: Duration = Duration::from_secs(90);

/// Values that all turns of a run share.
#[derive(Clone, Copy)]
pub(super) struct Bench<'a> {
    pub(super) plan: &'a Plan,
    pub(super) cores: &'a Cores,
    pub(super) interrupted: &'a watch::Receiver<bool>,
    pub(super) view: &'a LiveView,
}

pub(super) struct TurnOutcome {
    pub(super) turn: Turn,
    pub(super) warnings: Vec<Warning>,
    /// Limits that could be set.
    pub(super) limits: Limits,
}

impl TurnOutcome {
    pub(super) fn add_to(
        self,
        subject: &mut SubjectRecord,
        number: usize,
        warnings: &mut Vec<Warning>,
    ) {
        // The limits of later turns are the same, or there is a warning.
        (subject.limits.cpu_cores, subject.limits.memory_bytes) =
            (self.limits.cpu_cores, self.limits.memory_bytes);
        subject.turns.push(Turn { number, ..self.turn });
        warnings.extend(self.warnings);
    }
}

/// The backends have a runtime of their own, so that their cost can be told from the generator's.
async fn start_backends(
    threads: usize,
    backends: usize,
) -> anyhow::Result<(OwnRuntime, Vec<Backend>)> {
    let (runtime, mut started) = (OwnRuntime::start(threads, BACKEND_THREADS)?, Vec::new());
    for _ in 0..backends {
        started.push(runtime.spawn(Backend::start(BackendOptions::default())).await??);
    }
    Ok((runtime, started))
}

/// `None`: interrupted before the load began.
pub(super) async fn run(
    bench: Bench<'_>,
    definition: &Definition,
) -> anyhow::Result<Option<TurnOutcome>> {
    let Bench { plan, cores, interrupted, view } = bench;
    let mut interrupted = interrupted.clone();
    let count = pipelines(plan.multi);
    let (_runtime, backends) = start_backends(cores.of_bench(), count).await?;
    let listen = free_addr()?;
    let source = plan.source(listen)?;
    let addrs = backends.iter().map(Backend::addr).collect();
    let mut setting = plan.setting(cores, listen, metrics_addr(plan)?, addrs)?;
    source.tell(&mut setting);
    let metrics = definition.metrics(plan.target, &setting)?;
    let spec = definition.spec(plan.target, &setting, plan.limits(), &cores.subject)?;
    let subject = tokio::select! {
        started = start(bench, &source, &setting, spec) => started?,
        Ok(_) = interrupted.wait_for(|interrupted| *interrupted) => return Ok(None),
    };
    let mut sampler = Sampler {
        addr: setting.metrics,
        metrics: metrics.clone(),
        counts_bytes: setting.log_root.is_some(),
        backends: &backends,
        readings: Vec::new(),
        samples: Vec::new(),
        latencies_before: all_latencies(&backends),
    };
    sampler.readings.push(sampler.read(&subject, None).await);
    let core_times = CoreTimes::of(&cores.all());
    let mut load = source.start(&backends)?;
    let faults = plan.faults.start(&backends, plan.duration, plan.faults_outlast_load);
    let was_interrupted = under_load(bench, &subject, &load, &mut sampler).await;
    let load_ended_unix_s = promql::unix_s();
    load.stop();
    let load_ended = std::time::Instant::now();
    let core_times = core_times.zip(CoreTimes::of(&cores.all()));
    // Backends that are well from now on: items that they lack after the drain are lost for good.
    let well = faults.end(&backends).await;
    view.begin(Phase::Waiting("the answers in flight".to_owned()));
    let report = timeout(FINISH_WITHIN, load.finish()).await.context("the load did not end")??;
    view.begin(Phase::Draining { within: plan.drain_within });
    let is_interrupted = || *interrupted.borrow_and_update();
    let is_drained = !was_interrupted
        && drained(&report, well.into_iter(), plan.drain_within, is_interrupted).await.is_some();
    let last_arrival = backends.iter().filter_map(|one| one.store().last_arrival).max();
    let drained_after = last_arrival.unwrap_or(load_ended).saturating_duration_since(load_ended);
    let last = sampler.read(&subject, None).await;
    let figures = Figures {
        plan,
        subject: &subject,
        sampler: &sampler,
        report: &report,
        last: &last,
        drained_after: is_drained.then_some(drained_after),
        core_times,
    };
    let mut kpis = figures.kpis();
    let bench_cost = figures.bench();
    let mut warnings = warnings(&figures.facts(&kpis, &bench_cost, cores));
    let load_s = figures.load_s();
    let mut reading = None;
    if let Some(prometheus) = &plan.prometheus {
        let (read, doubts) = prometheus
            .replace(&mut kpis, setting.metrics, &metrics, load_s, load_ended_unix_s)
            .await;
        reading = Some(read);
        warnings.extend(doubts);
    }
    warnings.iter_mut().for_each(|warning| warning.subject = Some(definition.name.clone()));
    let fault_windows = plan.faults.windows(Duration::from_secs_f64(load_s));
    let turn = Turn {
        kpis,
        samples: sampler.samples,
        fault_windows,
        bench: bench_cost,
        prometheus: reading,
        ..Turn::default()
    };
    Ok(Some(TurnOutcome { turn, warnings, limits: subject.limits() }))
}

/// Starts the subject and waits until Prometheus has seen it, and an agent has seen its load.
async fn start(
    bench: Bench<'_>,
    source: &Source,
    setting: &Setting,
    spec: SubjectSpec,
) -> anyhow::Result<Subject> {
    let subject = Subject::start(spec).await?;
    if let Some(prometheus) = &bench.plan.prometheus {
        bench.view.begin(Phase::Waiting(prometheus.url.to_string()));
        prometheus.wait_until_scraped(setting.metrics).await?;
    }
    source.wait_until_wanted().await?;
    Ok(subject)
}

pub(super) fn metrics_addr(plan: &Plan) -> anyhow::Result<SocketAddr> {
    let Some(addr) = plan.metrics_listen else { return Ok(free_addr()?) };
    // Another process that listens there would be taken for the subject.
    TcpListener::bind(addr).map_err(|error| {
        anyhow!(
            "subjects cannot serve their metrics at {addr} ({error}): choose another address with \
             --metrics-listen"
        )
    })?;
    Ok(addr)
}

/// Samples until the load's end; true where it was interrupted.
async fn under_load(
    Bench { plan, interrupted, view, .. }: Bench<'_>,
    subject: &Subject,
    load: &RunningLoad,
    sampler: &mut Sampler<'_>,
) -> bool {
    let mut interrupted = interrupted.clone();
    let end = Instant::now() + plan.duration;
    view.begin(Phase::Load { lasts: plan.duration, windows: plan.faults.windows(plan.duration) });
    loop {
        let next = (Instant::now() + SAMPLE_EVERY).min(end);
        let is_interrupted = tokio::select! {
            () = sleep_until(next) => false,
            Ok(_) = interrupted.wait_for(|interrupted| *interrupted) => true,
        };
        sampler.sample(subject, load).await;
        if let Some(sample) = sampler.samples.last() {
            view.show(sample);
        }
        if is_interrupted || Instant::now() >= end {
            return is_interrupted;
        }
    }
}
