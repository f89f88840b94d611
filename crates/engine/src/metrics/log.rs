//! Metrics of the logs, and their content in words.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use sluice_flow::hop::Totals;
use sluice_log::{Holding, Log, LogStats};
use sluice_otlp::Signal;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::Table;

use crate::delivery::Delivery;
use crate::entry::Entry;
use crate::status::EngineStatus;
use crate::storage::Storage;

/// One log at one moment.
pub(super) struct Sample {
    log: Arc<Log<Entry>>,
    stats: LogStats,
    known: Totals,
    stored_bytes: u64,
    /// Zero in memory, where nothing is to be written.
    unwritten_bytes: u64,
    is_in_trouble: bool,
}

pub(super) fn write(exposition: &mut Exposition<'_>, storage: &Storage) {
    for signal in Signal::ALL {
        let log = storage.log(signal);
        let sample = Sample {
            stats: log.stats(),
            known: storage.known[signal as usize].totals(),
            stored_bytes: log.stored_bytes(),
            unwritten_bytes: if log.is_on_disk() { log.unwritten_bytes() } else { 0 },
            is_in_trouble: log.trouble().is_some(),
            log: log.clone(),
        };
        exposition.write(&LOGS, &[signal.as_str()], &sample);
    }
}

impl Sample {
    fn add_orphans(&self, series: &mut Series<'_, '_>, of: fn(&Holding) -> u64) {
        for orphan in self.log.orphans().iter().filter(|orphan| !orphan.is_lost) {
            series.add(&[&orphan.name], of(&orphan.held) as f64);
        }
    }
}

/// All but the first six are zero where telemetry is in memory only.
pub(super) const LOGS: Table<Sample> = Table {
    title: "Logs",
    labels: &["signal"],
    metrics: &[
        row!(Gauge "sluice_log_stored" in "bytes" = stored_bytes,
            "Bytes of frames in memory that a delivery still needs."),
        row!(Gauge "sluice_log_unwritten" in "bytes" = unwritten_bytes,
            "Bytes of frames in memory that a delivery still needs and that are not on disk."),
        row!(Counter "sluice_log_repeated_requests" = known.repeated_requests,
            "Requests of other Sluices that the log has had: they were acknowledged and not stored \
             again."),
        row!(Gauge "sluice_log_known_sources" = known.sources,
            "Deliveries of other Sluices whose repeated requests the log would know."),
        row!(Gauge "sluice_log_known_ranges" = known.ranges,
            "Ranges remembered from other Sluices."),
        row!(Counter "sluice_log_forgotten_ranges" = known.evicted_ranges,
            "Ranges that were forgotten to make room for newer ones: repeated, they would be \
             stored again."),
        row!(Gauge "sluice_log_trouble" = is_in_trouble,
            "1 while reading from or writing to the disk fails."),
        row!(Gauge "sluice_log_disk" in "bytes" = stats.disk_bytes,
            "Length of all segment files, reserved space and files that were set aside or cannot \
             be removed included."),
        row!(Gauge "sluice_log_segments" = stats.segments, "Segment files."),
        row!(Counter "sluice_log_written_frames" = stats.frames_written,
            "Frames written to disk."),
        row!(Counter "sluice_log_written" in "bytes" = stats.bytes_written,
            "Bytes written to segment files."),
        row!(Counter "sluice_log_syncs" = stats.commits, "Group commits, each with one sync."),
        row!(Counter "sluice_log_cursor_writes" = stats.cursor_writes,
            "Writes of cursor files, each with one sync."),
        row!(Counter "sluice_log_read_frames" = stats.frames_read,
            "Frames read back from disk."),
        row!(Counter "sluice_log_evicted_frames" = stats.frames_evicted,
            "Frames removed from memory because they are on disk."),
        row!(Counter "sluice_log_damaged_frames" = stats.frames_damaged,
            "Damaged places on disk that were skipped, each with a frame or more."),
        row!(Counter "sluice_log_newer_frames" = stats.frames_of_newer_release,
            "Frames on disk that were skipped because only a newer release can read them."),
        row!(Gauge "sluice_log_set_aside_files" = stats.set_aside_files,
            "Files that are kept because something in them could not be read."),
        row!(Gauge "sluice_log_set_aside" in "bytes" = stats.set_aside_bytes,
            "Length of these files, which count as used disk."),
        row!(Gauge "sluice_log_unremoved_files" = stats.unremoved_files,
            "Files that no delivery needs and that cannot be removed; they count as used disk."),
        row!(Gauge "sluice_log_lost_cursors" = stats.lost_cursors,
            "Cursor files that are gone or cannot be read: everything on disk is kept for them."),
        row!(Gauge "sluice_log_missing_frames" = stats.missing_frames,
            "Frames that deliveries wait for and that the start found in no file; they count as \
             lost once the delivery has come to the end."),
        row!(Counter "sluice_log_rewrites" = stats.rewrites,
            "Segments rewritten with only the frames that a delivery still needs."),
        row!(Counter "sluice_log_write_failures" = stats.failures,
            "Writes and syncs that failed."),
        row!(Counter "sluice_log_disturbed_files" = stats.disturbed_files,
            "Files that other processes removed, moved away or cut while they were written."),
        row!(Gauge "sluice_log_orphan_items" by ["delivery"],
            |it: &Sample, series| it.add_orphans(series, |held| held.items),
            "Items on disk that wait for a delivery which is not in the configuration.")
        .only(WITH_ORPHANS),
        row!(Gauge "sluice_log_orphan" by ["delivery"] in "bytes",
            |it: &Sample, series| it.add_orphans(series, |held| held.bytes),
            "Bytes on disk that wait for a delivery which is not in the configuration.")
        .only(WITH_ORPHANS),
    ],
};

