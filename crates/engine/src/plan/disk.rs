//! Storage of telemetry on disk: its directory and its limits.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_config::document::{Acknowledge, Buffer, Document, Placed};
use sluice_config::{Diagnostic, Diagnostics, Span};
use sluice_log::dead_letters::directory_of;
use sluice_log::disk::{Disk, RealDisk};
use sluice_log::inspect::dead_letter_directories;
use sluice_otlp::Signal;

use super::read::Read;
use super::{MIB, MemoryPlan, storage};

/// Dead letters of a delivery, in MiB, if the configuration has no limit.
const DEAD_LETTERS_MIB: u64 = 64;
/// The limit if the size of the file system is unknown.
const LIMIT_UNKNOWN_BYTES: u64 = 1024 * MIB;
/// The smallest default; a disk with less space reports that itself.
const LIMIT_MIN_BYTES: u64 = 64 * MIB;
/// The whole divided by this is the longest segment: space comes free in segments.
const SEGMENT_SHARE: u64 = 16;
const READ_AHEAD_MAX_BYTES: u64 = 4 * MIB;
/// The log has files on this many levels below its directory.
const DIRECTORY_LEVELS: usize = 3;

/// The log on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    pub directory: PathBuf,
    /// A frame waits this long for deliveries before it is written. Zero with `ack: durable`.
    pub flush_after: Duration,
    pub segment_bytes: u64,
    /// For all logs and dead letters together.
    pub limit_bytes: u64,
    /// For the backlogs of all deliveries of all signals together.
    pub backlog_bytes: u64,
    /// Dead letters, a delivery.
    pub dead_letters_bytes: u64,
    /// Memory of all logs: frames that are not written yet, and written ones that are kept.
    pub tail_bytes: u64,
    /// Memory of one delivery: frames that it has taken from the log and not resolved.
    pub lease_bytes: u64,
    /// Memory of one delivery: frames that are read from disk ahead of it.
    pub read_ahead_bytes: u64,
}

/// Finds the acknowledgement, the directory and when frames are written, and contradictions.
pub(super) fn settings(
    document: &Document,
    read: &Read,
    diagnostics: &mut Diagnostics,
) -> (Acknowledge, Option<(PathBuf, Duration)>) {
    let directory = storage::directory(document, read, diagnostics);
    let ack = ack(&document.buffer, directory.is_some(), diagnostics);
    if directory.is_none() {
        warn_of_disk_options(document, diagnostics);
    }
    let flush_after = flush_after(&document.buffer, ack, directory.is_some(), diagnostics);
    (ack, directory.map(|directory| (PathBuf::from(directory), flush_after)))
}

fn ack(buffer: &Buffer, has_directory: bool, diagnostics: &mut Diagnostics) -> Acknowledge {
    let Some(Placed { value, span }) = &buffer.ack else {
        return if has_directory { Acknowledge::DeliveredOrDurable } else { Acknowledge::Memory };
    };
    let name = match value {
        Acknowledge::Memory | Acknowledge::Delivered => return *value,
        Acknowledge::DeliveredOrDurable => "delivered_or_durable",
        Acknowledge::Durable => "durable",
    };
    if !has_directory {
        let message = format!("`buffer.ack: {name}` needs a directory to hold telemetry in");
        let hint = "set `buffer.directory`, or `delivered`, which needs none";
        diagnostics.push(Diagnostic::error(*span, message).with_hint(hint));
    }
    *value
}

fn flush_after(
    buffer: &Buffer,
    ack: Acknowledge,
    has_directory: bool,
    diagnostics: &mut Diagnostics,
) -> Duration {
    let after = buffer.flush_after.as_ref().map_or(Buffer::FLUSH_AFTER, |placed| placed.value);
    let span = span_of(&buffer.flush_after);
    if ack == Acknowledge::Durable {
        if span.is_some() {
            let message = "`buffer.flush_after` has no effect: \
                           with `ack: durable` everything is written at once";
            diagnostics.warning(span, message);
        }
        return Duration::ZERO;
    }
    if has_directory && ack == Acknowledge::DeliveredOrDurable && buffer.linger >= after {
        let message = "`buffer.linger` must be less than `buffer.flush_after`, \
                       or everything is written before it can be delivered";
        diagnostics.error(span, message);
    }
    after
}

