//! Metrics of the logs, and what they hold in words.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_log::{Holding, Log, LogStats, Orphan};
use sluice_otlp::Signal;
use sluice_telemetry::exposition::Exposition;
use sluice_telemetry::table::{Metric, Table};

use crate::delivery::Delivery;
use crate::entry::Entry;
use crate::storage::Storage;

/// One log at one moment.
pub(super) struct Sample {
    log: Arc<Log<Entry>>,
    stats: LogStats,
}

pub(super) fn write(exposition: &mut Exposition<'_>, storage: &Storage) {
    for signal in Signal::ALL {
        let log = storage.log(signal);
        exposition.write(&LOGS, &[signal.as_str()], &Sample { log: log.clone(), stats: log.stats() });
    }
}

/// All but the first three are zero where telemetry is held in memory only.
pub(super) const LOGS: Table<Sample> = Table {
    title: "Logs",
    labels: &["signal"],
    metrics: &[
        Metric::gauge(
            "sluice_log_stored",
            "Bytes of frames in memory that are not resolved everywhere.",
            |sample: &Sample| sample.log.stored_bytes() as f64,
        )
        .unit("bytes"),
        Metric::gauge(
            "sluice_log_unwritten",
            "Bytes of frames in memory that are neither resolved everywhere nor on disk.",
            |sample: &Sample| {
                if sample.log.is_on_disk() { sample.log.unwritten_bytes() as f64 } else { 0.0 }
            },
        )
        .unit("bytes"),
        Metric::gauge("sluice_log_trouble", "1 while the disk does not work.", |sample: &Sample| {
            f64::from(sample.log.trouble().is_some())
        }),
        Metric::gauge("sluice_log_disk", "Length of all segment files, reserved space included.", |sample: &Sample| {
            sample.stats.disk_bytes as f64
        })
        .unit("bytes"),
        Metric::gauge("sluice_log_segments", "Segment files.", |sample: &Sample| sample.stats.segments as f64),
        Metric::counter("sluice_log_written_frames", "Frames written to disk.", |sample: &Sample| {
            sample.stats.frames_written as f64
        }),
        Metric::counter("sluice_log_written", "Bytes written to segment files.", |sample: &Sample| {
            sample.stats.bytes_written as f64
        })
        .unit("bytes"),
        Metric::counter("sluice_log_syncs", "Group commits, each with one sync.", |sample: &Sample| {
            sample.stats.commits as f64
        }),
        Metric::counter(
            "sluice_log_cursor_writes",
            "Writes of cursor files, each with one sync.",
            |sample: &Sample| sample.stats.cursor_writes as f64,
        ),
        Metric::counter("sluice_log_read_frames", "Frames read back from disk.", |sample: &Sample| {
            sample.stats.frames_read as f64
        }),
        Metric::counter(
            "sluice_log_evicted_frames",
            "Frames let go from memory because they are on disk.",
            |sample: &Sample| sample.stats.frames_evicted as f64,
        ),
        Metric::counter(
            "sluice_log_damaged_frames",
            "Frames on disk that were damaged, and passed over.",
            |sample: &Sample| sample.stats.frames_damaged as f64,
        ),
        Metric::counter(
            "sluice_log_rewrites",
            "Segments written anew with only what is still wanted.",
            |sample: &Sample| sample.stats.rewrites as f64,
        ),
        Metric::counter("sluice_log_write_failures", "Writes and syncs that failed.", |sample: &Sample| {
            sample.stats.failures as f64
        }),
        Metric::gauges(
            "sluice_log_orphan_items",
            &["delivery"],
            "Items on disk of a delivery that the configuration does not have.",
            |sample: &Sample, series| {
                for orphan in sample.log.orphans() {
                    series.add(&[&orphan.name], orphan.held.items as f64);
                }
            },
        )
        .only(WITH_ORPHANS),
        Metric::gauges(
            "sluice_log_orphan",
            &["delivery"],
            "Bytes on disk of a delivery that the configuration does not have.",
            |sample: &Sample, series| {
                for orphan in sample.log.orphans() {
                    series.add(&[&orphan.name], orphan.held.bytes as f64);
                }
            },
        )
        .unit("bytes")
        .only(WITH_ORPHANS),
    ],
};

const WITH_ORPHANS: &str = "there is such a delivery";

/// What the logs hold, for whom, and where there are gaps.
pub(crate) fn text<'a>(storage: &Storage, deliveries: impl Iterator<Item = &'a Delivery> + Clone) -> String {
    let mut text = match storage.directory() {
        Some(directory) => format!("held on disk in {}\n", directory.display()),
        None => "held in memory only\n".to_owned(),
    };
    for signal in Signal::ALL {
        let log = storage.log(signal);
        let orphans = log.orphans();
        let of_signal = deliveries.clone().filter(|delivery| delivery.signal == signal);
        if orphans.is_empty() && of_signal.clone().next().is_none() {
            continue;
        }
        describe_log(&mut text, signal, log);
        of_signal.for_each(|delivery| describe_delivery(&mut text, delivery));
        orphans.iter().for_each(|orphan| describe_orphan(&mut text, orphan));
    }
    text
}

fn describe_log(text: &mut String, signal: Signal, log: &Arc<Log<Entry>>) {
    let stats = log.stats();
    let _ = writeln!(
        text,
        "{signal}: {} bytes in memory, {} bytes on disk in {} segments",
        log.stored_bytes(),
        stats.disk_bytes,
        stats.segments
    );
    if let Some(trouble) = log.trouble() {
        let _ = writeln!(text, "  the disk does not work: {}", trouble.reason);
    }
}

fn describe_delivery(text: &mut String, delivery: &Delivery) {
    let held = delivery.log.held(delivery.cursor);
    let age = delivery.log.oldest_age(delivery.cursor);
    let _ = writeln!(text, "  {}: {}", delivery.id, holding(held, age));
    for gap in delivery.log.gaps(delivery.cursor) {
        let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(gap.dropped_unix_ns);
        let ago = SystemTime::now().duration_since(at).unwrap_or_default().as_secs();
        let _ = writeln!(text, "    {} items were dropped {ago} s ago", gap.dropped.items);
    }
}

fn describe_orphan(text: &mut String, orphan: &Orphan) {
    let held = holding(orphan.held, orphan.oldest_age);
    let _ = writeln!(text, "  {}: {held}; the configuration does not have it", orphan.name);
}

fn holding(held: Holding, age: Option<Duration>) -> String {
    let oldest = age.map(|age| format!(", the oldest {} s old", age.as_secs())).unwrap_or_default();
    format!("{} items in {} frames ({} bytes){oldest}", held.items, held.frames, held.bytes)
}
