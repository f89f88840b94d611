//! A periodic reader: collects own metrics at its interval. Reports wait to be sent, within a bound
//! in bytes, but for the newest.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sluice_telemetry::exposition::Families;
use sluice_telemetry::otlp::metrics::{Report, Reports};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::sender::{Request, Source};
use super::stats::PushStats;
use crate::metrics;
use crate::status::EngineStatus;

/// Of the engine, once it has started.
pub(super) type Status = Arc<OnceLock<Arc<EngineStatus>>>;

pub(super) struct Reader {
    reports: Mutex<Reports>,
    waiting: Mutex<Waiting>,
    bytes_max: usize,
    filled: Notify,
    pub stats: Arc<PushStats>,
}

#[derive(Default)]
struct Waiting {
    reports: VecDeque<Report>,
    bytes: usize,
}

impl Reader {
    pub(super) fn new(reports: Reports, bytes_max: usize, stats: Arc<PushStats>) -> Reader {
        let (reports, waiting) = (Mutex::new(reports), Mutex::default());
        Reader { reports, waiting, bytes_max, filled: Notify::new(), stats }
    }

    /// Reports at each interval until it is stopped.
    pub(super) async fn run(&self, status: Status, interval: Duration, stop: CancellationToken) {
        let mut ticks = interval_at(tokio::time::Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            if let Some(status) = status.get() {
                self.report(&metrics::families(status), SystemTime::now());
            }
        }
    }

    pub(super) fn report(&self, families: &Families, now: SystemTime) {
        let report = self.reports.lock().next(families, now);
        let mut waiting = self.waiting.lock();
        waiting.bytes += report.request.len();
        waiting.reports.push_back(report);
        while waiting.bytes > self.bytes_max && waiting.reports.len() > 1 {
            let oldest = waiting.pop();
            self.dropped(oldest.as_ref());
        }
        self.show(&waiting);
        drop(waiting);
        self.filled.notify_one();
    }

    /// Differences count from now.
    pub(super) fn begin_at(&self, families: &Families, now: SystemTime) {
        let _ = self.reports.lock().next(families, now);
    }

    fn dropped(&self, report: Option<&Report>) {
        let points = report.map_or(0, |report| u64::from(report.points));
        self.stats.dropped_items.fetch_add(points, Ordering::Relaxed);
    }

    fn show(&self, waiting: &Waiting) {
        self.stats.waiting_reports.store(waiting.reports.len() as u64, Ordering::Relaxed);
    }
}

impl Waiting {
    fn pop(&mut self) -> Option<Report> {
        let report = self.reports.pop_front()?;
        self.bytes -= report.request.len();
        Some(report)
    }
}

impl Source for Reader {
    type Kept = Report;

    async fn ready(&self) {
        while self.waiting.lock().reports.is_empty() {
            self.filled.notified().await;
        }
    }

    fn take(&self) -> Option<Request<Report>> {
        let mut waiting = self.waiting.lock();
        let report = waiting.pop()?;
        self.show(&waiting);
        Some(Request { body: report.request.clone(), items: report.points, kept: report })
    }

    fn put_back(&self, report: Report) {
        let mut waiting = self.waiting.lock();
        let bytes = waiting.bytes + report.request.len();
        if bytes > self.bytes_max && !waiting.reports.is_empty() {
            self.dropped(Some(&report));
            return;
        }
        waiting.bytes = bytes;
        waiting.reports.push_front(report);
        self.show(&waiting);
    }
}
