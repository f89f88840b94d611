//! Metrics of the logs, and what they hold in words.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_log::{Holding, Log, LogStats, Orphan};
use sluice_otlp::Signal;
use sluice_telemetry::exposition::Exposition;

use crate::delivery::Delivery;
use crate::entry::Entry;
use crate::storage::Storage;

/// A figure of each log.
pub(crate) struct LogMetric {
    /// Without the suffixes that the configuration asks for.
    pub name: &'static str,
    pub unit: &'static str,
    pub help: &'static str,
    pub is_counter: bool,
    value: fn(&LogStats) -> u64,
}

const fn counter(name: &'static str, unit: &'static str, help: &'static str, value: fn(&LogStats) -> u64) -> LogMetric {
    LogMetric { name, unit, help, is_counter: true, value }
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str, value: fn(&LogStats) -> u64) -> LogMetric {
    LogMetric { name, unit, help, is_counter: false, value }
}

/// With the label `signal`; zero where telemetry is held in memory only.
pub(crate) const OF_LOGS: &[LogMetric] = &[
    gauge("sluice_log_disk", "bytes", "Length of all segment files, reserved space included.", |stats| {
        stats.disk_bytes
    }),
    gauge("sluice_log_segments", "", "Segment files.", |stats| stats.segments),
    counter("sluice_log_written_frames", "", "Frames written to disk.", |stats| stats.frames_written),
    counter("sluice_log_written", "bytes", "Bytes written to segment files.", |stats| stats.bytes_written),
    counter("sluice_log_syncs", "", "Group commits, each with one sync.", |stats| stats.commits),
    counter("sluice_log_cursor_writes", "", "Writes of cursor files, each with one sync.", |stats| stats.cursor_writes),
    counter("sluice_log_read_frames", "", "Frames read back from disk.", |stats| stats.frames_read),
    counter("sluice_log_evicted_frames", "", "Frames let go from memory because they are on disk.", |stats| {
        stats.frames_evicted
    }),
    counter("sluice_log_damaged_frames", "", "Frames on disk that were damaged, and passed over.", |stats| {
        stats.frames_damaged
    }),
    counter("sluice_log_rewrites", "", "Segments written anew with only what is still wanted.", |stats| stats.rewrites),
    counter("sluice_log_write_failures", "", "Writes and syncs that failed.", |stats| stats.failures),
];

/// Further metrics of the log: name with unit, labels, meaning.
pub(crate) const OF_LOGS_BESIDE: &[(&str, &str, &str)] = &[
    ("sluice_log_stored_bytes", "signal", STORED),
    ("sluice_log_unwritten_bytes", "signal", UNWRITTEN),
    ("sluice_log_trouble", "signal", TROUBLE),
    ("sluice_log_orphan_items", "signal, delivery", ORPHAN_ITEMS),
    ("sluice_log_orphan_bytes", "signal, delivery", ORPHAN_BYTES),
    ("sluice_delivery_dropped_items_ever", "exporter, pipeline", DROPPED_EVER),
];

const STORED: &str = "Bytes of frames in memory that are not resolved everywhere.";
const UNWRITTEN: &str = "Those of them that are not on disk.";
const TROUBLE: &str = "1 while the disk does not work.";
const ORPHAN_ITEMS: &str = "Items on disk of a delivery that the configuration does not have.";
const ORPHAN_BYTES: &str = "Bytes on disk of a delivery that the configuration does not have.";
const DROPPED_EVER: &str =
    "Items that were ever dropped because the budget was spent, also before a restart where there is a directory.";

pub(super) fn render(exposition: &mut Exposition<'_>, storage: &Storage) {
    for signal in Signal::ALL {
        let log = storage.log(signal);
        let labels = [("signal", signal.as_str())];
        exposition.gauge("sluice_log_stored", "bytes", STORED, &labels, log.stored_bytes() as f64);
        let unwritten = if log.is_on_disk() { log.unwritten_bytes() } else { 0 };
        exposition.gauge("sluice_log_unwritten", "bytes", UNWRITTEN, &labels, unwritten as f64);
        let is_troubled = f64::from(u8::from(log.trouble().is_some()));
        exposition.gauge("sluice_log_trouble", "", TROUBLE, &labels, is_troubled);
        let stats = log.stats();
        for metric in OF_LOGS {
            let value = (metric.value)(&stats);
            if metric.is_counter {
                exposition.counter(metric.name, metric.unit, metric.help, &labels, value);
            } else {
                exposition.gauge(metric.name, metric.unit, metric.help, &labels, value as f64);
            }
        }
        for orphan in log.orphans() {
            let labels = [labels[0], ("delivery", orphan.name.as_str())];
            exposition.gauge("sluice_log_orphan_items", "", ORPHAN_ITEMS, &labels, orphan.held.items as f64);
            exposition.gauge("sluice_log_orphan", "bytes", ORPHAN_BYTES, &labels, orphan.held.bytes as f64);
        }
    }
}

pub(super) fn render_delivery(exposition: &mut Exposition<'_>, delivery: &Delivery, labels: &[(&str, &str)]) {
    let ever = delivery.log.dropped_total(delivery.cursor).items;
    exposition.gauge("sluice_delivery_dropped_items_ever", "", DROPPED_EVER, labels, ever as f64);
}

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
