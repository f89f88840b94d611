//! `sluice run`: start, wait for signals, reload, end.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sluice_config::SystemEnvironment;
use sluice_engine::{DeliveryId, Engine, OwnTelemetry, Plan, ShutdownReport, Undelivered, plan};
use sluice_net::server::ReadScheduler;
use sluice_telemetry::logging::{self, LoggingHandle};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::arguments::RunArguments;
use crate::runtime::runtime;
use crate::watched::Watched;
use crate::{allocator, configuration};

const WATCH_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let (plan, sources) = configuration::load_for(&arguments.configuration);
    let plan = plan?;
    let logging = logging::install(&plan.logging).with_context(|| {
        let output = &plan.logging.output;
        format!("cannot open `{output}` of `service.telemetry.logs.output_paths`")
    })?;
    keep_pages_small();
    raise_file_descriptors();
    let scheduler = ReadScheduler::without(&arguments.scheduler_without);
    let runtime = runtime(arguments.threads, &scheduler)?;
    let watched = Watched::new(&sources);
    let ended = runtime.block_on(serve(arguments, plan, scheduler, watched, &logging));
    // A thread that waits for a disk or a pipe does not hold up the end.
    runtime.shutdown_background();
    ended
}

/// The first touch of a huge page makes 2 MiB resident in a region of each thread's allocator, and
/// doubles the memory at rest for the same CPU time. `no_thp` does the same before `main`.
fn keep_pages_small() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "memory at rest may be larger: huge pages stay enabled");
    }
}

/// As Go's runtime does: the soft limit is often 1024, for programs that use `select`.
fn raise_file_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit on open files stays at {:?}", limit.current);
    }
}

async fn serve(
    arguments: &RunArguments,
    plan: Plan,
    scheduler: Arc<ReadScheduler>,
    watched: Watched,
    logging: &LoggingHandle,
) -> Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let hangup = signal(SignalKind::hangup())?;
    // As in a Go program these two do nothing. By default they would end the process.
    let _ignored = (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
    // A file at its size limit (RLIMIT_FSIZE) is a full disk.
    let file_size = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    let _not_deadly = signal(file_size)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        configuration = shown(&arguments.configuration.locations()),
        health = plan.health_endpoints().join(", "),
        "sluice starts"
    );
    allocator::set_limit(plan.memory.limit_bytes);
    sluice_flow::idle::set_give_back(allocator::give_back);
    tokio::spawn(allocator::keep_within_limit());
    let own_telemetry = OwnTelemetry::start(&plan.own_telemetry, logging.tap())?;
    // A start on a disk that hangs can be ended as well.
    let started = tokio::select! {
        started = Engine::start(plan, Some(scheduler)) => Some(started),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let mut parts = match started {
        Some(Ok(engine)) => Parts { engine, own_telemetry, logging },
        Some(Err(error)) => {
            own_telemetry.shutdown().await;
            return Err(error.into());
        }
        None => {
            tracing::info!("ended before the start was complete: nothing was received");
            own_telemetry.shutdown().await;
            return Ok(ExitCode::SUCCESS);
        }
    };
    parts.own_telemetry.attach(&parts.engine);
    announce(&parts.engine);
    // The end does not wait for a reload, which may be dropped at any point.
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = reload_on_change(&mut parts, arguments, watched, hangup) => {}
    }
    tracing::info!("shutting down: no new data is accepted, what is in flight is finished");
    tell(&parts.engine.shutdown(arguments.drain_timeout).await);
    parts.own_telemetry.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// Where the configuration is. Text of the command line is left out: it may have secrets.
fn shown(locations: &[String]) -> String {
    let location = |it: &String| if it.starts_with("yaml:") { "yaml:…" } else { it }.to_owned();
    locations.iter().map(location).collect::<Vec<_>>().join(", ")
}

/// The parts that a reload changes.
struct Parts<'a> {
    engine: Engine,
    own_telemetry: OwnTelemetry,
    logging: &'a LoggingHandle,
}

/// Reloads at every SIGHUP and change of a watched file. Those during a reload cause one more.
async fn reload_on_change(
    parts: &mut Parts<'_>,
    arguments: &RunArguments,
    mut watched: Watched,
    mut hangup: Signal,
) {
    let locations = arguments.configuration.locations();
    let mut watch = tokio::time::interval(WATCH_INTERVAL);
    loop {
        let is_due = tokio::select! {
            _ = hangup.recv() => true,
            _ = watch.tick(), if arguments.watch => {
                let watched = watched.clone();
                beside(move || watched.has_changed()).await
            }
        };
        if is_due {
            watched = reload(parts, locations.clone()).await;
        }
    }
}

