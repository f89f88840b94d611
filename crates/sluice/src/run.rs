//! `sluice run`: start, wait for signals, reload, end.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sluice_engine::{DeliveryId, Engine, Plan, ShutdownReport, Undelivered};
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
    let logging = logging::install(&plan.logging).context("cannot open the log output")?;
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
    allocator::set_limit(plan.memory.limit_bytes);
    tokio::spawn(allocator::keep_within_limit());
    let mut engine = Engine::start(plan, Some(scheduler)).await?;
    announce(&engine);
    // The end does not wait for a reload, which may be dropped at any point.
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = reload_on_change(&mut engine, arguments, watched, logging, hangup) => {}
    }
    tracing::info!("shutting down: no new data is accepted, what is in flight is finished");
    tell(&engine.shutdown(arguments.drain_timeout).await);
    Ok(ExitCode::SUCCESS)
}

/// Reloads at every SIGHUP and change of a watched file. Those during a reload cause one more.
async fn reload_on_change(
    engine: &mut Engine,
    arguments: &RunArguments,
    mut watched: Watched,
    logging: &LoggingHandle,
    mut hangup: Signal,
) {
    let locations = arguments.configuration.locations();
    let mut watch = tokio::time::interval(WATCH_INTERVAL);
    loop {
        let is_due = tokio::select! {
            _ = hangup.recv() => true,
            _ = watch.tick(), if arguments.watch => watched.has_changed(),
        };
        if is_due {
            watched = reload(engine, &locations, logging).await;
        }
    }
}

/// Logs the data that the shutdown lost or kept on disk.
fn tell(report: &ShutdownReport) {
    for Undelivered { delivery: DeliveryId { pipeline, exporter }, items, bytes } in &report.lost {
        tracing::error!(
            %pipeline, %exporter, items, bytes,
            "lost: not delivered before the end, and memory does not survive it"
        );
    }
    for Undelivered { delivery: DeliveryId { pipeline, exporter }, items, bytes } in &report.kept {
        tracing::info!(%pipeline, %exporter, items, bytes, "kept on disk for the next start");
    }
    for (signal, items, bytes) in &report.unwritten {
        tracing::error!(
            %signal, items, bytes,
            "lost: not delivered before the end, and the disk did not take it"
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
async fn reload(engine: &mut Engine, locations: &[String], logging: &LoggingHandle) -> Watched {
    let (plan, sources) = configuration::load(locations);
    match plan {
        Ok(plan) => apply(engine, plan, logging).await,
        Err(error) => tracing::error!("not reloaded, the old configuration goes on: {error:#}"),
    }
    Watched::new(&sources)
}

async fn apply(engine: &mut Engine, plan: Plan, logging: &LoggingHandle) {
    let (options, limit_bytes) = (plan.logging.clone(), plan.memory.limit_bytes);
    if let Err(error) = engine.reload(plan).await {
        tracing::error!("not reloaded, the old configuration goes on: {error}");
        return;
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
