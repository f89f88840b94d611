//! Validates and counts an encoded request in one pass.

use crate::Signal;
use crate::schema::{self, Message, WireKind};
use crate::wire::{
    FIXED32, FIXED64, GROUP_NESTING_LIMIT, GROUP_START, LEN, NOT_UTF8, Result, VARINT, malformed,
    read_len, read_tag, read_varint, skip_fixed, skip_value,
};

/// The deepest level of nested messages, counted from the request (level 0). prost, Java and C++
/// stop there too: every backend can read a request that is accepted here.
pub const NESTING_LIMIT: usize = 100;

/// Validates a request down to its last attribute and counts its spans, points or log records.
///
/// Accepted are requests that both prost and the Collector decode: every length and varint within
/// bounds, known fields with the wire type of their definition (repeated scalars packed or not),
/// `string` fields in UTF-8 (prost, the official Go library and Java refuse anything else, and one
/// such string would spoil the batch that it is merged into), trace ids of 0 or 16 and span ids of
/// 0 or 8 bytes (the Collector refuses the whole request otherwise), at most [`NESTING_LIMIT`]
/// levels. Unknown fields are skipped, unknown groups too, boundedly. Bytes after the last field do
/// not exist: every byte belongs to a field.
///
/// # Errors
/// [`crate::Malformed`] with the offset and the first thing that is wrong.
pub fn scan(signal: Signal, request: &[u8]) -> Result<u32> {
    let mut scan = Scan { items: 0 };
    scan.message(request, 0, signal.request(), 0)?;
    Ok(scan.items)
}

struct Scan {
    items: u32,
}

impl Scan {
    /// Validates the message that lies at `position..` of `bytes`. Offsets stay those of the whole
    /// request, as `bytes` is always cut at its end only.
    fn message(
        &mut self,
        bytes: &[u8],
        mut position: usize,
        message: &'static Message,
        depth: usize,
    ) -> Result<()> {
        if depth > NESTING_LIMIT {
            return Err(malformed(position, "messages nest too deeply"));
        }
        let mut metric = MetricData::default();
        while position < bytes.len() {
            let start = position;
            let (number, wire_type, after_tag) = read_tag(bytes, start)?;
            let kind = message.wire_kind(number);
            if wire_type != LEN {
                if wire_type == GROUP_START && depth + GROUP_NESTING_LIMIT > NESTING_LIMIT {
                    return Err(malformed(start, "a group nests too deeply"));
                }
                position = scalar(bytes, kind, number, wire_type, start, after_tag)?;
                continue;
            }
            let content = read_len(bytes, after_tag)?;
            position = content.end;
            let (bytes, within) = (&bytes[..content.end], content.start);
            match kind {
                WireKind::KeyValue => self.key_value(bytes, within, depth + 1)?,
                WireKind::Message(nested) | WireKind::Level(nested) => {
                    self.message(bytes, within, nested, depth + 1)?
                }
                WireKind::Item(nested) => {
                    self.items += 1;
                    self.message(bytes, within, nested, depth + 1)?;
                }
                WireKind::Data(nested) => {
                    metric.enter(number, &mut self.items);
                    self.message(bytes, within, nested, depth + 1)?;
                }
                _ => blob(bytes, kind, start, within)?,
            }
        }
        Ok(())
    }

    /// A `KeyValue`, by far the most frequent message. The usual form (a key and a string of less
    /// than 128 bytes each, in ASCII) is recognised by its shape: ASCII is valid UTF-8.
    #[inline(always)]
    fn key_value(&mut self, bytes: &[u8], position: usize, depth: usize) -> Result<()> {
        let body = &bytes[position..];
        if depth < NESTING_LIMIT && is_short_string_attribute(body) && body.is_ascii() {
            return Ok(());
        }
        self.message(bytes, position, &schema::KEY_VALUE, depth)
    }
}

/// `{1: key, 2: {1: string}}` with every length below 128, and nothing else.
#[inline(always)]
fn is_short_string_attribute(body: &[u8]) -> bool {
    let [0x0a, key_len, rest @ ..] = body else { return false };
    match rest.get(usize::from(*key_len)..) {
        Some([0x12, value_len, 0x0a, string_len, string @ ..]) => {
            usize::from(*string_len) == string.len() && usize::from(*value_len) == string.len() + 2
        }
        _ => false,
    }
}

/// Counts a metric's points as protobuf reads a `oneof`: another variant replaces the one before.
#[derive(Default)]
struct MetricData {
    variant: u32,
    items_before: u32,
}

impl MetricData {
    fn enter(&mut self, variant: u32, items: &mut u32) {
        if self.variant == 0 {
            self.items_before = *items;
        } else if self.variant != variant {
            *items = self.items_before;
        }
        self.variant = variant;
    }
}

/// A field that is not length-delimited; answers the position after it.
#[inline(always)]
pub(crate) fn scalar(
    bytes: &[u8],
    kind: WireKind,
    number: u32,
    wire_type: u8,
    start: usize,
    position: usize,
) -> Result<usize> {
    match (kind, wire_type) {
        (WireKind::Varint | WireKind::RepeatedVarint, VARINT) => {
            Ok(read_varint(bytes, position)?.1)
        }
        (WireKind::Fixed64 | WireKind::RepeatedFixed64, FIXED64) => skip_fixed(bytes, position, 8),
        (WireKind::Fixed32, FIXED32) => skip_fixed(bytes, position, 4),
        (WireKind::Unknown, _) => skip_value(bytes, number, wire_type, position),
        _ => Err(malformed(start, "a field has another wire type than its definition")),
    }
}

/// A length-delimited field that is no message. Its content goes to the end of `bytes`.
#[inline(always)]
fn blob(bytes: &[u8], kind: WireKind, start: usize, content: usize) -> Result<()> {
    let blob = &bytes[content..];
    match kind {
        WireKind::String if is_utf8(blob) => Ok(()),
        WireKind::String => Err(malformed(content, NOT_UTF8)),
        WireKind::Bytes | WireKind::Unknown => Ok(()),
        WireKind::TraceId if matches!(blob.len(), 0 | 16) => Ok(()),
        WireKind::TraceId => Err(malformed(start, "a trace id is neither empty nor 16 bytes long")),
        WireKind::SpanId if matches!(blob.len(), 0 | 8) => Ok(()),
        WireKind::SpanId => Err(malformed(start, "a span id is neither empty nor 8 bytes long")),
        WireKind::RepeatedFixed64 if blob.len().is_multiple_of(8) => Ok(()),
        WireKind::RepeatedFixed64 => Err(malformed(start, "packed values end within a value")),
        WireKind::RepeatedVarint => packed_varints(bytes, content),
        _ => Err(malformed(start, "a field has another wire type than its definition")),
    }
}

fn packed_varints(bytes: &[u8], mut position: usize) -> Result<()> {
    while position < bytes.len() {
        position = read_varint(bytes, position)?.1;
    }
    Ok(())
}

/// With `simdutf8`, other scripts cost as much as ASCII; the standard library checks 0.8 GB/s.
#[inline(always)]
fn is_utf8(bytes: &[u8]) -> bool {
    bytes.is_ascii() || simdutf8::basic::from_utf8(bytes).is_ok()
}
