//! Parts of a log record in the wire format.

use sluice_otlp::AnyValue;
use sluice_otlp::wire::{write_len_field, write_varint};

use crate::record::Record;

/// Messages within a record's body, so that the request as a whole keeps
/// [`sluice_otlp::NESTING_LIMIT`]: each array or map takes up to three.
const LEVELS_LIMIT: usize = 30;

/// In the place of a value that nests too deeply.
const TOO_DEEP: &str = "(nested too deeply)";

pub(super) struct Writer<'o> {
    pub(super) out: &'o mut Vec<u8>,
    /// Values that were replaced by a text.
    pub(super) replaced: u32,
}

impl Writer<'_> {
    pub(super) fn record(&mut self, record: &Record) {
        if let Some(time) = record.time_ns.filter(|time| *time != 0) {
            fixed64(self.out, 1, time as u64);
        }
        let text = shown_severity(record.severity, &record.severity_text);
        write_severity(self.out, record.severity, text);
        if record.body != AnyValue::Empty {
            self.message(5, |writer| writer.value(&record.body, 0));
        }
        self.attributes(6, &record.attributes);
        if let Some(flags) = record.trace_flags.first().filter(|flags| **flags != 0) {
            self.out.push(8 << 3 | 5);
            self.out.extend_from_slice(&u32::from(*flags).to_le_bytes());
        }
        self.id::<16>(9, &record.trace_id);
        self.id::<8>(10, &record.span_id);
        if record.observed_ns != 0 {
            fixed64(self.out, 11, record.observed_ns as u64);
        }
    }

    /// An id of its one length: longer ones are cut, shorter ones are filled, zeros are none.
    fn id<const LEN: usize>(&mut self, number: u32, id: &[u8]) {
        let mut fixed = [0; LEN];
        let len = id.len().min(LEN);
        fixed[..len].copy_from_slice(&id[..len]);
        if fixed != [0; LEN] {
            write_len_field(self.out, number, &fixed);
        }
    }

    pub(super) fn attributes(&mut self, number: u8, map: &[(String, AnyValue)]) {
        for (key, value) in map {
            self.message(number, |writer| writer.entry(key, value, 0));
        }
    }

    fn entry(&mut self, key: &str, value: &AnyValue, level: usize) {
        write_len_field(self.out, 1, key.as_bytes());
        self.message(2, |writer| writer.value(value, level));
    }

    pub(super) fn message(&mut self, number: u8, content: impl FnOnce(&mut Self)) {
        let start = open(self.out, number);
        content(self);
        close(self.out, start);
    }

    fn value(&mut self, value: &AnyValue, level: usize) {
        let value = match value {
            AnyValue::Array(_) | AnyValue::Map(_) if level >= LEVELS_LIMIT => {
                self.replaced += 1;
                write_len_field(self.out, 1, TOO_DEEP.as_bytes());
                return;
            }
            value => value,
        };
        match value {
            AnyValue::Array(values) => self.message(5, |writer| {
                for value in values {
                    writer.message(1, |writer| writer.value(value, level + 1));
                }
            }),
            AnyValue::Map(entries) => self.message(6, |writer| {
                for (key, value) in entries {
                    writer.message(1, |writer| writer.entry(key, value, level + 1));
                }
            }),
            AnyValue::String(text) => write_len_field(self.out, 1, text.as_bytes()),
            AnyValue::Bytes(bytes) => write_len_field(self.out, 7, bytes),
            AnyValue::Bool(value) => self.out.extend_from_slice(&[0x10, u8::from(*value)]),
            AnyValue::Int(value) => {
                self.out.push(0x18);
                write_varint(self.out, *value as u64);
            }
            AnyValue::Double(value) => {
                self.out.push(0x21);
                self.out.extend_from_slice(&value.to_le_bytes());
            }
            AnyValue::Empty => {}
        }
    }
}

pub(super) fn fixed64(out: &mut Vec<u8>, number: u8, value: u64) {
    out.push(number << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Begins a message. Its content, which comes behind, moves at [`close`] if its length takes more
/// than a byte.
pub(crate) fn open(out: &mut Vec<u8>, number: u8) -> usize {
    out.extend_from_slice(&[number << 3 | 2, 0]);
    out.len() - 1
}

pub(crate) fn close(out: &mut Vec<u8>, start: usize) {
    let mut len = out.len() - start - 1;
    let more = (len.checked_ilog2().unwrap_or(0) / 7) as usize;
    if more > 0 {
        out.resize(out.len() + more, 0);
        out.copy_within(start + 1..start + 1 + len, start + 1 + more);
    }
    for byte in &mut out[start..start + more] {
        *byte = len as u8 | 0x80;
        len >>= 7;
    }
    out[start + more] = len as u8;
}

/// The number and the text of a severity, each if there is one.
pub(super) fn write_severity(out: &mut Vec<u8>, severity: u8, text: &str) {
    if severity > 0 {
        out.extend_from_slice(&[2 << 3, severity]);
    }
    if !text.is_empty() {
        write_len_field(out, 3, text.as_bytes());
    }
}

/// A record without a text of its own has the name of its severity.
pub(super) fn shown_severity(severity: u8, text: &str) -> &str {
    if !text.is_empty() {
        return text;
    }
    const NAMES: [&str; 24] = [
        "TRACE", "TRACE2", "TRACE3", "TRACE4", "DEBUG", "DEBUG2", "DEBUG3", "DEBUG4", "INFO",
        "INFO2", "INFO3", "INFO4", "WARN", "WARN2", "WARN3", "WARN4", "ERROR", "ERROR2", "ERROR3",
        "ERROR4", "FATAL", "FATAL2", "FATAL3", "FATAL4",
    ];
    let place = usize::from(severity).checked_sub(1);
    place.and_then(|place| NAMES.get(place)).copied().unwrap_or_default()
}
