//! Records to the bytes of an export request, each as it comes.

mod writer;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use bytes::Bytes;
use sluice_otlp::AnyValue;
use sluice_otlp::wire::{varint_len, write_len_field, write_varint};

use self::writer::{Writer, fixed64, shown_severity, write_severity};
pub(crate) use self::writer::{close, open};
use crate::expression::same_maps;
use crate::record::Record;

/// The tag and the length of a message, at most.
const HEAD_BYTES: usize = 11;

/// The result of [`encode`], beside the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Log records in the request.
    pub items: u32,
    /// Values that were replaced by a text, as they nest too deeply for any backend.
    pub replaced: u32,
}

type Map = Vec<(String, AnyValue)>;

/// Appends one `ExportLogsServiceRequest` with the records to `out`, as [`Encoder`] makes it.
pub fn encode(records: &[Record], out: &mut Vec<u8>) -> Encoded {
    let mut encoder = Encoder::default();
    records.iter().for_each(|record| encoder.push(record));
    let encoded = encoder.encoded();
    out.extend_from_slice(&encoder.finish());
    encoded
}

/// An `ExportLogsServiceRequest` in the making: records are grouped by resource and scope, each
/// group where its first record was.
#[derive(Default)]
pub struct Encoder {
    groups: Vec<Group>,
    /// Places of groups, by the hash of their resource.
    by_hash: HashMap<u64, Vec<usize>>,
    /// The group of the last record.
    last: usize,
    encoded: Encoded,
    /// Bytes of all records, and of the messages around them at most.
    len: usize,
    /// Requests that were finished.
    finished: u64,
    /// Bytes of the last request: the next one is probably about as long.
    expected: usize,
}

struct Group {
    resource: Map,
    /// The same as a field of `ResourceLogs`.
    head: Vec<u8>,
    scopes: Vec<Scope>,
}

struct Scope {
    name: String,
    /// Room for the headers, then the records as fields of a `ScopeLogs`.
    records: Vec<u8>,
    room: usize,
}

/// Where records of one resource and scope are put, within one request.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    request: u64,
    group: usize,
    scope: usize,
}

/// A record whose body is a text, and whose attributes are encoded already.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextRecord<'t> {
    /// As in [`Record`].
    pub time_ns: Option<i64>,
    pub severity: u8,
    pub severity_text: &'t str,
    pub observed_ns: i64,
    pub body: &'t str,
    /// Parts of the attributes: see [`encode_attributes`].
    pub attributes: [&'t [u8]; 3],
}

impl Encoder {
    pub fn push(&mut self, record: &Record) {
        let place = self.place(&record.resource, &record.scope_name);
        let out = &mut self.groups[place.group].scopes[place.scope].records;
        let before = out.len();
        let mut writer = Writer { out, replaced: 0 };
        writer.message(2, |writer| writer.record(record));
        self.encoded.replaced += writer.replaced;
        self.len += writer.out.len() - before;
        self.encoded.items += 1;
    }

    /// Puts a record of no scope. `place`: that of the last record with the same resource, which is
    /// noted there.
    pub fn push_text(&mut self, place: &mut Option<Place>, resource: &Map, text: &TextRecord<'_>) {
        let known = place.filter(|place| place.request == self.finished);
        let found = known.unwrap_or_else(|| self.place(resource, ""));
        *place = Some(found);
        let out = &mut self.groups[found.group].scopes[found.scope].records;
        let TextRecord { time_ns, severity, observed_ns, body, attributes, .. } = *text;
        let time_ns = time_ns.filter(|time| *time != 0);
        let severity_text = shown_severity(severity, text.severity_text);
        let value_len = 1 + varint_len(body.len()) + body.len();
        let severity_len = match severity_text.len() {
            0 => 0,
            length => 1 + varint_len(length) + length,
        };
        let length = 1
            + varint_len(value_len)
            + value_len
            + severity_len
            + 2 * usize::from(severity > 0)
            + attributes.iter().map(|part| part.len()).sum::<usize>()
            + 9 * (usize::from(time_ns.is_some()) + usize::from(observed_ns != 0));
        let before = out.len();
        out.reserve(length + HEAD_BYTES);
        out.push(2 << 3 | 2);
        write_varint(out, length as u64);
        if let Some(time) = time_ns {
            fixed64(out, 1, time as u64);
        }
        write_severity(out, severity, severity_text);
        out.push(5 << 3 | 2);
        write_varint(out, value_len as u64);
        write_len_field(out, 1, body.as_bytes());
        attributes.iter().for_each(|part| out.extend_from_slice(part));
        if observed_ns != 0 {
            fixed64(out, 11, observed_ns as u64);
        }
        self.len += out.len() - before;
        self.encoded.items += 1;
    }

    pub fn encoded(&self) -> Encoded {
        self.encoded
    }

