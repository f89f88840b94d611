//! A log record while operators work on it.

use std::ops::Range;

use sluice_otlp::AnyValue;

/// A log record. Keys of a map, of the attributes and of the resource occur once.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Nanoseconds since 1970. `None`: nothing has said when it happened.
    pub time_ns: Option<i64>,
    /// Nanoseconds since 1970 at which it was read.
    pub observed_ns: i64,
    /// The severity number of OTLP, 0 (not set) to 24.
    pub severity: u8,
    pub severity_text: String,
    pub body: AnyValue,
    pub attributes: Vec<(String, AnyValue)>,
    pub resource: Vec<(String, AnyValue)>,
    /// 16 bytes, or none.
    pub trace_id: Vec<u8>,
    /// 8 bytes, or none.
    pub span_id: Vec<u8>,
    /// One byte, or none.
    pub trace_flags: Vec<u8>,
    pub scope_name: String,
    pub origin: Origin,
}

/// The part of a source that a record is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The receiver's number of the stream, such as a file.
    pub stream: u64,
    /// Bytes of the stream.
    pub range: Range<u64>,
}

impl Record {
    pub fn new(body: AnyValue, observed_ns: i64, origin: Origin) -> Record {
        Record {
            time_ns: None,
            observed_ns,
            severity: 0,
            severity_text: String::new(),
            body,
            attributes: Vec::new(),
            resource: Vec::new(),
            trace_id: Vec::new(),
            span_id: Vec::new(),
            trace_flags: Vec::new(),
            scope_name: String::new(),
            origin,
        }
    }
}
