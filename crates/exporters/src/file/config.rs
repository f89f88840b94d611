use std::path::PathBuf;
use std::time::Duration;

use sluice_config::Fields;

use crate::client_options::{ZSTD_LEVELS, compression_level};
use crate::json::Format;
use crate::sending::Sending;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    pub max_megabytes: u64,
    /// Zero: keep them whatever their age.
    pub max_days: u64,
    /// Zero: keep all.
    pub max_backups: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct FileConfig {
    pub path: PathBuf,
    /// JSON has an object a line, protobuf its length before each message; before compression.
    pub format: Format,
    /// zstd, a frame a request.
    pub compress: bool,
    pub compression_level: Option<i32>,
    pub append: bool,
    pub create_directory: bool,
    /// Mode of a directory that is created.
    pub directory_mode: u32,
    pub rotation: Option<Rotation>,
    pub sending: Sending,
}

impl FileConfig {
    pub(crate) fn read(fields: &mut Fields<'_>) -> FileConfig {
        let path = fields.required_string("path", "The file to write.");
        let doc = "Conditions for renaming the file and starting a new one.";
        let rotation = fields.section("rotation", doc, read_rotation);
        let formats = [("json", Format::Json), ("proto", Format::Proto)];
        let doc = "`json`: one line for each request. `proto`: one message for each request, \
                   preceded by its length in 4 bytes, big endian.";
        let format = fields.choice("format", Format::Json, &formats, doc);
        let doc = "`zstd`: each request is one frame, preceded by its length in 4 bytes, big \
                   endian, in both formats.";
        let compress = fields.choice("compression", false, &[("zstd", true), ("", false)], doc);
        let highest = if compress { ZSTD_LEVELS } else { None };
        let compression_level = compression_level(fields, highest);
        let doc = "Append to the file of an earlier process; with `rotation` this is always so. If \
                   false, the first request empties the file.";
        let append = fields.boolean("append", false, doc);
        let doc = "Create the directory if it is missing.";
        let create_directory = fields.boolean("create_directory", false, doc);
        let doc = "Mode of a directory that is created.";
        let parse =
            |text: &str| u32::from_str_radix(text, 8).map_err(|_| "it must be octal".to_owned());
        let directory_mode =
            fields.parsed("directory_permissions", "octal mode", Some("0755"), doc, parse);
        if directory_mode.is_some_and(|mode| mode > 0o777) {
            fields.error_at("directory_permissions", "must be at most 0777");
        } else if fields.is_given("directory_permissions") && !create_directory {
            fields.error_at("directory_permissions", "needs `create_directory: true`");
        }
        let sending = Sending::read_queue(fields);
        let doc = "Has no effect, and causes a warning: a request counts as delivered only once it \
                   is written.";
        if fields.optional_duration("flush_interval", Duration::ZERO..=Duration::MAX, doc).is_some()
        {
            let message = "has no effect: a request counts as delivered only once it is written";
            fields.warn_at("flush_interval", message);
        }
        fields.not_yet("encoding", "encoding extensions");
        let doc = "A file for each value of a resource attribute.";
        let groups = fields.section("group_by", doc, |fields| {
            for key in ["resource_attribute", "max_open_files"] {
                fields.no_effect(key, "`group_by` is not in this build");
            }
            fields.boolean("enabled", false, "Not in this build: must be false.")
        });
        if groups == Some(true) {
            fields.error_at("group_by", "is not in this build of Sluice");
        }
        if rotation.is_some() && append {
            fields.error_at("append", "cannot be used with `rotation`");
        }
        FileConfig {
            path: PathBuf::from(path),
            format,
            compress,
            compression_level,
            append,
            create_directory,
            directory_mode: directory_mode.unwrap_or(0o755),
            rotation,
            sending,
        }
    }
}

fn read_rotation(fields: &mut Fields<'_>) -> Rotation {
    fields.no_effect("localtime", "the names of old files always have UTC, so that they sort");
    let doc = "Largest size of a file, in MiB.";
    let max_megabytes = fields.integer("max_megabytes", 100, 1..=1 << 40, doc);
    let doc = "Old files are removed after this number of days. 0: no limit.";
    let max_days = fields.integer("max_days", 0, 0..=1_000_000, doc);
    let doc = "Maximum number of old files. 0: no limit.";
    let max_backups = fields.integer("max_backups", 100, 0..=1_000_000, doc);
    Rotation { max_megabytes, max_days, max_backups }
}
