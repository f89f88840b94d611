//! From messages to one OTLP request, as the Collector's receiver makes it: the tag as the
//! attribute `fluent.tag`, `log` or `message` as the body, other fields as attributes.
//!
//! Records are written straight from MessagePack to protobuf. The most that a record can become is
//! known from its length and its number of values, and asked for before it is written.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use sluice_flow::source::Permit;
use sluice_net::compress::{Ask, decompress_admitted};
use sluice_net::forward::message::{EventReader, Events, Message, write_ack};
use sluice_net::forward::msgpack::{Item, Reader};
use sluice_otlp::Encoding;
use sluice_otlp::wire::{write_len_field, write_varint};

use super::refused::Refused;

const TAG: &str = "fluent.tag";
/// Maps and arrays within a record nest at most this deep: as messages within
/// [`sluice_otlp::NESTING_LIMIT`].
const LEVELS_MAX: usize = 30;
/// A record has at most this many fields. Its names are kept while it is written.
const FIELDS_MAX: usize = 1 << 14;
/// A value becomes at most this many bytes beside its text: -1 does, which is one byte in
/// MessagePack.
const VALUE_BYTES: usize = 13;
/// The same of a record beside its values and its tag.
const RECORD_BYTES: usize = 64;
/// Room for the heads of the messages around the records, which are known last.
const HEADS_BYTES: usize = 16;

/// The messages that are submitted together.
pub(super) struct Batch {
    pub bytes: Bytes,
    /// The ends of the messages in `bytes`.
    ends: Vec<usize>,
    /// Each message asks for an acknowledgement: its sender keeps it until then.
    pub is_kept_by_sender: bool,
    has_compressed: bool,
}

/// One OTLP request.
pub(super) struct Converted {
    pub payload: Bytes,
    pub items: u32,
    /// The acknowledgements of all chunks.
    pub acks: Vec<u8>,
    pub chunks: u64,
    /// Strings that were not UTF-8.
    pub repaired_strings: u64,
}

impl Batch {
    pub(super) fn new(bytes: Bytes, ends: Vec<usize>) -> Result<Batch, Refused> {
        let mut batch = Batch { bytes, ends, is_kept_by_sender: true, has_compressed: false };
        let (mut is_kept, mut has_compressed) = (true, false);
        for message in batch.messages() {
            let Some(message) = message? else { continue };
            is_kept &= message.chunk.is_some();
            has_compressed |= message.compressed.is_some();
        }
        (batch.is_kept_by_sender, batch.has_compressed) = (is_kept, has_compressed);
        Ok(batch)
    }

    /// Whether converting takes so long that it must not be done on a thread that serves
    /// connections. Compressed events may become a thousand times as many.
    pub(super) fn is_large(&self, inline_bytes: usize) -> bool {
        self.has_compressed || self.bytes.len() > inline_bytes
    }

    fn messages(&self) -> impl Iterator<Item = Result<Option<Message<'_>>, Refused>> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let ranges = starts.zip(self.ends.iter().copied());
        ranges.map(|(start, end)| Ok(Message::read(&self.bytes[start..end])?))
    }

    /// CPU work only. The permit covers the batch; it grows by what is made of it before that is
    /// allocated, and covers the payload in the end.
    pub(super) fn convert(
        &self,
        permit: &mut Permit,
        limit_bytes: usize,
    ) -> Result<Converted, Refused> {
        let base_bytes = permit.bytes();
        let mut records = Records {
            out: Vec::new(),
            permit: &mut *permit,
            base_bytes,
            limit_bytes,
            items: 0,
            repaired_strings: 0,
        };
        records.room(self.bytes.len().max(HEADS_BYTES))?;
        records.out.resize(HEADS_BYTES, 0);
        let (mut acks, mut chunks) = (Vec::new(), 0);
        for message in self.messages() {
            let Some(message) = message? else { continue };
            records.add(&message)?;
            if let Some(chunk) = message.chunk {
                write_ack(&mut acks, chunk);
                chunks += 1;
            }
        }
        let Records { out, items, repaired_strings, .. } = records;
        let payload = framed(out);
        permit.shrink_to(payload.len() + acks.len());
        permit.grow_to(payload.len() + acks.len())?;
        Ok(Converted { payload, items, acks, chunks, repaired_strings })
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
    if out.capacity() - out.len() > out.len() / 4 {
        out.shrink_to_fit();
    }
    Bytes::from(out).slice(start..)
}

struct Records<'p> {
    out: Vec<u8>,
    permit: &'p mut Permit,
    /// Memory that is in use beside `out`.
    base_bytes: usize,
    limit_bytes: usize,
    items: u32,
    repaired_strings: u64,
}