    /// Whether the records so far come in the request in the order in which they came: they are of
    /// one group.
    pub fn keeps_order(&self) -> bool {
        self.groups.len() <= 1 && self.groups.iter().all(|group| group.scopes.len() <= 1)
    }

    /// Bytes of the request so far, at most.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.encoded.items == 0
    }

    fn place(&mut self, resource: &Map, scope: &str) -> Place {
        let group = self.group(resource);
        let is_first = self.is_empty() && self.groups.len() == 1;
        let Group { scopes, head, .. } = &mut self.groups[group];
        let found = scopes.iter().position(|it| it.name == scope);
        let scope = found.unwrap_or_else(|| {
            self.len += scope.len() + 3 * HEAD_BYTES;
            let (mut records, mut room) = (Vec::new(), 0);
            if is_first {
                // Mostly there is one group: its headers are then put right before its records.
                room = 4 * HEAD_BYTES + scope.len() + head.len();
                // Lengths differ by a record or two: growing would copy the whole request.
                records.reserve(room + self.expected + self.expected / 16);
                records.resize(room, 0);
            }
            scopes.push(Scope { name: scope.to_owned(), records, room });
            scopes.len() - 1
        });
        Place { request: self.finished, group, scope }
    }

    fn group(&mut self, resource: &Map) -> usize {
        let Encoder { groups, by_hash, last, encoded, len, .. } = self;
        let is_same = |group: &Group| same_maps(&group.resource, resource);
        if !groups.get(*last).is_some_and(is_same) {
            let places = by_hash.entry(hash(resource)).or_default();
            let found = places.iter().copied().find(|place| is_same(&groups[*place]));
            *last = found.unwrap_or(groups.len());
            if found.is_none() {
                places.push(*last);
                let mut head = Vec::new();
                let mut writer = Writer { out: &mut head, replaced: 0 };
                writer.message(1, |writer| writer.attributes(1, resource));
                encoded.replaced += writer.replaced;
                *len += head.len() + HEAD_BYTES;
                groups.push(Group { resource: resource.clone(), head, scopes: Vec::new() });
            }
        }
        *last
    }

    /// The request, which is empty if it has no records. The next one begins.
    pub fn finish(&mut self) -> Bytes {
        let (finished, expected) = (self.finished + 1, self.len);
        let encoder = mem::take(self);
        (self.finished, self.expected) = (finished, expected);
        let Encoder { mut groups, len, .. } = encoder;
        if let [Group { head, scopes, .. }] = &mut groups[..]
            && let [Scope { name, records, room }] = &mut scopes[..]
            && *room > 0
        {
            let scope = scope_head(name, records.len() - *room);
            let head = resource_head(head, scope.len() + records.len() - *room);
            let start = *room - head.len() - scope.len();
            records[start..start + head.len()].copy_from_slice(&head);
            records[start + head.len()..*room].copy_from_slice(&scope);
            let mut records = mem::take(records);
            if records.capacity() > records.len() * 2 {
                records.shrink_to_fit();
            }
            return Bytes::from(records).slice(start..);
        }
        let mut out = Vec::with_capacity(len);
        for Group { head, scopes, .. } in groups {
            let heads = scopes.iter().map(|it| scope_head(&it.name, it.records.len() - it.room));
            let heads: Vec<Vec<u8>> = heads.collect();
            let records = scopes.iter().map(|it| it.records.len() - it.room);
            let content = records.sum::<usize>() + heads.iter().map(Vec::len).sum::<usize>();
            out.extend_from_slice(&resource_head(&head, content));
            for (head, scope) in heads.iter().zip(scopes) {
                out.extend_from_slice(head);
                out.extend_from_slice(&scope.records[scope.room..]);
            }
        }
        out.into()
    }
}

/// Attributes of a record as its fields.
pub fn encode_attributes(attributes: &Map) -> Vec<u8> {
    let mut out = Vec::new();
    Writer { out: &mut out, replaced: 0 }.attributes(6, attributes);
    out
}

/// The bytes before the `ScopeLogs` of a resource, which have this length together.
fn resource_head(resource: &[u8], scopes_len: usize) -> Vec<u8> {
    let mut head = vec![1 << 3 | 2];
    write_varint(&mut head, (resource.len() + scopes_len) as u64);
    head.extend_from_slice(resource);
    head
}

/// The bytes before the records of a scope, which have this length together.
fn scope_head(name: &str, records_len: usize) -> Vec<u8> {
    let mut scope = Vec::new();
    if !name.is_empty() {
        write_len_field(&mut scope, 1, name.as_bytes());
    }
    let mut content = Vec::new();
    write_len_field(&mut content, 1, &scope);
    let mut head = vec![2 << 3 | 2];
    write_varint(&mut head, (content.len() + records_len) as u64);
    head.append(&mut content);
    head
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

#[cfg(test)]
mod tests;
