//! Shutdown. Data in memory must be delivered first; data on disk stays for the next start.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sluice_flow::dispatch::State;
use sluice_log::{Holding, Keep};
use sluice_otlp::Signal;

use super::deliveries::release;
use super::{Engine, RunningReceiver};
use crate::delivery::{DeliveryId, Stop};
use crate::metrics;

/// The time for receivers that fetch to write their checkpoints.
const LAST_CHECKPOINTS: Duration = Duration::from_secs(3);
/// At the end of the drain: the time for answers to senders that still wait.
const REMAINING_ANSWERS: Duration = Duration::from_secs(1);
/// Before that: the time for receivers to count what they could not hand on.
const LAST_COUNTS: Duration = Duration::from_millis(100);
/// With a directory: healthy deliveries may send for this long, to leave little for the next start.
const LAST_SENDING: Duration = Duration::from_secs(1);
/// With a directory: the time for requests in flight after that. The next start sends the rest.
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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// In memory only: lost. So is what was aggregated, whatever its receivers read again.
    pub lost: Vec<Undelivered>,
    /// In memory only, but all their receivers read it again at the next start.
    pub read_again: Vec<Undelivered>,
    /// On disk: the next start delivers it. Unwritten frames are also in `unwritten`.
    pub kept: Vec<Undelivered>,
    /// Not written: signal, items, bytes.
    pub unwritten: Vec<(Signal, u64, u64)>,
}

impl Engine {
    /// Shuts down in order: unready; receivers finish requests in flight, and those that fetch get
    /// no more in; processors write what they keep back; deliveries send the rest, or leave it on
    /// disk: all within `drain_timeout`. Then frames that are not written yet are written, and
    /// receivers that fetch end.
    pub async fn shutdown(mut self, drain_timeout: Duration) -> ShutdownReport {
        self.status.ready.store(false, Ordering::Release);
        let deadline = Instant::now() + drain_timeout;
        let (answering, fetching): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.receivers).into_iter().partition(|running| !running.fetches);
        fetching.iter().for_each(|running| self.intakes[&running.id].close());
        let mut ending = std::mem::take(&mut self.ending);
        // All at once: their listeners close first, then requests in flight end.
        answering.into_iter().for_each(|running| {
            ending.spawn(running.end());
        });
        let mut answering = std::pin::pin!(async { while ending.join_next().await.is_some() {} });
        // Deliveries and disk continue meanwhile: requests in flight may wait for them. One that
        // never ends leaves deliveries half of the time.
        let mut all_answered =
            tokio::time::timeout(drain_timeout / 2, answering.as_mut()).await.is_ok();
        if !all_answered {
            self.intakes.values().for_each(|intake| intake.close());
            // Receivers whose senders get no answers count what they have left, for the last
            // metrics.
            all_answered = tokio::time::timeout(LAST_COUNTS, answering.as_mut()).await.is_ok();
        }
        self.end_emitters();
        let stays = self.storage.directory().is_some();
        let undelivered = self.end_deliveries(stays, deadline).await;
        // Deliveries that a reload has removed still send frames in memory, and report the loss.
        let _ = tokio::time::timeout_at(deadline.into(), self.wait_while_leaving(|_| true)).await;
        let unwritten = self.storage.close(LAST_WRITES).await;
        let amounts = |(signal, held): (_, Holding)| (signal, held.items, held.bytes);
        let unwritten = unwritten.into_iter().map(amounts).collect();
        let _ = self.status.last_metrics.set(metrics::families(&self.status));
        self.status.shown.store(Arc::default());
        if !all_answered {
            // The log has released the frames: senders that waited get a retryable refusal.
            let _ = tokio::time::timeout(REMAINING_ANSWERS, answering).await;
        }
        // Only now is all their data resolved or on disk, as far as it ever will be: with an
        // earlier checkpoint it would arrive twice.
        let ends = join_all(fetching.into_iter().map(RunningReceiver::end));
        let _ = tokio::time::timeout(LAST_CHECKPOINTS, ends).await;
        for running in std::mem::take(&mut self.exporters).into_values() {
            running.exporter.shutdown();
        }
        self.watcher.abort();
        self.backlog.set_routes(&[], &[]);
        let mut report = ShutdownReport { unwritten, ..ShutdownReport::default() };
        for (is_read_again, undelivered) in undelivered {
            let list = match (stays, is_read_again) {
                (true, _) => &mut report.kept,
                (false, true) => &mut report.read_again,
                (false, false) => &mut report.lost,
            };
            list.push(undelivered);
        }
        report
    }

    /// Returns the backlogs of all deliveries, and whether they are read again. If they stay on
    /// disk, healthy deliveries go on for a moment, the rest hand over, and all wait for their
    /// answers. If not, all may send until the deadline.
    async fn end_deliveries(&mut self, stays: bool, deadline: Instant) -> Vec<(bool, Undelivered)> {
        let (mut sending_until, mut answers_until) = (deadline, deadline);
        if stays {
            sending_until = deadline.min(Instant::now() + LAST_SENDING);
            answers_until = deadline.min(sending_until + LAST_ANSWERS);
        }
        let keep = if stays { Keep::Backlog } else { Keep::Nothing };
        let ends = std::mem::take(&mut self.deliveries).into_values().map(async |running| {
            let is_healthy = *running.delivery.stats.state.lock() == State::Open;
            let stop = if stays && !is_healthy { Stop::HandOver } else { Stop::Drain };
            let is_read_again = running.plan.is_read_again;
            let delivery = running.end(stop, sending_until, answers_until).await;
            (is_read_again, release(&self.backlog, &delivery, keep))
        });
        let undelivered = join_all(ends).await;
        undelivered.into_iter().filter(|(_, it)| it.items > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::SystemEnvironment;

    use super::*;

    /// Scenario: an orderly end while the backend is down, with points of a file in a bucket.
    /// Guarantee: they are reported as lost, since the file is not read again for them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn points_that_were_aggregated_are_reported_as_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().display();
        let point = "{\"type\":\"Point\",\"metric\":\"vus\",\"data\":\
                     {\"time\":\"2024-05-01T10:00:00Z\",\"value\":1,\"tags\":{}}}\n";
        std::fs::write(folder.path().join("a.json"), point).expect("is written");
        let text = format!(
            "receivers: {{k6: {{include: ['{at}/*.json'], storage: file_storage}}}}\n\
             processors: {{interval: {{}}}}\n\
             exporters: {{otlphttp: {{endpoint: 'http://127.0.0.1:1'}}}}\n\
             extensions: {{file_storage: {{directory: '{at}'}}}}\n\
             service:\n  extensions: [file_storage]\n  \
             telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n    \
             metrics: {{receivers: [k6], processors: [interval], exporters: [otlphttp]}}\n"
        );
        let (plan, said) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
        let plan = plan.unwrap_or_else(|| panic!("{}", said.render(false)));
        let engine = Engine::start(plan, None).await.expect("starts");
        let steps = &engine.plan.as_ref().expect("is applied").steps;
        let emitter = steps.values().find_map(|step| step.processor.emitter()).expect("there");
        let since = Instant::now();
        while emitter.counts().open_buckets == 0 {
            assert!(since.elapsed() < Duration::from_secs(60), "nothing is read");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let report = engine.shutdown(Duration::from_millis(100)).await;
        let items = |them: &[Undelivered]| them.iter().map(|it| it.items).sum::<u64>();
        assert_eq!((items(&report.lost), items(&report.read_again)), (1, 0));
        assert!(report.kept.is_empty() && report.unwritten.is_empty());
    }
}
