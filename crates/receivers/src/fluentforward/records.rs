//! From messages to one OTLP request, as the Collector's receiver makes it: the tag as the
//! attribute `fluent.tag`, `log` or `message` as the body, other fields as attributes. Fluent Bit's
//! metadata, of which the Collector knows nothing: see [`metadata`](super::metadata).
//!
//! Records are written straight from MessagePack to protobuf. The most that a record can become is
//! known from its length and its number of values, and asked for before it is written.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use sluice_flow::fitted;
use sluice_flow::source::Permit;
use sluice_net::compress::{Ask, decompress_admitted};
use sluice_net::forward::message::{EventReader, Events, Head, Kind, Message};
use sluice_net::forward::msgpack::{Item, Reader};
use sluice_otlp::wire::{write_len_field, write_varint};
use sluice_otlp::{Encoding, NESTING_LIMIT};

use super::metadata::Metadata;
use super::refused::{Refused, too_large};

const TAG: &str = "fluent.tag";
/// The depth of a body as a message, counted from the request; of an attribute's value; and of the
/// messages that an array and a map are around their values.
const BODY_DEPTH: usize = 4;
pub(super) const ATTRIBUTE_DEPTH: usize = 5;
const ARRAY_DEPTH: usize = 2;
const MAP_DEPTH: usize = 3;
/// A record has at most this many fields. Its names are kept while it is written.
const FIELDS_MAX: usize = 1 << 14;
/// A value becomes at most this many bytes beside those that it has: -1 becomes 13 more than its
/// one, and a whole number beyond 63 bits, which becomes a text of up to 20 digits, 15.
const VALUE_BYTES: usize = 15;
/// The same of a record beside its values and its tag.
const RECORD_BYTES: usize = 64;
/// Room for the heads of the messages around the records, which are known last.
const HEADS_BYTES: usize = 16;

/// Records that have their resource and scope in common.
#[derive(Clone, Copy)]
struct Group {
    /// Its fields in `ResourceLogs` lie before `scope`, those in `ScopeLogs` before `records`.
    start: usize,
    scope: usize,
    records: usize,
}

impl Group {
    /// Without a resource and a scope.
    fn plain(start: usize) -> Group {
        Group { start, scope: start, records: start }
    }
}

/// The records of an OTLP request.
pub(super) struct Records<'p> {
    out: Vec<u8>,
    /// One at least. Each ends where the next one begins.
    groups: Vec<Group>,
    permit: &'p mut Permit,
    /// Memory that is in use beside `out`.
    base_bytes: usize,
    limit_bytes: usize,
    pub items: u32,
    pub repaired_strings: u64,
}