fn span_of<T>(placed: &Option<Placed<T>>) -> Option<Span> {
    placed.as_ref().map(|placed| placed.span)
}

/// Without a directory these mean nothing.
fn warn_of_disk_options(document: &Document, diagnostics: &mut Diagnostics) {
    let buffer = &document.buffer;
    let mut given = vec![
        ("buffer.flush_after".to_owned(), span_of(&buffer.flush_after)),
        ("buffer.disk.limit_mib".to_owned(), span_of(&buffer.disk_limit_mib)),
        ("buffer.disk.segment_mib".to_owned(), span_of(&buffer.segment_mib)),
    ];
    for pipeline in &document.pipelines {
        let path = format!("service.pipelines.{}.buffer.disk.limit_mib", pipeline.id);
        given.push((path, span_of(&pipeline.buffer.disk_limit_mib)));
    }
    for (path, span) in given.into_iter().filter(|(_, span)| span.is_some()) {
        let message = format!("`{path}` has no effect: telemetry is held in memory only");
        diagnostics.push(Diagnostic::warning(span, message).with_hint("set `buffer.directory`"));
    }
}

impl DiskPlan {
    /// Shares out the disk and the part of memory that is the backlog's among this many deliveries,
    /// best-effort ones left out. `names` are those of all deliveries.
    pub(super) fn new(
        (directory, flush_after): (PathBuf, Duration),
        document: &Document,
        memory: &MemoryPlan,
        deliveries: usize,
        names: &[(Signal, String)],
        diagnostics: &mut Diagnostics,
    ) -> DiskPlan {
        let buffer = &document.buffer;
        let deliveries = deliveries.max(1) as u64;
        let (limit_bytes, room_bytes) = limit(&directory, document, diagnostics);
        let dead_letters_bytes = buffer.dead_letters_limit_mib.unwrap_or(DEAD_LETTERS_MIB) * MIB;
        let dead_letters_bytes = dead_letters_bytes.min(limit_bytes / 4 / deliveries);
        let left_bytes = left_bytes(&directory, names, diagnostics).min(limit_bytes / 2);
        let backlog_bytes = limit_bytes - dead_letters_bytes * deliveries - left_bytes;
        if backlog_bytes / deliveries < MIB {
            let limit_mib = limit_bytes / MIB;
            let message =
                format!("{limit_mib} MiB of disk are too little for {deliveries} deliveries");
            let error = Diagnostic::error(span_of(&buffer.disk_limit_mib), message);
            diagnostics.push(error.with_hint("raise `buffer.disk.limit_mib`"));
        }
        let segment_mib = buffer.segment_mib.as_ref();
        let segment_mib = segment_mib.map_or(Buffer::SEGMENT_MIB, |placed| placed.value);
        let has = |signal: &&Signal| names.iter().any(|(of, _)| of == *signal);
        let signals = Signal::ALL.iter().filter(has).count().max(1) as u64;
        let segment_max_bytes = (room_bytes / SEGMENT_SHARE / signals).max(MIB);
        let tail_bytes = memory.backlog_bytes / 2;
        let taken = memory.backlog_bytes / 2 / deliveries;
        let read_ahead_bytes = (taken / 4).min(READ_AHEAD_MAX_BYTES);
        DiskPlan {
            segment_bytes: (segment_mib * MIB).min(segment_max_bytes),
            directory,
            flush_after,
            limit_bytes,
            backlog_bytes,
            dead_letters_bytes,
            tail_bytes,
            lease_bytes: taken - read_ahead_bytes,
            read_ahead_bytes,
        }
    }
}

