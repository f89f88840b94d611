//! `file_storage`: the directory of telemetry for exporters whose `sending_queue.storage` names it,
//! and of checkpoints for receivers whose `storage` does.
//!
//! It is another way to write `buffer.directory`: the engine has one log in one directory.

use sluice_config::{ComponentKind, Fields, Kind};

use crate::extension::{Extension, FileStorage};

pub(crate) const KIND: ComponentKind<Extension> = ComponentKind::new(
    Kind::new(
        "file_storage",
        "Directory in which telemetry is stored, if `sending_queue.storage` of an exporter names \
         it: same effect as `buffer.directory`. And that of the checkpoints of receivers whose \
         `storage` names it.",
    ),
    |fields| Extension { file_storage: Some(read(fields)), ..Extension::default() },
);

/// The Collector's default.
const DEFAULT_DIRECTORY: &str = "/var/lib/otelcol/file_storage";

fn read(fields: &mut Fields<'_>) -> FileStorage {
    fields.no_effect("timeout", "one process owns the directory; a second one is refused at once");
    fields.no_effect(
        "compaction",
        "the log always removes segments that no delivery needs, and rewrites those with little \
         live data",
    );
    let doc = "Has no effect, and causes a warning: `buffer.disk.limit_mib` limits the log.";
    if fields.optional_integer("max_size", 0..=i64::MAX, doc).is_some_and(|bytes| bytes > 0) {
        fields.warn_at("max_size", "has no effect: `buffer.disk.limit_mib` limits the log");
    }
    fields.no_effect("fsync", "every write is synced");
    let doc = "If true, create the directory if it is missing. If false, a missing directory is an \
               error: its volume may not be mounted.";
    let creates_directory = fields.boolean("create_directory", false, doc);
    fields.no_effect("directory_permissions", "a directory is created with mode 0700");
    let why = "damaged data is skipped and counted, the rest is delivered";
    fields.no_effect("recreate", why);
    let directory = fields.string("directory", DEFAULT_DIRECTORY, "Directory of the log.");
    if directory.is_empty() {
        fields.error_at("directory", "must not be empty");
    }
    FileStorage { directory, creates_directory }
}
