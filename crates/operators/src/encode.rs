//! Records to the bytes of an export request.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use sluice_otlp::AnyValue;
use sluice_otlp::wire::{write_len_field, write_varint};

use crate::expression::same_maps;
use crate::record::Record;

/// Messages within a record's body, so that the request as a whole keeps
/// [`sluice_otlp::NESTING_LIMIT`]: each array or map takes up to three.
const LEVELS_LIMIT: usize = 30;

/// In the place of a value that nests too deeply.
const TOO_DEEP: &str = "(nested too deeply)";

/// The result of [`encode`], beside the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Log records in the request.
    pub items: u32,
    /// Values that were replaced by a text, as they nest too deeply for any backend.
    pub replaced: u32,
}

type Map = Vec<(String, AnyValue)>;

/// Appends one `ExportLogsServiceRequest` with the records to `out`: grouped by resource and scope,
/// each group where its first record was.
pub fn encode(records: &[Record], out: &mut Vec<u8>) -> Encoded {
    let mut writer = Writer { out, replaced: 0 };
    for group in groups(records) {
        writer.message(1, |writer| {
            let resource = &records[group[0][0]].resource;
            writer.message(1, |writer| writer.attributes(1, resource));
            for scope in &group {
                writer.message(2, |writer| writer.scope(scope, records));
            }
        });
    }
    Encoded { items: records.len() as u32, replaced: writer.replaced }
}

/// Indices of records by resource, then by scope.
fn groups(records: &[Record]) -> Vec<Vec<Vec<usize>>> {
    let mut groups: Vec<Vec<Vec<usize>>> = Vec::new();
    let mut by_hash: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut last = 0;
    for (index, record) in records.iter().enumerate() {
        let is_same =
            |group: &[Vec<usize>]| same_maps(&records[group[0][0]].resource, &record.resource);
        if !groups.get(last).is_some_and(|group| is_same(group)) {
            let places = by_hash.entry(hash(&record.resource)).or_default();
            let found = places.iter().copied().find(|place| is_same(&groups[*place]));
            last = found.unwrap_or(groups.len());
            if found.is_none() {
                places.push(last);
                groups.push(Vec::new());
            }
        }
        let scopes = &mut groups[last];
        let name = &record.scope_name;
        match scopes.iter_mut().find(|scope| records[scope[0]].scope_name == *name) {
            Some(scope) => scope.push(index),
            None => scopes.push(vec![index]),
        }
    }
    groups
}

/// The same for the same entries in any order.
fn hash(map: &Map) -> u64 {
    let mut sum = 0_u64;
    for (key, value) in map {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        // Whole and fractional numbers may be equal: their values do not count here.
        if let AnyValue::String(text) = value {
            text.hash(&mut hasher);
        }
        sum = sum.wrapping_add(hasher.finish());
    }
    sum
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
    replaced: u32,
}

impl Writer<'_> {
    fn scope(&mut self, scope: &[usize], records: &[Record]) {
        let name = &records[scope[0]].scope_name;
        self.message(1, |writer| {
            if !name.is_empty() {
                write_len_field(writer.out, 1, name.as_bytes());
            }
        });
        for index in scope {
            self.message(2, |writer| writer.record(&records[*index]));
        }
    }

    fn record(&mut self, record: &Record) {
        if let Some(time) = record.time_ns.filter(|time| *time != 0) {
            self.fixed64(1, time as u64);
        }
        if record.severity > 0 {
            self.out.extend_from_slice(&[2 << 3, record.severity]);
        }
        let text = match record.severity_text.as_str() {
            "" => severity_text(record.severity),
            text => text,
        };
        if !text.is_empty() {
            write_len_field(self.out, 3, text.as_bytes());
        }
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
            self.fixed64(11, record.observed_ns as u64);
        }
    }

    fn fixed64(&mut self, number: u8, value: u64) {
        self.out.push(number << 3 | 1);
        self.out.extend_from_slice(&value.to_le_bytes());
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

    fn attributes(&mut self, number: u8, map: &[(String, AnyValue)]) {
        for (key, value) in map {
            self.message(number, |writer| writer.entry(key, value, 0));
        }
    }

    fn entry(&mut self, key: &str, value: &AnyValue, level: usize) {
        write_len_field(self.out, 1, key.as_bytes());
        self.message(2, |writer| writer.value(value, level));
    }

    /// A message. Its content moves if its length, known behind it, takes more than a byte.
    fn message(&mut self, number: u8, content: impl FnOnce(&mut Self)) {
        self.out.extend_from_slice(&[number << 3 | 2, 0]);
        let start = self.out.len() - 1;
        content(self);
        let mut len = self.out.len() - start - 1;
        let more = (len.checked_ilog2().unwrap_or(0) / 7) as usize;
        if more > 0 {
            self.out.resize(self.out.len() + more, 0);
            self.out.copy_within(start + 1..start + 1 + len, start + 1 + more);
        }
        for byte in &mut self.out[start..start + more] {
            *byte = len as u8 | 0x80;
            len >>= 7;
        }
        self.out[start + more] = len as u8;
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

/// The name of a severity for a record without a text of its own.
fn severity_text(severity: u8) -> &'static str {
    const NAMES: [&str; 24] = [
        "TRACE", "TRACE2", "TRACE3", "TRACE4", "DEBUG", "DEBUG2", "DEBUG3", "DEBUG4", "INFO",
        "INFO2", "INFO3", "INFO4", "WARN", "WARN2", "WARN3", "WARN4", "ERROR", "ERROR2", "ERROR3",
        "ERROR4", "FATAL", "FATAL2", "FATAL3", "FATAL4",
    ];
    let place = usize::from(severity).checked_sub(1);
    place.and_then(|place| NAMES.get(place)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