impl<'p> Records<'p> {
    /// The permit covers what is in use already.
    pub(super) fn new(permit: &'p mut Permit, limit_bytes: usize) -> Result<Records<'p>, Refused> {
        let base_bytes = permit.bytes();
        let groups = vec![Group::plain(HEADS_BYTES)];
        let out = Vec::new();
        let (items, repaired_strings) = (0, 0);
        let mut records =
            Records { out, groups, permit, base_bytes, limit_bytes, items, repaired_strings };
        records.room(HEADS_BYTES)?;
        records.out.resize(HEADS_BYTES, 0);
        Ok(records)
    }

    /// This many bytes may come: with room for them nothing is copied to larger places.
    pub(super) fn expect(&mut self, bytes: usize) {
        // Without it each record asks for its own.
        let _ = self.room(bytes);
    }

    pub(super) fn bytes(&self) -> usize {
        self.out.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Makes sure that there is room for this many bytes more.
    fn room(&mut self, bytes: usize) -> Result<(), Refused> {
        let (len, capacity) = (self.out.len(), self.out.capacity());
        let needed = len.saturating_add(bytes);
        if needed <= capacity {
            return Ok(());
        }
        if needed > self.limit_bytes + HEADS_BYTES {
            return Err(too_large(self.limit_bytes));
        }
        // Twice as much, or what is needed if there is no more.
        let wanted = [needed.max(2 * capacity), needed];
        let mut grow = |wanted| self.permit.grow_to(self.base_bytes + wanted);
        let granted = wanted.into_iter().find(|wanted| grow(*wanted).is_ok());
        let Some(granted) = granted else {
            return Ok(grow(needed)?);
        };
        self.out.reserve_exact(granted - len);
        Ok(())
    }

    /// Adds all records of the message, or none.
    pub(super) fn add(&mut self, message: &Message<'_>) -> Result<(), Refused> {
        let (bytes, groups) = (self.out.len(), self.groups.len());
        let (items, repaired_strings) = (self.items, self.repaired_strings);
        let base_bytes = self.base_bytes;
        let added = self.add_events(message);
        if added.is_err() {
            self.out.truncate(bytes);
            self.groups.truncate(groups);
            (self.items, self.repaired_strings) = (items, repaired_strings);
        }
        // The unpacked events are gone.
        self.base_bytes = base_bytes + (self.groups.len() - groups) * size_of::<Group>();
        added
    }

    fn add_events(&mut self, message: &Message<'_>) -> Result<(), Refused> {
        match (message.events, message.compressed) {
            (Events::Packed(packed), Some(name)) => {
                let encoding = match name {
                    b"gzip" => Encoding::Gzip,
                    b"zstd" => Encoding::Zstd,
                    _ => return Err(Refused::invalid("events are compressed with gzip or zstd")),
                };
                let own_bytes = self.base_bytes + self.out.capacity();
                let mut held_bytes = 0;
                let permit = &mut *self.permit;
                let mut ask = |ask| match ask {
                    Ask::Hold { bytes } => {
                        held_bytes = bytes;
                        permit.grow_to(own_bytes + bytes)
                    }
                    Ask::Measure => Ok(()),
                };
                let plain = decompress_admitted(encoding, packed, self.limit_bytes, &mut ask)?;
                self.base_bytes += held_bytes;
                self.events(message, Events::Packed(&plain))
            }
            (events, None) => self.events(message, events),
            (_, Some(_)) => Err(Refused::invalid("only packed events can be compressed")),
        }
    }

    fn events(&mut self, message: &Message<'_>, events: Events<'_>) -> Result<(), Refused> {
        let is_single = matches!(events, Events::Single(_));
        let mut events = EventReader::new(events)?;
        let mut seen = HashMap::new();
        self.begin(Group::plain(self.out.len()))?;
        while let Some(Head { time_ns, metadata, kind }) = events.next_head()? {
            let metadata = metadata.or(message.metadata);
            let (mut bytes, mut values) = events.reader.size()?;
            if let Some(metadata) = &metadata {
                let (more_bytes, more_values) = metadata.size()?;
                (bytes, values) = (bytes + more_bytes, values + more_values);
            }
            self.room(bytes + VALUE_BYTES * values + message.tag.len() + RECORD_BYTES)?;
            seen.clear();
            let mut writer = Writer { seen, repaired_strings: 0 };
            let reader = &mut events.reader;
            match kind {
                Kind::Record => {
                    let metadata = metadata.map(Metadata::read).transpose()?.unwrap_or_default();
                    nested(&mut self.out, 0x12, |out| {
                        writer.record(out, time_ns, &metadata, reader, message.tag, is_single)
                    })?;
                    let items = self.items.checked_add(1);
                    self.items = items.ok_or_else(|| Refused::invalid("too many"))?;
                }
                Kind::GroupStart => {
                    let start = self.out.len();
                    let scope = writer.group(&mut self.out, *reader)?;
                    self.begin(Group { start, scope, records: self.out.len() })?;
                    reader.skip()?;
                }
                Kind::GroupEnd => {
                    self.begin(Group::plain(self.out.len()))?;
                    reader.skip()?;
                }
            }
            self.repaired_strings += writer.repaired_strings;
            seen = writer.seen;
        }
        Ok(())
    }

    /// Begins a group where the bytes end. A plain one goes on.
    fn begin(&mut self, group: Group) -> Result<(), Refused> {
        let is_plain = |group: &Group| group.start == group.records;
        if is_plain(&group) && self.groups.last().is_none_or(is_plain) {
            return Ok(());
        }
        self.base_bytes += size_of::<Group>();
        // The list is at most twice as long as it has to be.
        let bytes = self.groups.len() * size_of::<Group>();
        self.permit.grow_to(self.base_bytes + self.out.capacity() + bytes)?;
        self.groups.push(group);
        Ok(())
    }

    /// The request.
    pub(super) fn finish(mut self) -> Result<Bytes, Refused> {
        if self.groups.len() == 1 {
            return Ok(framed(self.out));
        }
        let whole = self.out.len() + self.groups.len() * 2 * HEADS_BYTES;
        self.permit.grow_to(self.base_bytes + self.out.capacity() + whole)?;
        let mut request = Vec::with_capacity(whole);
        self.groups.push(Group::plain(self.out.len()));
        for (group, next) in self.groups.iter().zip(&self.groups[1..]) {
            if group.records == next.start {
                continue;
            }
            let (resource, scope) =
                (&self.out[group.start..group.scope], &self.out[group.scope..next.start]);
            let mut head = vec![0x12];
            write_varint(&mut head, scope.len() as u64);
            request.push(0x0a);
            write_varint(&mut request, (resource.len() + head.len() + scope.len()) as u64);
            [resource, &head, scope].into_iter().for_each(|part| request.extend_from_slice(part));
        }
        Ok(fitted(request))
    }
}

/// Puts the heads before the records: a request with one resource, which has one scope.
fn framed(mut out: Vec<u8>) -> Bytes {
    let records_bytes = (out.len() - HEADS_BYTES) as u64;
    let mut scope = vec![0x12];
    write_varint(&mut scope, records_bytes);
    let mut heads = vec![0x0a];
    write_varint(&mut heads, scope.len() as u64 + records_bytes);
    heads.extend_from_slice(&scope);
    let start = HEADS_BYTES - heads.len();
    out[start..HEADS_BYTES].copy_from_slice(&heads);
    fitted(out).slice(start..)
}

/// Writes records. Their bytes have room.
pub(super) struct Writer<'a> {
    /// The attributes of the record by their names, as they lie in `out`.
    pub(super) seen: HashMap<&'a [u8], Range<usize>>,
    repaired_strings: u64,
}

impl<'a> Writer<'a> {
    /// The content of one `LogRecord`. Of several fields with a name the last one counts; in a
    /// message with a single event also before the tag.
    fn record(
        &mut self,
        out: &mut Vec<u8>,
        time_ns: i64,
        metadata: &Metadata<'a>,
        reader: &mut Reader<'a>,
        tag: &'a [u8],
        is_single: bool,
    ) -> Result<(), Refused> {
        out.push(0x09);
        out.extend_from_slice(&metadata.time_ns.unwrap_or(time_ns as u64).to_le_bytes());
        let Item::Map(fields) = reader.item()? else {
            return Err(Refused::invalid("a record is a map"));
        };
        check_fields(fields)?;
        let (mut body, mut dropped) = (None, Vec::new());
        if is_single {
            self.tag(out, tag, &mut dropped)?;
        }
        metadata.write(self, out, &mut dropped)?;
        for _ in 0..fields {
            let key = key(reader)?;
            if matches!(key, b"message" | b"log") {
                let start = *reader;
                if reader.item()? != Item::Nil {
                    body = Some(start);
                }
                *reader = start;
                reader.skip()?;
                continue;
            }
            self.attribute(out, 0x32, key, &mut dropped, |writer, out| {
                writer.value(out, reader, ATTRIBUTE_DEPTH)
            })?;
        }
        if !is_single {
            self.tag(out, tag, &mut dropped)?;
        }
        remove(out, dropped);
        if let Some(mut body) = body {
            nested(out, 0x2a, |out| self.value(out, &mut body, BODY_DEPTH))?;
        }
        Ok(())
    }