/// Reads files on a thread of its own: a disk may hang, and signals are heeded meanwhile.
async fn beside<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(read).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Logs the data that the shutdown lost or kept on disk.
fn tell(report: &ShutdownReport) {
    for Undelivered { delivery: DeliveryId { pipeline, exporter }, items, bytes } in &report.lost {
        tracing::error!(
            %pipeline, %exporter, items, bytes,
            "lost: not delivered before the end, and only in memory; senders that still wait for \
             an answer get none, and send it again, and receivers with a checkpoint read theirs \
             again, but for what was aggregated"
        );
    }
    for Undelivered { delivery: DeliveryId { pipeline, exporter }, items, bytes } in
        &report.read_again
    {
        tracing::info!(
            %pipeline, %exporter, items, bytes,
            "not delivered before the end: its receivers read it again at the next start"
        );
    }
    for Undelivered { delivery: DeliveryId { pipeline, exporter }, items, bytes } in &report.kept {
        let but = if report.unwritten.is_empty() { "" } else { ", but for what is not written" };
        tracing::info!(%pipeline, %exporter, items, bytes, "kept on disk for the next start{but}");
    }
    for (signal, items, bytes) in &report.unwritten {
        tracing::error!(
            %signal, items, bytes,
            "lost: not delivered before the end, and not taken by the disk; senders that still \
             wait for an answer get none, and send it again, and receivers with a checkpoint read \
             theirs again, but for what was aggregated"
        );
    }
}

fn announce(engine: &Engine) {
    for (receiver, protocol, address) in engine.listen_addresses() {
        tracing::info!(receiver, protocol, address, "receiving");
    }
    if let Some(address) = engine.metrics_address() {
        tracing::info!(%address, "metrics at /metrics");
    }
}

/// A configuration that cannot be used leaves the old one running. Returns the files that it names.
async fn reload(parts: &mut Parts<'_>, locations: Vec<String>) -> Watched {
    let load = move || {
        let (plan, diagnostics) = plan::load(&locations, &SystemEnvironment);
        let watched = Watched::new(&diagnostics.sources);
        (plan, diagnostics, watched)
    };
    let (plan, diagnostics, watched) = beside(load).await;
    for warning in diagnostics.warnings() {
        tracing::warn!("{}", diagnostics.line(warning));
    }
    match plan {
        Some(plan) => apply(parts, plan).await,
        None => {
            parts.engine.note_failed_reload();
            let reasons: Vec<_> =
                diagnostics.errors().map(|error| diagnostics.line(error)).collect();
            let (errors, reason) = (reasons.len(), told(&reasons));
            tracing::error!(errors, reason, "not reloaded, the old configuration goes on");
        }
    }
    watched
}

/// The first errors of a configuration, for one line of the log.
fn told(reasons: &[String]) -> String {
    const TOLD: usize = 5;
    let more = match reasons.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!("; and {more} more, which `sluice validate` shows"),
    };
    reasons[..reasons.len().min(TOLD)].join("; ") + &more
}

async fn apply(Parts { engine, own_telemetry, logging }: &mut Parts<'_>, plan: Plan) {
    let (options, limit_bytes) = (plan.logging.clone(), plan.memory.limit_bytes);
    let prepared = match own_telemetry.prepare(&plan.own_telemetry) {
        Ok(prepared) => engine.reload(plan).await.map(|()| prepared),
        Err(error) => {
            engine.note_failed_reload();
            Err(error)
        }
    };
    match prepared {
        Ok(prepared) => own_telemetry.apply(prepared),
        Err(error) => {
            let reason = error.to_string();
            tracing::error!(reason, "not reloaded, the old configuration goes on");
            return;
        }
    }
    allocator::set_limit(limit_bytes);
    let unchanged = logging.apply(&options);
    if !unchanged.is_empty() {
        tracing::warn!(
            options = unchanged.join(", "),
            "of service.telemetry.logs only the level changes while running: these options need a \
             restart"
        );
    }
    tracing::info!("reloaded");
    announce(engine);
}
