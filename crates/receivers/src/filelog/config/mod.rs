//! The receiver's options.

mod ordering;

use std::time::Duration;

use sluice_config::Fields;
use sluice_operators::{Chain, ChainConfig, Label, Root};
use sluice_otlp::AnyValue;
use sluice_tail::{Boundary, Charset, Options, Splitter};

use crate::files::{FileAttributes, HeaderConfig, options};
use crate::splitting;

const MIB: u64 = 1 << 20;
/// A file is deleted if nothing came for so long.
const DELETED_AFTER: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub struct FilelogConfig {
    pub options: Options,
    pub files: FileAttributes,
    /// Attributes of the resource of all records.
    pub resource: Vec<(String, AnyValue)>,
    pub operators: ChainConfig,
    pub header: Option<HeaderConfig>,
    /// The extension in whose directory the checkpoint is.
    pub storage: Option<String>,
    /// Seconds that pass for the receiver in one: more than one in tests of long outages.
    #[doc(hidden)]
    pub rate: u32,
}

impl FilelogConfig {
    pub fn read(fields: &mut Fields<'_>) -> FilelogConfig {
        let include = options::include(fields);
        let exclude = options::globs(fields, "exclude", "Patterns of files that are not read.");
        let doc = "Files that were modified longer ago than this are not begun.";
        let exclude_older_than =
            fields.optional_duration("exclude_older_than", Duration::ZERO..=Duration::MAX, doc);
        let exclude_older_than = exclude_older_than.filter(|age| !age.is_zero());
        let ordering = ordering::read(fields);
        let starts_at_end = fields.choice(
            "start_at",
            true,
            &[("end", true), ("beginning", false)],
            "Where to begin in files that exist at the first start. Files that appear later, and \
             all unknown files once there is a checkpoint, are read from their beginning.",
        );
        let splitter = read_splitter(fields);
        let doc = "A last line without its end is a record after this time without anything new. \
                   0: never.";
        let flush_after = fields.duration("force_flush_period", Duration::from_millis(500), doc);
        let poll_interval = options::poll_interval(fields);
        let head_bytes = options::head_bytes(fields);
        let max_open = options::max_open(fields);
        let why = "files are read in turns, not in batches";
        fields.no_effect("max_batches", why);
        let compression = options::compression(fields);
        let doc = "Deletes each file when all of it is read and delivered, or on disk in \
                   `buffer.directory`, and nothing came for 500 ms or a longer `poll_interval`. A \
                   compressed one must be complete. Needs `start_at: beginning`.";
        let deletes = options::deletes(fields, starts_at_end, doc);
        let doc = "Reads a file only while no other process locks it (`flock`).";
        let locks = fields.boolean("acquire_fs_lock", false, doc);
        read_without_effect(fields);
        let mut labels = Vec::new();
        let files = read_attributes(fields, &mut labels);
        let doc = "Attributes of the resource of all records. Values may have `EXPR(…)` in them.";
        let resource = splitting::constants(fields, Root::Resource, doc, &mut labels);
        let doc = "Extension `file_storage` whose directory has the checkpoint. If it is not set, \
                   the checkpoint is in `buffer.directory`; without that, only in memory.";
        let storage = fields.non_empty_string("storage", doc);
        let doc = "Operators that parse and change each record, in this order: `docs/operators.md` \
                   has them.";
        let operators = Chain::read(fields, "operators", doc).labelled(labels);
        let header = read_header(fields, starts_at_end);
        let options = Options {
            include,
            exclude,
            exclude_older_than,
            ordering,
            starts_at_end,
            head_bytes,
            max_open,
            poll_interval,
            watches: true,
            flush_after,
            splitter,
            compression,
            deletes_after: deletes.then_some(DELETED_AFTER),
            locks,
        };
        FilelogConfig { options, files, resource, operators, header, storage, rate: 1 }
    }
}

