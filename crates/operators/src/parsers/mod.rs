//! The parsers: operators that read a text into values, or values into parts of the record.

mod container;
mod csv;
mod json;
mod json_array;
mod json_text;
mod key_value;
mod parser;
mod regex;
mod scope_name;
mod severity;
mod syslog;
mod time;
mod trace;
mod uri;

#[cfg(test)]
mod tests;

use sluice_config::Fields;

use crate::operator::{Stage, Transform};

/// A parser in the table of operators.
pub(crate) struct Parser {
    /// The `type` in the configuration.
    pub(crate) name: &'static str,
    /// One sentence, for the documentation.
    pub(crate) summary: &'static str,
    pub(crate) read: Read,
}

/// Reads the options of a parser but those that all operators have (`id`, `type`, `output`, `if`,
/// `on_error`). Nothing if they are wrong, which the diagnostics say.
#[derive(Clone, Copy)]
pub(crate) enum Read {
    Transform(fn(&mut Fields<'_>) -> Option<Box<dyn Transform>>),
    Stage(fn(&mut Fields<'_>) -> Option<Box<dyn Stage>>),
}

pub(crate) static PARSERS: &[Parser] = &[
    Parser {
        name: "container",
        summary: "Parses log files of containers (Docker, containerd, CRI-O) and joins cut lines.",
        read: Read::Stage(container::read),
    },
    Parser {
        name: "csv_parser",
        summary: "Parses a row of CSV into a map, by a header.",
        read: Read::Transform(csv::read),
    },
    Parser {
        name: "json_array_parser",
        summary: "Parses a JSON array into a list, or with a header into a map.",
        read: Read::Transform(json_array::read),
    },
    Parser {
        name: "json_parser",
        summary: "Parses a JSON object into a map.",
        read: Read::Transform(json::read),
    },
    Parser {
        name: "key_value_parser",
        summary: "Parses pairs of keys and values into a map.",
        read: Read::Transform(key_value::read),
    },
    Parser {
        name: "regex_parser",
        summary: "Parses a text by a regular expression with named groups into a map.",
        read: Read::Transform(regex::read),
    },
    Parser {
        name: "scope_name_parser",
        summary: "Sets the scope's name from a field.",
        read: Read::Transform(scope_name::read),
    },
    Parser {
        name: "severity_parser",
        summary: "Sets the severity from a field, by a table of values.",
        read: Read::Transform(severity::read),
    },
    Parser {
        name: "syslog_parser",
        summary: "Parses messages of syslog (RFC 3164, RFC 5424).",
        read: Read::Transform(syslog::read),
    },
    Parser {
        name: "time_parser",
        summary: "Sets the time from a field, by a layout.",
        read: Read::Transform(time::read),
    },
    Parser {
        name: "trace_parser",
        summary: "Sets the ids of trace and span, and the trace flags, from fields.",
        read: Read::Transform(trace::read),
    },
    Parser {
        name: "uri_parser",
        summary: "Parses a URI, or a query that begins with `?`, into a map.",
        read: Read::Transform(uri::read),
    },
];
