//! The end of an engine. In memory what is held has to be delivered before it; on disk it stays for the next start.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_log::Keep;
use sluice_otlp::Signal;

use super::{Engine, RunningDelivery};
use crate::delivery::{DeliveryId, Stop};

/// At the end of the drain, what answers to senders that still wait may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// With a directory: how long healthy deliveries may go on, so that little is delivered later that could be delivered now.
const LAST_SENDING: Duration = Duration::from_secs(1);
/// With a directory: how long requests in flight may take after that. What comes of later ones is sent again.
const LAST_ANSWERS: Duration = Duration::from_secs(3);
/// How long the disk may take to hold what is left.
const LAST_WRITES: Duration = Duration::from_secs(30);

/// What a delivery held when the engine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub delivery: DeliveryId,
    pub items: u64,
    pub bytes: u64,
}

/// What the end left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Farewell {
    /// Was in memory only, and is lost.
    pub lost: Vec<Undelivered>,
    /// Is on disk, and goes on with the next start. What could not be written of it is in `unwritten` too.
    pub kept: Vec<Undelivered>,
    /// Could not be written: signal, items, bytes.
    pub unwritten: Vec<(Signal, u64, u64)>,
}

impl Engine {
    /// Ends in order: unready, receivers finish what is in flight, deliveries send what is left (in memory) or leave it on disk, all that
    /// for at most `drain_timeout`; then the disk takes what it does not have yet.
    pub async fn shutdown(mut self, drain_timeout: Duration) -> Farewell {
        self.status.ready.store(false, Ordering::Release);
        let deadline = Instant::now() + drain_timeout;
        let receivers = std::mem::take(&mut self.receivers);
        let receivers = futures_util::future::join_all(receivers.into_iter().map(|running| running.handle.shutdown()));
        let mut receivers = std::pin::pin!(receivers);
        // Deliveries and disk go on meanwhile: requests in flight may wait for them.
        let all_answered = tokio::time::timeout_at(deadline.into(), receivers.as_mut()).await.is_ok();
        if !all_answered {
            self.intakes.values().for_each(|intake| intake.close());
        }
        let mut farewell = Farewell::default();
        if self.storage.directory().is_some() {
            farewell.kept = self.leave_deliveries(deadline).await;
            let unwritten = self.storage.close(LAST_WRITES).await;
            farewell.unwritten = unwritten.into_iter().map(|(signal, held)| (signal, held.items, held.bytes)).collect();
        } else {
            farewell.lost = self.drain_deliveries(deadline).await;
        }
        self.status.shown.store(Arc::default());
        if !all_answered {
            // The log has let go of what senders still waited for, so that they are told to come back.
            let _ = tokio::time::timeout(FAREWELL, receivers).await;
        }
        for running in std::mem::take(&mut self.exporters).into_values() {
            running.exporter.shutdown().await;
        }
        self.watcher.abort();
        farewell
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

    /// Healthy deliveries send for a moment, the others hand over at once; all wait for what is in flight.
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

/// Waits until the task has ended by itself, and leaves it to be joined.
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
