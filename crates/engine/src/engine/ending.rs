//! Shutdown. Data in memory must be delivered first; data on disk stays for the next start.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_log::Keep;
use sluice_otlp::Signal;

use super::{Engine, RunningDelivery};
use crate::backlog::Members;
use crate::delivery::{DeliveryId, Stop};

/// At the end of the drain: the time for answers to senders that still wait.
const REMAINING_ANSWERS: Duration = Duration::from_secs(1);
/// With a directory: how long healthy deliveries may continue, to leave little for the next start.
const LAST_SENDING: Duration = Duration::from_secs(1);
/// With a directory: the time for requests in flight after that. Later ones are sent again by the
/// next start.
const LAST_ANSWERS: Duration = Duration::from_secs(3);
/// The time for writing the rest to disk.
const LAST_WRITES: Duration = Duration::from_secs(30);

/// The backlog of a delivery at shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub delivery: DeliveryId,
    pub items: u64,
    pub bytes: u64,
}

/// What was not delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// In memory only: lost.
    pub lost: Vec<Undelivered>,
    /// On disk: the next start delivers it. The part that could not be written is also in
    /// `unwritten`.
    pub kept: Vec<Undelivered>,
    /// Not written: signal, items, bytes.
    pub unwritten: Vec<(Signal, u64, u64)>,
}

impl Engine {
    /// Shuts down in order: unready; receivers finish requests in flight; deliveries send the rest,
    /// or leave it on disk. All this takes at most `drain_timeout`. Then frames that are not
    /// written yet are written.
    pub async fn shutdown(mut self, drain_timeout: Duration) -> ShutdownReport {
        self.status.ready.store(false, Ordering::Release);
        let deadline = Instant::now() + drain_timeout;
        let receivers = std::mem::take(&mut self.receivers);
        let receivers = futures_util::future::join_all(receivers.into_iter().map(|running| running.handle.shutdown()));
        let mut receivers = std::pin::pin!(receivers);
        // Deliveries and disk continue meanwhile: requests in flight may wait for them.
        let all_answered = tokio::time::timeout_at(deadline.into(), receivers.as_mut()).await.is_ok();
        if !all_answered {
            self.intakes.values().for_each(|intake| intake.close());
        }
        let mut report = ShutdownReport::default();
        if self.storage.directory().is_some() {
            report.kept = self.leave_deliveries(deadline).await;
            let unwritten = self.storage.close(LAST_WRITES).await;
            report.unwritten = unwritten.into_iter().map(|(signal, held)| (signal, held.items, held.bytes)).collect();
        } else {
            report.lost = self.drain_deliveries(deadline).await;
        }
        self.status.shown.store(Arc::default());
        if !all_answered {
            // The log has released the frames that senders waited for, so they get a retryable
            // refusal.
            let _ = tokio::time::timeout(REMAINING_ANSWERS, receivers).await;
        }
        for running in std::mem::take(&mut self.exporters).into_values() {
            running.exporter.shutdown().await;
        }
        self.watcher.abort();
        self.backlog.set_members(Members::default());
        report
    }

    async fn drain_deliveries(&mut self, deadline: Instant) -> Vec<Undelivered> {
        for running in self.deliveries.values() {
            let _ = running.stop.send(Stop::Drain);
        }
        let mut lost = Vec::new();
        for (id, running) in std::mem::take(&mut self.deliveries) {
            let delivery = running.delivery.clone();
            end_task(running, deadline).await;
            let held = delivery.log.unsubscribe(delivery.cursor, Keep::Nothing);
            if held.items > 0 {
                lost.push(Undelivered { delivery: id, items: held.items, bytes: held.bytes });
            }
        }
        lost
    }

    /// Healthy deliveries continue briefly, the others hand over at once; all wait for requests in
    /// flight.
    async fn leave_deliveries(&mut self, deadline: Instant) -> Vec<Undelivered> {
        let sending_until = deadline.min(Instant::now() + LAST_SENDING);
        for running in self.deliveries.values() {
            let is_healthy = running.delivery.stats.trouble.lock().is_none();
            let _ = running.stop.send(if is_healthy { Stop::Drain } else { Stop::HandOver });
        }
        for running in self.deliveries.values_mut() {
            let _ = tokio::time::timeout_at(sending_until.into(), finished(running)).await;
            let _ = running.stop.send(Stop::HandOver);
        }
        let answers_until = deadline.min(Instant::now() + LAST_ANSWERS);
        let mut kept = Vec::new();
        for (id, running) in std::mem::take(&mut self.deliveries) {
            let delivery = running.delivery.clone();
            end_task(running, answers_until).await;
            let held = delivery.log.held(delivery.cursor);
            if held.items > 0 {
                kept.push(Undelivered { delivery: id, items: held.items, bytes: held.bytes });
            }
            delivery.log.unsubscribe(delivery.cursor, Keep::Backlog);
        }
        kept
    }
}

/// Waits until the task has ended by itself. The caller joins it.
async fn finished(running: &RunningDelivery) {
    running.stop.closed().await;
}

async fn end_task(running: RunningDelivery, deadline: Instant) {
    let mut task = running.task;
    if tokio::time::timeout_at(deadline.into(), &mut task).await.is_err() {
        task.abort();
        let _ = task.await;
    }
}