    fn tag(
        &mut self,
        out: &mut Vec<u8>,
        tag: &'a [u8],
        dropped: &mut Vec<Range<usize>>,
    ) -> Result<(), Refused> {
        self.attribute(out, 0x32, TAG.as_bytes(), dropped, |writer, out| {
            writer.text(out, 0x0a, tag);
            Ok(())
        })
    }

    /// A `KeyValue` whose key occurs once in its message: the place of an earlier one is added to
    /// those that are dropped.
    pub(super) fn attribute(
        &mut self,
        out: &mut Vec<u8>,
        tag: u8,
        key: &'a [u8],
        dropped: &mut Vec<Range<usize>>,
        write: impl FnOnce(&mut Self, &mut Vec<u8>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let start = out.len();
        self.pair(out, tag, key, write)?;
        dropped.extend(self.seen.insert(key, start..out.len()));
        Ok(())
    }

    /// A `KeyValue`.
    fn pair(
        &mut self,
        out: &mut Vec<u8>,
        tag: u8,
        key: &[u8],
        write: impl FnOnce(&mut Self, &mut Vec<u8>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        nested(out, tag, |out| {
            self.text(out, 0x0a, key);
            nested(out, 0x12, |out| write(self, out))
        })
    }

    /// The content of an `AnyValue` that lies at this depth.
    pub(super) fn value(
        &mut self,
        out: &mut Vec<u8>,
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Result<(), Refused> {
        // An empty array is a message, too.
        if depth > NESTING_LIMIT || depth == NESTING_LIMIT && is_nested(*reader)? {
            let message = "the values of a record nest at most as deep as OTLP does: 31 maps or 47 \
                           arrays";
            return Err(Refused::invalid(message));
        }
        match reader.item()? {
            Item::Nil => {}
            Item::Bool(value) => out.extend_from_slice(&[0x10, u8::from(value)]),
            Item::Int(value) => {
                out.push(0x18);
                write_varint(out, value as u64);
            }
            Item::Large(value) => write_len_field(out, 1, value.to_string().as_bytes()),
            Item::Float(value) => {
                out.push(0x21);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Item::Str(text) | Item::Bin(text) => self.text(out, 0x0a, text),
            Item::Ext(_, bytes) => write_len_field(out, 7, bytes),
            Item::Array(elements) => nested(out, 0x2a, |out| {
                for _ in 0..elements {
                    nested(out, 0x0a, |out| self.value(out, reader, depth + ARRAY_DEPTH))?;
                }
                Ok(())
            })?,
            Item::Map(pairs) => nested(out, 0x32, |out| {
                for _ in 0..pairs {
                    let key = key(reader)?;
                    self.pair(out, 0x0a, key, |writer, out| {
                        writer.value(out, reader, depth + MAP_DEPTH)
                    })?;
                }
                Ok(())
            })?,
        }
        Ok(())
    }

    /// A string field. Each byte that is not UTF-8 becomes a `?`.
    pub(super) fn text(&mut self, out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
        out.push(tag);
        write_varint(out, bytes.len() as u64);
        if std::str::from_utf8(bytes).is_ok() {
            out.extend_from_slice(bytes);
            return;
        }
        self.repaired_strings += 1;
        for chunk in bytes.utf8_chunks() {
            out.extend_from_slice(chunk.valid().as_bytes());
            out.extend(chunk.invalid().iter().map(|_| b'?'));
        }
    }
}

/// Whether an array or a map comes next.
fn is_nested(mut reader: Reader<'_>) -> Result<bool, Refused> {
    Ok(matches!(reader.item()?, Item::Array(_) | Item::Map(_)))
}

pub(super) fn check_fields(fields: usize) -> Result<(), Refused> {
    let too_many = || Refused::invalid("a record has at most 16384 fields");
    (fields <= FIELDS_MAX).then_some(()).ok_or_else(too_many)
}

pub(super) fn key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Refused> {
    match reader.item()? {
        Item::Str(key) | Item::Bin(key) => Ok(key),
        _ => Err(Refused::invalid("the name of a field is no string")),
    }
}

/// A field with a length, whose content `write` appends.
pub(super) fn nested(
    out: &mut Vec<u8>,
    tag: u8,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let at = out.len();
    out.extend_from_slice(&[tag, 0]);
    write(out)?;
    let len = out.len() - at - 2;
    if len < 0x80 {
        out[at + 1] = len as u8;
        return Ok(());
    }
    // One byte was left for the length: most contents are short.
    let mut head = Vec::with_capacity(11);
    head.push(tag);
    write_varint(&mut head, len as u64);
    out.resize(out.len() + head.len() - 2, 0);
    out.copy_within(at + 2..at + 2 + len, at + head.len());
    out[at..at + head.len()].copy_from_slice(&head);
    Ok(())
}

/// Cuts the ranges out.
pub(super) fn remove(out: &mut Vec<u8>, mut ranges: Vec<Range<usize>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    let Some(first) = ranges.first() else { return };
    let mut kept_to = first.start;
    for (index, range) in ranges.iter().enumerate() {
        let next = ranges.get(index + 1).map_or(out.len(), |next| next.start);
        out.copy_within(range.end..next, kept_to);
        kept_to += next - range.end;
    }
    out.truncate(kept_to);
}