const WITH_ORPHANS: &str = "there is such a delivery";

/// The backlogs in the logs by delivery, with the ranges that were dropped and their age.
pub(crate) fn text(status: &EngineStatus) -> String {
    let (shown, storage) = (status.shown.load(), &status.storage);
    let mut text = match storage.directory() {
        Some(directory) => format!("stored on disk in {}\n", directory.display()),
        None => "in memory only\n".to_owned(),
    };
    for signal in Signal::ALL {
        let log = storage.log(signal);
        let orphans = log.orphans();
        let deliveries = shown.deliveries.iter().map(|(_, delivery)| delivery);
        let deliveries: Vec<_> = deliveries.filter(|delivery| delivery.signal == signal).collect();
        if orphans.is_empty() && deliveries.is_empty() {
            continue;
        }
        let (stored_bytes, stats) = (log.stored_bytes(), log.stats());
        let _ = writeln!(
            text,
            "{signal}: {stored_bytes} bytes in memory, {} bytes on disk in {} segments",
            stats.disk_bytes, stats.segments
        );
        for path in log.set_aside() {
            let _ =
                writeln!(text, "  set aside, something in it cannot be read: {}", path.display());
        }
        if let Some(trouble) = log.trouble() {
            let _ = writeln!(text, "  the disk does not work: {}", trouble.reason);
        }
        for file in log.unremoved() {
            let _ = writeln!(text, "  cannot be removed: {} ({})", file.path.display(), file.why);
        }
        for (name, frames) in log.missing() {
            let _ = writeln!(text, "  {frames} frames that {name} waits for are in no file");
        }
        deliveries.iter().for_each(|delivery| describe_delivery(&mut text, delivery));
        for orphan in orphans {
            let left = match orphan.is_lost {
                true => "a lost cursor: everything on disk is kept for it".to_owned(),
                false => {
                    let held = holding(orphan.held, orphan.oldest_age);
                    format!("{held}; the configuration does not have it")
                }
            };
            let _ = writeln!(text, "  {}: {left}", orphan.name);
        }
    }
    text
}

fn describe_delivery(text: &mut String, delivery: &Delivery) {
    let backlog = delivery.log.held(delivery.cursor);
    let age = delivery.log.oldest_age(delivery.cursor);
    let _ = writeln!(text, "  {}: {}", delivery.id, holding(backlog, age));
    if let Some(age) = delivery.stats.in_flight_age() {
        let count = delivery.stats.in_flight.load(Ordering::Relaxed);
        let _ = writeln!(
            text,
            "    {count} requests of these in flight, the oldest was sent {} s ago",
            age.as_secs()
        );
    }
    for range in delivery.log.dropped_ranges(delivery.cursor) {
        let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(range.dropped_unix_ns);
        let ago = SystemTime::now().duration_since(at).unwrap_or_default().as_secs();
        let _ =
            writeln!(text, "    {} items were dropped, the last {ago} s ago", range.dropped.items);
    }
}

fn holding(Holding { frames, items, bytes }: Holding, age: Option<Duration>) -> String {
    let oldest = age.map(|age| format!(", the oldest {} s old", age.as_secs())).unwrap_or_default();
    format!("{items} items in {frames} frames ({bytes} bytes){oldest}")
}
