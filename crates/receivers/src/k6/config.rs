//! The options of the `k6` receiver.

use std::collections::HashSet;
use std::time::Duration;

use sluice_config::Fields;
use sluice_influx::{K6_COUNTERS, Value};
use sluice_operators::rfc3339;
use sluice_tail::{Boundary, Charset, Options, Splitter};

use crate::files::options;

/// The longest line.
const LINE_BYTES: usize = 1 << 20;
/// A file is deleted if nothing came for so long. k6 writes its CSV each second, and nothing while
/// no iteration goes on.
const DELETED_AFTER: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct K6Config {
    pub(super) options: Options,
    /// Metrics each sample of which is an increment.
    pub(super) counters: Vec<String>,
    /// Tags that are kept. `None`: all.
    pub(super) tags: Option<HashSet<String>>,
    pub(super) tags_as_fields: Vec<(String, FieldKind)>,
    pub(super) time_format: TimeFormat,
    /// The extension in whose directory the checkpoint is.
    pub(super) storage: Option<String>,
}

impl K6Config {
    pub(super) fn read(fields: &mut Fields<'_>) -> K6Config {
        let include = options::include(fields);
        let exclude = options::globs(fields, "exclude", "Patterns of files that are not read.");
        let starts_at_end = fields.choice(
            "start_at",
            false,
            &[("beginning", false), ("end", true)],
            "Where to begin in files that exist at the first start. Files that appear later are \
             read from their beginning.",
        );
        let doc = "Counters of scripts. k6's own are always known, and a file of JSON says which \
                   others there are: these are needed for CSV only.";
        let scripts = fields.string_list("counters", &[], doc);
        let counters = K6_COUNTERS.iter().map(|name| (*name).to_owned()).chain(scripts).collect();
        let doc = "Tags that samples keep: others are left out, so that samples which differ in \
                   these alone are of one series. Those of `tags_as_fields` have to be among them. \
                   Unset: all.";
        let tags = fields.string_list("tags", &[], doc);
        let tags = fields.is_given("tags").then(|| tags.into_iter().collect());
        let doc = "Tags that become fields of line protocol, as `K6_INFLUXDB_TAGS_AS_FIELDS` of k6 \
                   has them: a name, and after a colon `string` (the default), `int`, `float` or \
                   `bool`.";
        let mut tags_as_fields = Vec::new();
        for text in fields.string_list("tags_as_fields", &["vu:int", "iter:int", "url"], doc) {
            match FieldKind::parse(&text) {
                Some(field) => tags_as_fields.push(field),
                None => {
                    let message = format!(
                        "has `{text}`: want a name, or one with `:string`, `:int`, `:float` or \
                         `:bool`"
                    );
                    fields.error_at("tags_as_fields", &message);
                }
            }
        }
        let doc = "How times are written, as `K6_CSV_TIME_FORMAT` of k6 has it. `auto`: digits are \
                   seconds, milliseconds, microseconds or nanoseconds by their number.";
        let time_format = fields.choice("time_format", TimeFormat::Auto, &TIME_FORMATS, doc);
        let poll_interval = options::poll_interval(fields);
        let compression = options::compression(fields);
        let doc = "Deletes each file when all of it is read and delivered, or on disk in \
                   `buffer.directory`, and k6 wrote nothing for 30 s. What it writes later is \
                   still read, unless it paused for a minute. A compressed file must be complete. \
                   Needs `start_at: beginning`.";
        let deletes = options::deletes(fields, starts_at_end, doc);
        let max_open = options::max_open(fields);
        let head_bytes = options::head_bytes(fields);
        let doc = "Extension `file_storage` whose directory has the checkpoint. If it is not set, \
                   the checkpoint is in `buffer.directory`; without that, only in memory.";
        let storage = fields.non_empty_string("storage", doc);
        let splitter = Splitter {
            boundary: Boundary::Row,
            charset: Charset::named("utf-8").unwrap_or(Charset::Nop),
            max_bytes: LINE_BYTES,
            truncates: true,
            keeps_leading: true,
            keeps_trailing: false,
        };
        let options = Options {
            include,
            exclude,
            exclude_older_than: None,
            ordering: None,
            starts_at_end,
            head_bytes,
            max_open,
            poll_interval,
            watches: true,
            // A row without its end is written on later.
            flush_after: Duration::from_secs(5),
            splitter,
            compression,
            deletes_after: deletes.then_some(DELETED_AFTER),
            locks: false,
        };
        K6Config { options, counters, tags, tags_as_fields, time_format, storage }
    }
}

/// The type of a field that a tag becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    String,
    Int,
    Float,
    Bool,
}

impl FieldKind {
    fn parse(text: &str) -> Option<(String, FieldKind)> {
        let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
        let kind = match kind {
            "string" => FieldKind::String,
            "int" => FieldKind::Int,
            "float" => FieldKind::Float,
            "bool" => FieldKind::Bool,
            _ => return None,
        };
        (!name.is_empty()).then(|| (name.to_owned(), kind))
    }

    /// A tag's value. One that is not of this type is a text, as in k6.
    pub(super) fn read(self, text: &str) -> Value<'_> {
        let value = match self {
            FieldKind::String => None,
            FieldKind::Int => text.parse().ok().map(Value::Integer),
            FieldKind::Float => {
                text.parse().ok().filter(|it: &f64| it.is_finite()).map(Value::Float)
            }
            FieldKind::Bool => text.parse().ok().map(Value::Boolean),
        };
        value.unwrap_or(Value::String(text.into()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeFormat {
    Auto,
    /// Digits, each of so many nanoseconds.
    Unix(i64),
    Rfc3339,
}

const TIME_FORMATS: [(&str, TimeFormat); 7] = [
    ("auto", TimeFormat::Auto),
    ("unix", TimeFormat::Unix(1_000_000_000)),
    ("unix_milli", TimeFormat::Unix(1_000_000)),
    ("unix_micro", TimeFormat::Unix(1_000)),
    ("unix_nano", TimeFormat::Unix(1)),
    ("rfc3339", TimeFormat::Rfc3339),
    ("rfc3339_nano", TimeFormat::Rfc3339),
];

impl TimeFormat {
    /// Nanoseconds since 1970, and the nanoseconds of its unit. Times of JSON are always as in RFC
    /// 3339.
    pub(super) fn read(self, text: &str) -> Option<(i64, i64)> {
        let digits: Option<i64> = text.parse().ok();
        let unit_ns = match (self, digits) {
            (TimeFormat::Rfc3339, _) | (_, None) => {
                let unit_ns = if text.contains('.') { 1 } else { 1_000_000_000 };
                return Some((rfc3339(text)?, unit_ns));
            }
            (TimeFormat::Unix(unit_ns), _) => unit_ns,
            (TimeFormat::Auto, _) => match text.len() {
                0..=11 => 1_000_000_000,
                12..=14 => 1_000_000,
                15..=17 => 1_000,
                _ => 1,
            },
        };
        Some((digits?.checked_mul(unit_ns)?, unit_ns))
    }
}
