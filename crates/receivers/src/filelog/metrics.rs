//! The receiver's metrics.

use sluice_otlp::Signal;
use sluice_telemetry::exposition::Exposition;
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use crate::files::Counters;
use crate::receiver::ReceiverCounters;

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }
}

pub(super) const METRICS: Table<Counters> = Table {
    title: "Receiver filelog",
    labels: &["receiver"],
    metrics: &[
        row!(Counter "otelcol_receiver_accepted" by ["transport"],
            |it: &Counters, series| series.add_items(
                Signal::Logs.items_name(), &["files"], it.accepted_records.value()),
            "Items that were accepted.")
        .by_items(),
        row!(Counter "sluice_filelog_read" in "bytes",
            |it: &Counters| it.read_bytes.value(),
            "Bytes of accepted records, inflated, with the ends of their lines."),
        row!(Counter "sluice_filelog_refused_requests",
            |it: &Counters| it.refused_requests.value(),
            "Requests that were refused. Their lines are read again."),
        row!(Counter "sluice_filelog_skipped_records",
            |it: &Counters| it.skipped_records.value(),
            "Records that were refused for good, each alone. They are lost."),
        row!(Gauge "sluice_filelog_files",
            |it: &Counters| it.files.value(),
            "Files that are followed."),
        row!(Gauge "otelcol_fileconsumer_open_files",
            |it: &Counters| it.open_files.value(),
            "Files that are open."),
        row!(Gauge "sluice_filelog_unread" in "bytes",
            |it: &Counters| it.unread_bytes.value(),
            "Bytes of files that were not read yet, as they are stored: how far reading is behind. \
             While reading has stopped it is up to 30 s old."),
        row!(Counter "sluice_filelog_rotated_files",
            |it: &Counters| it.rotated_files.value(),
            "Files that left their path while they were followed: renamed or removed."),
        row!(Counter "sluice_filelog_truncated_files",
            |it: &Counters| it.truncated_files.value(),
            "Files that were truncated or written anew while they were followed."),
        row!(Counter "sluice_filelog_failed_reads",
            |it: &Counters| it.failed_reads.value(),
            "Failures to open or to read a file. Each is tried again."),
        row!(Counter "sluice_filelog_lost_files",
            |it: &Counters| it.lost_files.value(),
            "Files that went away before they were read to their end, or before what was read was \
             delivered, or while Sluice did not run."),
        row!(Counter "sluice_filelog_lost" in "bytes",
            |it: &Counters| it.lost_bytes.value(),
            "Bytes of such files that were not delivered, as far as known."),
        row!(Counter "sluice_filelog_closed_files",
            |it: &Counters| it.closed_files.value(),
            "Renamed files that are no longer followed, as there were too many: nothing had come \
             for 30 s, and what is written later is lost."),
        row!(Counter "sluice_filelog_forgotten_files",
            |it: &Counters| it.forgotten_files.value(),
            "Missing files that were forgotten, as there were too many: read anew if they come \
             back."),
        row!(Counter "sluice_filelog_shortened_files",
            |it: &Counters| it.shortened_files.value(),
            "Files that had lost their end at a start, and are read on there."),
        row!(Counter "sluice_filelog_failed_checkpoints",
            |it: &Counters| it.failed_checkpoints.value(),
            "Checkpoints that could not be written."),
        row!(Counter "sluice_filelog_operator_errors",
            |it: &Counters| it.operator_errors.value(),
            "Failures of operators on records."),
        row!(Counter "sluice_filelog_dropped_records",
            |it: &Counters| it.dropped_records.value(),
            "Records that were dropped as `on_error` says."),
        row!(Counter "sluice_filelog_filtered_records",
            |it: &Counters| it.filtered_records.value(),
            "Records that a `filter` dropped, or that no route of a `router` took."),
        row!(Counter "sluice_filelog_incomplete_records",
            |it: &Counters| it.let_go_records.value(),
            "Records that left an operator before they were whole, as operators held too much."),
    ],
};
