//! Counters of scrapes and targets, the receiver's metrics, and the way from a receiver to the one
//! that takes its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use sluice_scrape::Counts;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};
use tokio::sync::oneshot;

use super::budget::SeriesBudget;
use super::failure::{Failure, Reason};
use super::targets::Handed;
use crate::receiver::ReceiverCounters;
use crate::scraping::Taken;
use crate::untold::Untold;

/// Counters grow only; targets and memory are those of now.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) taken: Taken,
    scrapes: AtomicU64,
    failed_scrapes: [AtomicU64; Reason::ALL.len()],
    missed_scrapes: AtomicU64,
    page_bytes: AtomicU64,
    discarded_samples: AtomicU64,
    targets: AtomicU64,
    up_targets: AtomicU64,
    unscraped_targets: AtomicU64,
    pub(super) budget: Arc<SeriesBudget>,
    untold: [Untold; Reason::ALL.len()],
    /// A receiver runs that counts here.
    runs: AtomicBool,
    /// The receiver that takes its place.
    successor: Mutex<Option<oneshot::Sender<Handed>>>,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Counters {
    /// A receiver begins to count here. Returns the way from the one that still does.
    pub(super) fn begin(&self) -> Option<oneshot::Receiver<Handed>> {
        if !self.runs.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        *self.successor.lock() = Some(sender);
        Some(receiver)
    }

    /// A receiver ends. Returns the way to its successor, if it has one.
    pub(super) fn end(&self) -> Option<oneshot::Sender<Handed>> {
        let successor = self.successor.lock().take();
        if successor.is_none() {
            self.runs.store(false, Ordering::Release);
        }
        successor
    }

    pub(super) fn missed(&self, slots: u64) {
        add(&self.missed_scrapes, slots);
    }

    /// Counts a scrape, and logs failures now and then.
    pub(super) fn scraped(
        &self,
        receiver: &str,
        job: &str,
        target: &str,
        failure: Option<&Failure>,
    ) {
        add(&self.scrapes, 1);
        let Some(Failure { reason, message }) = failure else { return };
        add(&self.failed_scrapes[*reason as usize], 1);
        if let Some(scrapes) = self.untold[*reason as usize].count(Instant::now()) {
            tracing::warn!(
                receiver,
                job,
                target,
                scrapes,
                reason = reason.as_str(),
                why = message,
                "scrapes fail: {}",
                reason.remedy()
            );
        } else {
            tracing::debug!(receiver, job, target, reason = reason.as_str(), why = message);
        }
    }

    pub(super) fn page(&self, counts: &Counts, page_bytes: usize) {
        add(&self.page_bytes, page_bytes as u64);
        add(&self.discarded_samples, counts.discarded);
    }

    pub(super) fn note_up(&self, is_up: bool) {
        if is_up {
            add(&self.up_targets, 1);
        } else {
            self.up_targets.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn note_targets(&self, scraped: usize, unscraped: usize) {
        self.targets.store(scraped as u64, Ordering::Relaxed);
        self.unscraped_targets.store(unscraped as u64, Ordering::Relaxed);
    }
}

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }
}

fn failed(it: &Counters, series: &mut Series<'_, '_>) {
    for ((_, reason, _), count) in Reason::ALL.iter().zip(&it.failed_scrapes) {
        series.add(&[reason], count.value());
    }
}

pub(super) const METRICS: Table<Counters> = Table {
    title: "Receiver prometheus",
    labels: &["receiver"],
    metrics: &[
        row!(Counter "otelcol_receiver_accepted" by ["transport"],
            |it: &Counters, series| it.taken.accepted_items(series),
            "Items that were accepted.")
        .by_items(),
        row!(Counter "otelcol_receiver_refused" by ["transport"],
            |it: &Counters, series| it.taken.refused_items(series),
            "Items of refused requests, if the items had been counted. Most requests are refused \
             before that: only sluice_receiver_refused_requests counts those.")
        .by_items(),
        row!(Counter "sluice_receiver_accepted_requests" by ["transport", "signal"],
            |it: &Counters, series| it.taken.accepted_requests(series),
            "Requests that were accepted: one a scrape."),
        row!(Counter "sluice_receiver_refused_requests" by ["transport", "signal", "reason"],
            |it: &Counters, series| it.taken.refused_requests(series),
            "Scrapes that the engine did not take. They are lost."),
        row!(Counter "sluice_prometheus_scrapes",
            |it: &Counters| it.scrapes.value(),
            "Scrapes that were reported, failed ones with them."),
        row!(Counter "sluice_prometheus_failed_scrapes" by ["reason"], failed,
            "Scrapes of targets that are down: `up` is 0."),
        row!(Counter "sluice_prometheus_missed_scrapes",
            |it: &Counters| it.missed_scrapes.value(),
            "Scrapes that were left out, as the one before took longer than the interval."),
        row!(Counter "sluice_prometheus_page" in "bytes",
            |it: &Counters| it.page_bytes.value(),
            "Bytes of pages, inflated."),
        row!(Counter "sluice_prometheus_discarded_samples",
            |it: &Counters| it.discarded_samples.value(),
            "Samples that cannot be taken: of a series that is there twice, of a point at several \
             times, of a bucket without its bound, of a classic histogram that makes no native \
             one, or more than ten minutes ahead."),
        row!(Gauge "sluice_prometheus_targets",
            |it: &Counters| it.targets.value(),
            "Targets that are scraped."),
        row!(Gauge "sluice_prometheus_up_targets",
            |it: &Counters| it.up_targets.value(),
            "Targets whose last scrape did not fail."),
        row!(Gauge "sluice_prometheus_unscraped_targets",
            |it: &Counters| it.unscraped_targets.value(),
            "Targets that are not scraped, as the memory for targets and series is spent."),
        row!(Gauge "sluice_prometheus_series" in "bytes",
            |it: &Counters| it.budget.used_bytes() as f64,
            "Memory for targets and their series."),
        row!(Gauge "sluice_prometheus_series_limit" in "bytes",
            |it: &Counters| it.budget.limit_bytes() as f64,
            "The limit of this memory: a part of the memory limit."),
    ],
};
