//! Options that all receivers of files have.

use std::time::Duration;

use sluice_config::Fields;
use sluice_tail::{Compression, Glob};

const MIB: u64 = 1 << 20;

pub(crate) fn include(fields: &mut Fields<'_>) -> Vec<Glob> {
    let include = globs(
        fields,
        "include",
        "Patterns of the files to read: `*`, `?`, `[a-z]`, \
            `{a,b}`, and `**` for any number of directories. Required.",
    );
    let is_empty = !fields.is_given("include") || fields.is_empty_list("include");
    if include.is_empty() && is_empty {
        fields.error_missing("include");
    }
    include
}

pub(crate) fn globs(fields: &mut Fields<'_>, key: &str, doc: &str) -> Vec<Glob> {
    let texts = fields.string_list(key, &[], doc);
    let mut globs = Vec::new();
    for text in texts {
        match Glob::new(&text) {
            Ok(glob) => globs.push(glob),
            Err(reason) => {
                fields.error_at(key, &format!("has the pattern `{text}`, which {reason}"))
            }
        }
    }
    globs
}

pub(crate) fn poll_interval(fields: &mut Fields<'_>) -> Duration {
    let doc = "Interval at which files are looked at where inotify reports no changes: on \
               network file systems, and when no watches are left. Up to ten times that for \
               files without changes for a while. All other files are read within 100 ms.";
    let least = Duration::from_millis(10);
    fields.duration_in(
        "poll_interval",
        Duration::from_millis(200),
        least..=Duration::from_secs(3600),
        doc,
    )
}

pub(crate) fn head_bytes(fields: &mut Fields<'_>) -> usize {
    let doc = "Bytes at the beginning of a file that tell it from others, beside its inode and \
               the 256 bytes before its checkpoint.";
    fields.size("fingerprint_size", 1000, 16..=MIB, doc) as usize
}

pub(crate) fn max_open(fields: &mut Fields<'_>) -> usize {
    let doc = "The most files that are open at a time. Half of them may be files that were \
               renamed or removed and are still followed.";
    fields.integer("max_concurrent_files", 1024, 1..=65_536_usize, doc).max(2)
}

pub(crate) fn compression(fields: &mut Fields<'_>) -> Compression {
    let choices =
        [("", Compression::None), ("gzip", Compression::Gzip), ("auto", Compression::Auto)];
    let doc = "Empty: no file is compressed. `gzip`: all are. `auto`: files that begin as gzip \
               does; a rotated file that was compressed is read on, if `include` matches its new \
               name.";
    fields.choice("compression", Compression::None, &choices, doc)
}

/// `doc` says how long nothing has come before a file is deleted.
pub(crate) fn deletes(fields: &mut Fields<'_>, starts_at_end: bool, doc: &'static str) -> bool {
    let deletes = fields.boolean("delete_after_read", false, doc);
    if deletes && starts_at_end {
        fields.error_at("delete_after_read", "needs `start_at: beginning`");
    }
    deletes
}
