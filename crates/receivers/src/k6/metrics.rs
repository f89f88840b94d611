//! The receiver's metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use sluice_flow::Tally;
use sluice_otlp::Signal;
use sluice_telemetry::exposition::Exposition;
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use crate::files::Counters;
use crate::ledger::{Received, WITH_POINTS, by_measurement};
use crate::receiver::ReceiverCounters;
use crate::untold::Untold;

#[derive(Default)]
pub(super) struct K6Counters {
    pub(super) files: Arc<Counters>,
    received: Received,
    faults: AtomicU64,
    untold: Untold,
}

impl K6Counters {
    /// Counts a request that the log has taken.
    pub(super) fn note_received(&self, request: &Bytes) {
        // It is of our own making, and valid.
        let Received(tally) = &self.received;
        let _ = sluice_influx::count_points(request, |name, points| tally.add(name, points));
    }

    /// Counts a line that is left out, and logs such lines now and then.
    pub(super) fn count_fault(&self, path: &str, offset: u64, reason: &str) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        if let Some(lines) = self.untold.count(Instant::now()) {
            tracing::warn!(path, offset, lines, reason, "leaves out lines that are no samples");
        }
    }
}

#[cfg(test)]
impl K6Counters {
    pub(super) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }
}

impl ReceiverCounters for K6Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }

    fn received(&self) -> Option<&Tally> {
        Some(&self.received.0)
    }
}

pub(super) const METRICS: Table<K6Counters> = Table {
    title: "Receiver k6",
    labels: &["receiver"],
    metrics: &[
        row!(Counter "otelcol_receiver_accepted" by ["transport"],
            |it: &K6Counters, series| series.add_items(
                Signal::Metrics.items_name(), &["files"], it.files.accepted_records.value()),
            "Items that were accepted.")
        .by_items(),
        row!(Counter "sluice_k6_read" in "bytes",
            |it: &K6Counters| it.files.read_bytes.value(),
            "Bytes of accepted lines, inflated, with their ends."),
        row!(Counter "sluice_ledger_received_points" by ["measurement"],
            |it: &K6Counters, series| by_measurement(series, &it.received),
            "Points that the log, or a processor before it, has taken, by measurement. Beyond k6's \
             own and 256 further measurements, the points of all others count as `#others`.")
        .only(WITH_POINTS),
        row!(Counter "sluice_k6_faults",
            |it: &K6Counters| it.faults.value(),
            "Lines that are no samples. They are left out."),
        row!(Counter "sluice_k6_refused_requests",
            |it: &K6Counters| it.files.refused_requests.value(),
            "Requests that were refused. Their lines are read again."),
        row!(Counter "sluice_k6_skipped_points",
            |it: &K6Counters| it.files.skipped_records.value(),
            "Points that were refused for good, each alone. They are lost."),
        row!(Gauge "sluice_k6_files",
            |it: &K6Counters| it.files.files.value(),
            "Files that are followed."),
        row!(Gauge "sluice_k6_open_files",
            |it: &K6Counters| it.files.open_files.value(),
            "Files that are open."),
        row!(Gauge "sluice_k6_unread" in "bytes",
            |it: &K6Counters| it.files.unread_bytes.value(),
            "Bytes of files that were not read yet, as they are stored: how far reading is behind. \
             While reading has stopped it is up to 30 s old."),
        row!(Counter "sluice_k6_rotated_files",
            |it: &K6Counters| it.files.rotated_files.value(),
            "Files that left their path while they were followed: renamed or removed."),
        row!(Counter "sluice_k6_truncated_files",
            |it: &K6Counters| it.files.truncated_files.value(),
            "Files that were truncated or written anew while they were followed."),
        row!(Counter "sluice_k6_failed_reads",
            |it: &K6Counters| it.files.failed_reads.value(),
            "Failures to open or to read a file. Each is tried again."),
        row!(Counter "sluice_k6_lost_files",
            |it: &K6Counters| it.files.lost_files.value(),
            "Files that went away before they were read to their end, or before what was read was \
             delivered, or while Sluice did not run."),
        row!(Counter "sluice_k6_lost" in "bytes",
            |it: &K6Counters| it.files.lost_bytes.value(),
            "Bytes of such files that were not delivered, as far as known."),
        row!(Counter "sluice_k6_closed_files",
            |it: &K6Counters| it.files.closed_files.value(),
            "Renamed files that are no longer followed, as there were too many: nothing had come \
             for 30 s, and what is written later is lost."),
        row!(Counter "sluice_k6_failed_checkpoints",
            |it: &K6Counters| it.files.failed_checkpoints.value(),
            "Checkpoints that could not be written."),
    ],
};
