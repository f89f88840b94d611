//! Counters of scrapes, and the receiver's metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use super::convert::Encoded;
use super::failure::{Failure, Reason};
use crate::receiver::ReceiverCounters;
use crate::scraping::Taken;
use crate::untold::Untold;

/// They grow only.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) taken: Taken,
    scrapes: AtomicU64,
    failed_scrapes: [AtomicU64; Reason::ALL.len()],
    missed_scrapes: AtomicU64,
    answer_bytes: AtomicU64,
    skipped_objects: AtomicU64,
    untold_skips: Untold,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn missed(&self, slots: u64) {
        add(&self.missed_scrapes, slots);
    }

    pub(super) fn scraped(&self, failure: Option<&Failure>) {
        add(&self.scrapes, 1);
        if let Some(failure) = failure {
            add(&self.failed_scrapes[failure.reason as usize], 1);
        }
    }

    pub(super) fn answered(&self, answer_bytes: usize) {
        add(&self.answer_bytes, answer_bytes as u64);
    }

    /// Counts objects without metadata, and logs such now and then.
    pub(super) fn skipped(&self, receiver: &str, encoded: &Encoded) {
        let Encoded { skipped, reason, .. } = encoded;
        add(&self.skipped_objects, *skipped);
        if let Some(why) = reason
            && self.untold_skips.count(Instant::now()).is_some()
        {
            let (left_out, metadata) = (*skipped, "their metadata is not known");
            tracing::warn!(
                receiver,
                left_out,
                why,
                "containers or volumes are left out: {metadata}"
            );
        }
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
    title: "Receiver kubeletstats",
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
        row!(Counter "sluice_kubeletstats_scrapes",
            |it: &Counters| it.scrapes.value(),
            "Scrapes that gave metrics, and those that have failed."),
        row!(Counter "sluice_kubeletstats_failed_scrapes" by ["reason"], failed,
            "Scrapes that yield nothing, as the kubelet gives no metrics."),
        row!(Counter "sluice_kubeletstats_missed_scrapes",
            |it: &Counters| it.missed_scrapes.value(),
            "Scrapes that were left out, as the one before took longer than the interval."),
        row!(Counter "sluice_kubeletstats_answer" in "bytes",
            |it: &Counters| it.answer_bytes.value(),
            "Bytes of the kubelet's answers."),
        row!(Counter "sluice_kubeletstats_skipped_objects",
            |it: &Counters| it.skipped_objects.value(),
            "Containers and volumes that were left out of a scrape, as `extra_metadata_labels` \
             wants of them what is not known."),
    ],
};