impl Records<'_> {
    /// Makes sure that there is room for this many bytes more.
    fn room(&mut self, bytes: usize) -> Result<(), Refused> {
        let (len, capacity) = (self.out.len(), self.out.capacity());
        let needed = len.saturating_add(bytes);
        if needed <= capacity {
            return Ok(());
        }
        if needed > self.limit_bytes + HEADS_BYTES {
            return Err(Refused::too_large(self.limit_bytes));
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

    fn add(&mut self, message: &Message<'_>) -> Result<(), Refused> {
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
                self.events(message, Events::Packed(&plain))?;
                self.base_bytes -= held_bytes;
                Ok(())
            }
            (events, None) => self.events(message, events),
            (_, Some(_)) => Err(Refused::invalid("only packed events can be compressed")),
        }
    }

    fn events(&mut self, message: &Message<'_>, events: Events<'_>) -> Result<(), Refused> {
        let is_single = matches!(events, Events::Single(_));
        let mut events = EventReader::new(events)?;
        let mut seen = HashMap::new();
        while let Some(time_ns) = events.next_time()? {
            let (bytes, values) = events.reader.size()?;
            self.room(bytes + VALUE_BYTES * values + message.tag.len() + RECORD_BYTES)?;
            seen.clear();
            let mut writer = Writer { seen, repaired_strings: 0 };
            nested(&mut self.out, 0x12, |out| {
                writer.record(out, time_ns, &mut events.reader, message.tag, is_single)
            })?;
            self.items = self.items.checked_add(1).ok_or_else(|| Refused::invalid("too many"))?;
            self.repaired_strings += writer.repaired_strings;
            seen = writer.seen;
        }
        Ok(())
    }
}

/// Writes records. Their bytes have room.
struct Writer<'a> {
    /// The attributes of the record by their names, as they lie in `out`.
    seen: HashMap<&'a [u8], Range<usize>>,
    repaired_strings: u64,
}

impl<'a> Writer<'a> {
    /// The content of one `LogRecord`. Of several fields with a name the last one counts; in a
    /// message with a single event also before the tag.
    fn record(
        &mut self,
        out: &mut Vec<u8>,
        time_ns: i64,
        reader: &mut Reader<'a>,
        tag: &'a [u8],
        is_single: bool,
    ) -> Result<(), Refused> {
        out.push(0x09);
        out.extend_from_slice(&time_ns.to_le_bytes());
        let Item::Map(fields) = reader.item()? else {
            return Err(Refused::invalid("a record is a map"));
        };
        if fields > FIELDS_MAX {
            return Err(Refused::invalid("a record has at most 16384 fields"));
        }
        let (mut body, mut dropped) = (None, Vec::new());
        if is_single {
            self.tag(out, tag, &mut dropped)?;
        }
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
            self.attribute(out, key, &mut dropped, |writer, out| writer.value(out, reader, 0))?;
        }
        if !is_single {
            self.tag(out, tag, &mut dropped)?;
        }
        remove(out, dropped);
        if let Some(mut body) = body {
            nested(out, 0x2a, |out| self.value(out, &mut body, 0))?;
        }
        Ok(())
    }

    fn tag(
        &mut self,
        out: &mut Vec<u8>,
        tag: &'a [u8],
        dropped: &mut Vec<Range<usize>>,
    ) -> Result<(), Refused> {
        self.attribute(out, TAG.as_bytes(), dropped, |writer, out| {
            writer.text(out, 0x0a, tag);
            Ok(())
        })
    }

    fn attribute(
        &mut self,
        out: &mut Vec<u8>,
        key: &'a [u8],
        dropped: &mut Vec<Range<usize>>,
        write: impl FnOnce(&mut Self, &mut Vec<u8>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let start = out.len();
        self.pair(out, 0x32, key, write)?;
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

    /// The content of an `AnyValue`.
    fn value(
        &mut self,
        out: &mut Vec<u8>,
        reader: &mut Reader<'_>,
        level: usize,
    ) -> Result<(), Refused> {
        if level > LEVELS_MAX {
            return Err(Refused::invalid("the maps and arrays of a record nest at most 30 deep"));
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
                    nested(out, 0x0a, |out| self.value(out, reader, level + 1))?;
                }
                Ok(())
            })?,
            Item::Map(pairs) => nested(out, 0x32, |out| {
                for _ in 0..pairs {
                    let key = key(reader)?;
                    self.pair(out, 0x0a, key, |writer, out| writer.value(out, reader, level + 1))?;
                }
                Ok(())
            })?,
        }
        Ok(())
    }

    /// A string field. Each byte that is not UTF-8 becomes a `?`.
    fn text(&mut self, out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
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

fn key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Refused> {
    match reader.item()? {
        Item::Str(key) | Item::Bin(key) => Ok(key),
        _ => Err(Refused::invalid("the name of a field is no string")),
    }
}

/// A field with a length, whose content `write` appends.
fn nested(
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
fn remove(out: &mut Vec<u8>, mut ranges: Vec<Range<usize>>) {
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