fn read_splitter(fields: &mut Fields<'_>) -> Splitter {
    let charset = splitting::encoding(fields);
    let boundary = splitting::multiline(fields, charset).unwrap_or(match charset {
        Charset::Nop => Boundary::None,
        _ => Boundary::LineFeed,
    });
    let doc = "The longest record, in bytes of the file.";
    let max_bytes = fields.size("max_log_size", MIB, 1..=1024 * MIB, doc) as usize;
    let truncates = fields.choice(
        "max_log_size_behavior",
        false,
        &[("split", false), ("truncate", true)],
        "`split`: a longer record becomes several. `truncate`: its rest is left out.",
    );
    let (keeps_leading, keeps_trailing) = splitting::white_space(fields);
    // A character of UTF-16 must fit.
    let max_bytes = max_bytes.max(4);
    Splitter { boundary, charset, max_bytes, truncates, keeps_leading, keeps_trailing }
}

fn read_header(fields: &mut Fields<'_>, starts_at_end: bool) -> Option<HeaderConfig> {
    let doc = "Makes attributes of all records out of the first lines of their file, 64 KiB at \
               most. These lines are no records. Needs `start_at: beginning`.";
    let header = fields.section_unless_empty("header", doc, HeaderConfig::read);
    if header.is_some() && starts_at_end {
        fields.error_at("header", "needs `start_at: beginning`");
    }
    header.flatten()
}

/// Options of the Collector for what is done another way here.
fn read_without_effect(fields: &mut Fields<'_>) {
    fields.no_effect("id", "the receiver is named by its key in `receivers`");
    fields.no_effect("initial_buffer_size", "all files share one buffer");
    fields.no_effect("polls_to_archive", "files that are gone are remembered anyway");
    fields.no_effect("file_cache_advise", "the kernel decides what it caches");
    fields.no_effect("skip_unmodified_files", "files without changes cost nothing");
    let doc = "`read_whole_file` is what happens: a file that was truncated has a new content, and \
               is read from its beginning. Other values cause a warning.";
    let choices = [("ignore", false), ("read_whole_file", true), ("read_new", false)];
    if fields.optional_choice("on_truncate", &choices, doc) == Some(false) {
        let message = "has no effect: a truncated file is read from its beginning";
        fields.warn_at("on_truncate", message);
    }
    let doc = "What is refused is always read again, and nothing is given up.";
    let what = "a refused line is always read again";
    splitting::retry_on_failure(fields, doc, what);
}

fn read_attributes(fields: &mut Fields<'_>, labels: &mut Vec<Label>) -> FileAttributes {
    let mut wanted = |key: &str, default: bool, doc: &str| fields.boolean(key, default, doc);
    let mut files = FileAttributes {
        name: wanted("include_file_name", true, "Adds `log.file.name`."),
        path: wanted("include_file_path", false, "Adds `log.file.path`."),
        name_resolved: wanted(
            "include_file_name_resolved",
            false,
            "Adds `log.file.name_resolved`: the name behind links.",
        ),
        path_resolved: wanted(
            "include_file_path_resolved",
            false,
            "Adds `log.file.path_resolved`: the path behind links.",
        ),
        owner_name: wanted(
            "include_file_owner_name",
            false,
            "Adds `log.file.owner.name`, from `/etc/passwd`: for unknown users the number.",
        ),
        owner_group_name: wanted(
            "include_file_owner_group_name",
            false,
            "Adds `log.file.owner.group.name`, from `/etc/group`: for unknown groups the number.",
        ),
        permissions: wanted(
            "include_file_permissions",
            false,
            "Adds `log.file.permissions`, such as `644`.",
        ),
        record_number: wanted(
            "include_file_record_number",
            false,
            "Adds `log.file.record_number`: the record's number in its file, from 1.",
        ),
        record_offset: wanted(
            "include_file_record_offset",
            false,
            "Adds `log.file.record_offset`: the place of its first byte in its file.",
        ),
        constant: Vec::new(),
    };
    let doc = "Attributes of all records. Values may have `EXPR(…)` in them.";
    files.constant = splitting::constants(fields, Root::Attributes, doc, labels);
    files
}

#[cfg(test)]
mod tests;