/// The limit (`buffer.disk.limit_mib`, or half of the file system's space for the log), and as much
/// of it as there is room for.
fn limit(directory: &Path, document: &Document, diagnostics: &mut Diagnostics) -> (u64, u64) {
    let existing = directory.ancestors().find(|path| path.is_dir());
    let free_bytes = existing.and_then(|path| RealDisk.available_bytes(path).ok());
    let taken_bytes = || len_bytes(directory, DIRECTORY_LEVELS);
    let Some(Placed { value, span }) = &document.buffer.disk_limit_mib else {
        let default = |free_bytes| default_limit_bytes(free_bytes, taken_bytes());
        let limit_bytes = free_bytes.map_or(LIMIT_UNKNOWN_BYTES, default);
        return (limit_bytes, limit_bytes);
    };
    let limit_bytes = value * MIB;
    let room_bytes = free_bytes.map(|free_bytes| free_bytes + taken_bytes());
    if let Some(room_bytes) = room_bytes.filter(|room_bytes| *room_bytes < limit_bytes) {
        let message = format!(
            "`buffer.disk.limit_mib` is {value}, but the file system of {} has only {} MiB for it: \
             senders will be refused, or the oldest be dropped, before budgets are spent",
            directory.display(),
            room_bytes / MIB
        );
        diagnostics.warning(*span, message);
    }
    (limit_bytes, room_bytes.map_or(limit_bytes, |bytes| bytes.min(limit_bytes)))
}

/// Bytes of dead letters whose deliveries the configuration does not have any more.
fn left_bytes(directory: &Path, names: &[(Signal, String)], diagnostics: &mut Diagnostics) -> u64 {
    let mut left_bytes = 0;
    for signal in Signal::ALL {
        let log = directory.join(signal.as_str());
        let of_signal = names.iter().filter(|(of, _)| *of == signal);
        let known: HashSet<_> = of_signal.map(|(_, name)| directory_of(&log, name)).collect();
        // Those that cannot be listed now count as nothing.
        let folders = dead_letter_directories(&RealDisk, &log).unwrap_or_default();
        let folders = folders.into_iter().map(|(_, folder)| folder);
        for folder in folders.filter(|folder| !known.contains(folder)) {
            let bytes = len_bytes(&folder, 1);
            left_bytes += bytes;
            if bytes >= MIB {
                let message = format!(
                    "{} has {} MiB of dead letters of a delivery that the configuration does not \
                     have: they take a part of `buffer.disk.limit_mib`",
                    folder.display(),
                    bytes / MIB
                );
                let hint =
                    "send them with `sluice log replay`, or `sluice log drop --dead-letters`";
                diagnostics.push(Diagnostic::warning(None, message).with_hint(hint));
            }
        }
    }
    left_bytes
}

/// Half of what a log may grow to, but enough for the bytes that it has taken already: below the
/// mark from which on deliveries shed, and beside dead letters. Otherwise a restart on a disk that
/// other files fill would drop frames.
fn default_limit_bytes(free_bytes: u64, taken_bytes: u64) -> u64 {
    let room_bytes = free_bytes + taken_bytes;
    let held_bytes = taken_bytes / 5 * 8;
    (room_bytes / 2).max(held_bytes.min(room_bytes)).max(LIMIT_MIN_BYTES)
}

