//! The parsers: operators that read a text into values, or values into parts of the record.

mod compiled;
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
mod values;

#[cfg(test)]
mod tests;

pub(crate) use self::compiled::Compiled;
pub(crate) use self::json_text::{Numbers, Token};
pub(crate) use self::parser::describe_shared;
pub(crate) use self::regex::Groups;
use crate::operator::{Kind, Read};
pub use syslog::Syslog;
pub use time::{Layout, Location, rfc3339};

pub(crate) static PARSERS: &[Kind] = &[
    Kind {
        name: "container",
        summary: "Parses log files of containers (Docker, containerd, CRI-O) and joins cut lines.",
        read: Read::Stage(container::read),
    },
    Kind {
        name: "csv_parser",
        summary: "Parses a row of CSV into a map, by a header.",
        read: Read::Transform(csv::read),
    },
    Kind {
        name: "json_array_parser",
        summary: "Parses a JSON array into a list, or with a header into a map.",
        read: Read::Transform(json_array::read),
    },
    Kind {
        name: "json_parser",
        summary: "Parses a JSON object into a map.",
        read: Read::Transform(json::read),
    },
    Kind {
        name: "key_value_parser",
        summary: "Parses pairs of keys and values into a map.",
        read: Read::Transform(key_value::read),
    },
    Kind {
        name: "regex_parser",
        summary: "Parses a text by a regular expression with named groups into a map.",
        read: Read::Transform(regex::read),
    },
    Kind {
        name: "scope_name_parser",
        summary: "Sets the scope's name from a field.",
        read: Read::Transform(scope_name::read),
    },
    Kind {
        name: "severity_parser",
        summary: "Sets the severity from a field, by a table of values.",
        read: Read::Transform(severity::read),
    },
    Kind {
        name: "syslog_parser",
        summary: "Parses messages of syslog (RFC 3164, RFC 5424).",
        read: Read::Transform(syslog::read),
    },
    Kind {
        name: "time_parser",
        summary: "Sets the time from a field, by a layout.",
        read: Read::Transform(time::read),
    },
    Kind {
        name: "trace_parser",
        summary: "Sets the ids of trace and span, and the trace flags, from fields.",
        read: Read::Transform(trace::read),
    },
    Kind {
        name: "uri_parser",
        summary: "Parses a URI, or a query that begins with `?`, into a map.",
        read: Read::Transform(uri::read),
    },
];