/// Length of the files in a directory and some levels below it.
fn len_bytes(directory: &Path, levels: usize) -> u64 {
    let Ok(entries) = RealDisk.list(directory) else { return 0 };
    let of_entry = |entry: &sluice_log::disk::DirectoryEntry| match entry.is_directory {
        true if levels > 0 => len_bytes(&directory.join(&entry.name), levels - 1),
        true => 0,
        false => entry.len_bytes,
    };
    entries.iter().map(of_entry).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan of pipelines with these own limits in MiB, or without, and its diagnostics.
    fn plan(own_limits_mib: &[Option<u64>], limit_mib: u64) -> (DiskPlan, Vec<String>) {
        let directory = std::env::temp_dir().join("a-directory-that-is-not-there");
        let pipeline = |(index, own): (usize, &Option<u64>)| {
            let own = own
                .map_or(String::new(), |mib| format!(", buffer: {{disk: {{limit_mib: {mib}}}}}"));
            format!("traces/{index}: {{receivers: [otlp], exporters: [debug]{own}}}")
        };
        let pipelines: Vec<_> = own_limits_mib.iter().enumerate().map(pipeline).collect();
        let text = format!(
            "receivers: {{otlp: }}\nexporters: {{debug: }}\n\
             buffer: {{disk: {{limit_mib: {limit_mib}}}}}\n\
             service: {{pipelines: {{{}}}}}\n",
            pipelines.join(", ")
        );
        let locations = [format!("yaml:{text}")];
        let (document, mut diagnostics) = sluice_config::load(
            &locations,
            &sluice_config::SystemEnvironment,
            &crate::catalog::Components::default(),
        );
        let document = document.expect("a document");
        let memory = MemoryPlan::new(512 * MIB, own_limits_mib.len(), Some(0), None, 0, 0);
        let settings = (directory, Duration::ZERO);
        let names = [Signal::Traces, Signal::Logs].map(|signal| (signal, "a/b".to_owned()));
        let plan = DiskPlan::new(
            settings,
            &document,
            &memory,
            own_limits_mib.len(),
            &names,
            &mut diagnostics,
        );
        (plan, diagnostics.errors().map(|error| error.message.clone()).collect())
    }

    #[test]
    fn the_parts_never_add_up_to_more_than_the_disk_and_the_memory() {
        for limit_mib in [64, 1_000] {
            for own in [vec![None], vec![Some(10), None, None], vec![None; 12]] {
                let (plan, errors) = plan(&own, limit_mib);
                assert_eq!(errors, Vec::<String>::new());
                let letters = plan.dead_letters_bytes * own.len() as u64;
                assert!(plan.backlog_bytes + letters <= limit_mib * MIB, "{plan:?}");
                assert!(
                    plan.backlog_bytes >= limit_mib * MIB / 2 && plan.segment_bytes >= MIB,
                    "{plan:?}"
                );
                let memory = MemoryPlan::new(512 * MIB, own.len(), Some(0), None, 0, 0);
                let deliveries = own.len() as u64;
                let taken =
                    (plan.lease_bytes + plan.read_ahead_bytes) * deliveries + plan.tail_bytes;
                assert!(taken <= memory.backlog_bytes, "{plan:?}");
            }
        }
    }

    /// Guarantee: dead letters of deliveries that are not configured any more count for the limit,
    /// and are named.
    #[test]
    fn dead_letters_that_are_left_behind_count() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("traces");
        for (delivery, bytes) in [("a/b", 3 << 20), ("gone/b", 5 << 20)] {
            let of_delivery = directory_of(&log, delivery);
            std::fs::create_dir_all(&of_delivery).expect("a directory");
            std::fs::write(of_delivery.join("0.seg"), vec![0; bytes]).expect("is written");
        }
        let mut diagnostics = Diagnostics::default();
        let names = [(Signal::Traces, "a/b".to_owned()), (Signal::Logs, "gone/b".to_owned())];
        assert_eq!(left_bytes(directory.path(), &names, &mut diagnostics), 5 << 20);
        let warnings: Vec<_> = diagnostics.warnings().collect();
        assert!(warnings.len() == 1 && warnings[0].message.contains("5 MiB of dead letters"));
    }

    #[test]
    fn limits_of_pipelines_need_not_add_up_and_too_many_deliveries_are_an_error() {
        for own_limits_mib in [vec![Some(90), None], vec![Some(60); 5], vec![Some(200)]] {
            assert_eq!(plan(&own_limits_mib, 100).1, Vec::<String>::new());
        }
        let (_, errors) = plan(&[None; 80], 64);
        assert!(
            errors.len() == 1
                && errors[0].contains("64 MiB of disk are too little for 80 deliveries"),
            "{errors:?}"
        );
    }

    #[test]
    fn the_default_leaves_half_and_holds_what_is_there() {
        assert_eq!(default_limit_bytes(1000 * MIB, 0), 500 * MIB);
        // Something else has filled the disk since.
        let limit = default_limit_bytes(10 * MIB, 300 * MIB);
        assert!((300 * MIB..=310 * MIB).contains(&limit), "{limit}");
        assert_eq!(default_limit_bytes(0, 0), LIMIT_MIN_BYTES);
    }

    /// The plan of a configuration with an OTLP exporter, and its diagnostics.
    fn load(buffer: &str, queue: &str, extensions: &str) -> (Option<crate::Plan>, Vec<String>) {
        let text = format!(
            "receivers: {{otlp: {{protocols: {{grpc: }}}}}}\n\
             exporters:\n  otlp: {{endpoint: 'localhost:1', tls: {{insecure: true}}, \
             sending_queue: {{{queue}}}}}\n\
             buffer: {{{buffer}}}\n\
             extensions: {{file_storage: {{directory: /tmp/storage-a, create_directory: true}}, \
             file_storage/b: {{directory: /tmp/storage-b, create_directory: true}}}}\n\
             service: {{extensions: [{extensions}], \
             pipelines: {{traces: {{receivers: [otlp], exporters: [otlp]}}}}}}\n"
        );
        let (plan, diagnostics) =
            super::super::load(&[format!("yaml:{text}")], &sluice_config::SystemEnvironment);
        let is_about_disk =
            |message: &&String| !message.contains("never started") && !message.contains("not used");
        let said = diagnostics
            .items()
            .iter()
            .map(|item| &item.message)
            .filter(is_about_disk)
            .cloned()
            .collect();
        (plan, said)
    }

    #[test]
    fn the_directory_decides_how_senders_are_answered() {
        let ack = |buffer: &str, queue: &str, extensions: &str| {
            let (plan, said) = load(buffer, queue, extensions);
            let plan = plan.unwrap_or_else(|| panic!("{said:?}"));
            (
                plan.ack,
                plan.disk.map(|disk| (disk.directory.display().to_string(), disk.flush_after)),
            )
        };
        assert_eq!(ack("", "", ""), (Acknowledge::Memory, None));
        let at = |directory: &str, ms| Some((directory.to_owned(), Duration::from_millis(ms)));
        assert_eq!(
            ack("directory: /tmp/d", "", ""),
            (Acknowledge::DeliveredOrDurable, at("/tmp/d", 20))
        );
        let durable = ack("directory: /tmp/d, ack: durable", "", "");
        assert_eq!(durable, (Acknowledge::Durable, at("/tmp/d", 0)));
        let memory = ack("directory: /tmp/d, ack: memory, flush_after: 1s", "", "");
        assert_eq!(memory, (Acknowledge::Memory, at("/tmp/d", 1000)));
        let storage = ack("", "storage: file_storage/b", "file_storage/b");
        assert_eq!(storage, (Acknowledge::DeliveredOrDurable, at("/tmp/storage-b", 20)));
    }

    #[test]
    fn what_contradicts_itself_is_an_error_and_what_has_no_effect_a_warning() {
        for (buffer, queue, extensions, valid, expected) in [
            ("ack: durable", "", "", false, "`buffer.ack: durable` needs a directory"),
            (
                "flush_after: 1s",
                "",
                "",
                true,
                "`buffer.flush_after` has no effect: telemetry is held in memory only",
            ),
            ("disk: {limit_mib: 100}", "", "", true, "`buffer.disk.limit_mib` has no effect"),
            (
                "directory: /tmp/d, ack: durable, flush_after: 1s",
                "",
                "",
                true,
                "has no effect: with `ack: durable`",
            ),
            (
                "directory: /tmp/d, linger: 30ms",
                "",
                "",
                false,
                "`buffer.linger` must be less than `buffer.flush_after`",
            ),
            (
                "",
                "storage: file_storage",
                "",
                false,
                "names `file_storage`, which is not among `service.extensions`",
            ),
            ("", "", "file_storage", true, "extensions.file_storage has no effect"),
            (
                "directory: /tmp/d",
                "storage: file_storage",
                "file_storage",
                false,
                "`exporters.otlp.sending_queue.storage` leads to the directory `/tmp/storage-a`, \
                 `buffer.directory` to `/tmp/d`",
            ),
        ] {
            let (plan, said) = load(buffer, queue, extensions);
            assert_eq!(plan.is_some(), valid, "{buffer} {queue}: {said:?}");
            assert!(
                said.iter().any(|message| message.contains(expected)),
                "{expected} in {said:?}"
            );
        }
    }

    #[test]
    fn a_queue_size_in_bytes_is_the_budget() {
        let (plan, _) = load("directory: /tmp/d", "sizer: bytes, queue_size: 5000000", "");
        assert_eq!(plan.unwrap().deliveries[0].budget_bytes, 5_000_000);
        let (plan, said) = load("directory: /tmp/d", "queue_size: 5", "");
        assert!(plan.unwrap().deliveries[0].budget_bytes > 5_000_000);
        assert!(
            said.iter().any(|message| message.contains("queue_size has no effect")),
            "{said:?}"
        );
    }
}
