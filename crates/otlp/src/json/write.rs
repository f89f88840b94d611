//! Protobuf → OTLP/JSON.
//!
//! On the wire fields come in any order, and a singular message may come in several parts that add
//! up; JSON wants every member once. So each message is passed over twice: the first pass notes
//! where each field begins and how often it occurs, the second writes the members.

use std::ops::Range;
use std::slice;

use serde::Serialize;

use super::binary::{write_base64, write_hex};
use super::error::ToJsonError;
use crate::schema::{FIELDS_LIMIT, Field, Kind, Message, Presence};
use crate::wire::{
    Field as Occurrence, Fields as Occurrences, LEN, OCCURRENCES_LIMIT, malformed, read_varint,
    skip_value,
};
use crate::{NESTING_LIMIT, Signal};

/// Longer texts are written in pieces of this size.
const STRING_PIECE_BYTES: usize = 16 * 1024;

type Result<T, E = ToJsonError> = std::result::Result<T, E>;

/// Appends the request to `out`: OTLP/JSON without line breaks, up to `limit_bytes`, or nothing.
///
/// # Errors
/// [`ToJsonError::Malformed`] if [`crate::scan`] refuses it, else [`ToJsonError::TooLarge`].
pub fn to_json(
    signal: Signal,
    request: &[u8],
    limit_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    let mut writer = Writer { request, limit: start.saturating_add(limit_bytes), limit_bytes, out };
    let result = writer.message(signal.request(), slice::from_ref(&(0..request.len())), 0);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

struct Writer<'a> {
    request: &'a [u8],
    /// Length that `out` must not exceed.
    limit: usize,
    limit_bytes: usize,
    out: &'a mut Vec<u8>,
}

/// The occurrences of a field: `count`, from this position on. Of a singular scalar the last.
#[derive(Clone, Copy, Default)]
struct Slot {
    count: u32,
    part: usize,
    position: usize,
}

/// A field of the message whose encoding is the concatenation of `parts`.
#[derive(Clone, Copy)]
struct Member<'m> {
    field: &'static Field,
    slot: Slot,
    parts: &'m [Range<usize>],
    /// Depth of the message.
    depth: usize,
}

impl<'a> Writer<'a> {
    /// Writes the message whose encoding is the concatenation of `parts`.
    fn message(
        &mut self,
        message: &'static Message,
        parts: &[Range<usize>],
        depth: usize,
    ) -> Result<()> {
        if depth > NESTING_LIMIT {
            return Err(malformed(parts[0].start, "messages nest too deeply").into());
        }
        let slots = self.index(message, parts)?;
        self.out.push(b'{');
        let mut is_first = true;
        for (field, slot) in message.fields.iter().zip(slots) {
            if slot.count == 0 {
                continue;
            }
            let before = self.out.len();
            if !is_first {
                self.out.push(b',');
            }
            self.out.push(b'"');
            self.out.extend_from_slice(field.name.as_bytes());
            self.out.extend_from_slice(b"\":");
            if self.member(Member { field, slot, parts, depth })? {
                is_first = false;
            } else {
                self.out.truncate(before);
            }
            self.check_limit()?;
        }
        self.out.push(b'}');
        self.check_limit()
    }

    fn index(&self, message: &Message, parts: &[Range<usize>]) -> Result<[Slot; FIELDS_LIMIT]> {
        let mut slots = [Slot::default(); FIELDS_LIMIT];
        let mut chosen = None;
        for (part, range) in parts.iter().enumerate() {
            let mut occurrences = Occurrences::new(self.request, range.clone());
            while let Some(occurrence) = occurrences.next_field()? {
                let Some(index) = message.numbered(occurrence.number) else { continue };
                let field = &message.fields[index];
                let is_repeated = field.presence == Presence::Repeated;
                if occurrence.wire_type != field.kind.wire_type()
                    && !(is_repeated && occurrence.wire_type == LEN)
                {
                    let reason = "a field has another wire type than its definition";
                    return Err(malformed(occurrence.start, reason).into());
                }
                // Another member of the oneof replaces the one before.
                if field.presence == Presence::Oneof
                    && chosen != Some(index)
                    && let Some(replaced) = chosen.replace(index)
                {
                    slots[replaced] = Slot::default();
                }
                let slot = &mut slots[index];
                if slot.count > 0 && (is_repeated || matches!(field.kind, Kind::Message(_))) {
                    slot.count += 1;
                } else {
                    *slot = Slot { count: 1, part, position: occurrence.start };
                }
            }
        }
        Ok(slots)
    }

    /// Calls `each` with the occurrences of the field that the slot tells of.
    fn occurrences(
        &mut self,
        Member { field, slot, parts, .. }: Member<'_>,
        mut each: impl FnMut(&mut Self, Occurrence) -> Result<()>,
    ) -> Result<()> {
        let mut left = slot.count;
        for (index, range) in parts[slot.part..].iter().enumerate() {
            let start = if index == 0 { slot.position } else { range.start };
            let mut occurrences = Occurrences::new(self.request, start..range.end);
            while left > 0
                && let Some(occurrence) = occurrences.next_field()?
            {
                if occurrence.number == field.number {
                    left -= 1;
                    each(self, occurrence)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the member's value. False if it is a default that need not be written.
    fn member(&mut self, member: Member<'_>) -> Result<bool> {
        let Member { field, slot, depth, .. } = member;
        match (field.presence, field.kind) {
            (Presence::Repeated, _) => return self.repeated(member),
            (_, Kind::Message(child)) => {
                if slot.count as usize > OCCURRENCES_LIMIT {
                    let reason = "a singular message comes in too many parts";
                    return Err(malformed(slot.position, reason).into());
                }
                let mut child_parts = Vec::with_capacity(slot.count as usize);
                self.occurrences(member, |_, occurrence| {
                    child_parts.push(occurrence.content());
                    Ok(())
                })?;
                self.message(child, &child_parts, depth + 1)?;
                return Ok(true);
            }
            _ => {}
        }
        let mut is_default = false;
        self.occurrences(member, |writer, occurrence| {
            is_default = writer.value(field.kind, occurrence.content())?;
            Ok(())
        })?;
        Ok(!is_default || field.presence != Presence::Implicit)
    }

    fn repeated(&mut self, member: Member<'_>) -> Result<bool> {
        self.out.push(b'[');
        let start = self.out.len();
        self.occurrences(member, |writer, occurrence| match member.field.kind {
            Kind::Message(child) => {
                writer.separate(start);
                writer.message(child, slice::from_ref(&occurrence.content()), member.depth + 1)
            }
            kind if occurrence.wire_type != kind.wire_type() => {
                writer.packed(kind, occurrence.content(), start)
            }
            kind => writer.element(kind, occurrence.content(), start),
        })?;
        let is_empty = self.out.len() == start;
        self.out.push(b']');
        Ok(!is_empty)
    }

    fn packed(&mut self, kind: Kind, values: Range<usize>, start: usize) -> Result<()> {
        let mut position = values.start;
        while position < values.end {
            let bytes = &self.request[..values.end];
            let next = skip_value(bytes, 0, kind.wire_type(), position)?;
            self.element(kind, position..next, start)?;
            position = next;
        }
        Ok(())
    }

    /// A scalar of the array that begins at `start`.
    fn element(&mut self, kind: Kind, range: Range<usize>, start: usize) -> Result<()> {
        self.separate(start);
        self.value(kind, range)?;
        self.check_limit()
    }

    /// A comma, unless the array that begins at `start` is still empty.
    fn separate(&mut self, start: usize) {
        if self.out.len() > start {
            self.out.push(b',');
        }
    }

    /// Writes a scalar. True if it is the default of its type.
    fn value(&mut self, kind: Kind, range: Range<usize>) -> Result<bool> {
        let bytes = &self.request[range.clone()];
        match kind {
            Kind::Bool => Ok(self.json(self.varint(&range)? != 0)),
            Kind::Enum(..) | Kind::Int32 => Ok(self.json(self.varint(&range)? as i32)),
            Kind::Uint32 => Ok(self.json(self.varint(&range)? as u32)),
            Kind::Sint32 => {
                let value = self.varint(&range)? as u32;
                Ok(self.json((value >> 1) as i32 ^ -((value & 1) as i32)))
            }
            Kind::Fixed32 => Ok(self.json(u32::from_le_bytes(fixed(bytes)))),
            Kind::Int64 => Ok(self.quoted(self.varint(&range)? as i64)),
            Kind::Uint64 => Ok(self.quoted(self.varint(&range)?)),
            Kind::Fixed64 => Ok(self.quoted(u64::from_le_bytes(fixed(bytes)))),
            Kind::Sfixed64 => Ok(self.quoted(i64::from_le_bytes(fixed(bytes)))),
            Kind::Double => Ok(self.double(f64::from_le_bytes(fixed(bytes)))),
            Kind::String => self.string(bytes),
            Kind::Bytes => {
                write_base64(bytes, self.out);
                Ok(bytes.is_empty())
            }
            Kind::Id(_) => {
                write_hex(bytes, self.out);
                Ok(bytes.is_empty())
            }
            Kind::Message(_) => unreachable!("messages are objects, not values"),
        }
    }

    /// A long text is written in pieces: the limit holds within it, too.
    fn string(&mut self, text: &[u8]) -> Result<bool> {
        if text.len() <= STRING_PIECE_BYTES {
            return Ok(self.json(&*String::from_utf8_lossy(text)));
        }
        self.json("");
        for chunk in text.utf8_chunks() {
            let mut valid = chunk.valid();
            while !valid.is_empty() {
                let mut end = valid.len().min(STRING_PIECE_BYTES);
                while !valid.is_char_boundary(end) {
                    end -= 1;
                }
                let (piece, rest) = valid.split_at(end);
                self.append(piece)?;
                valid = rest;
            }
            if !chunk.invalid().is_empty() {
                self.append("\u{fffd}")?;
            }
        }
        Ok(false)
    }

    /// Lengthens the string that was written last.
    fn append(&mut self, piece: &str) -> Result<()> {
        // The piece comes with quotes of its own: its first takes the place of the byte before the
        // last quote, which is put back.
        let at = self.out.len() - 2;
        let before = self.out[at];
        self.out.truncate(at);
        self.json(piece);
        self.out[at] = before;
        self.check_limit()
    }

    fn varint(&self, range: &Range<usize>) -> Result<u64> {
        Ok(read_varint(&self.request[..range.end], range.start)?.0)
    }

    /// True if the value is the default of its type, as of the two below.
    fn json<T: Serialize + Default + PartialEq>(&mut self, value: T) -> bool {
        serde_json::to_writer(&mut *self.out, &value)
            .expect("numbers and strings can be written to memory");
        value == T::default()
    }

    /// 64-bit integers are strings: the numbers of many JSON readers are doubles.
    fn quoted<T: Serialize + Default + PartialEq>(&mut self, value: T) -> bool {
        self.out.push(b'"');
        let is_default = self.json(value);
        self.out.push(b'"');
        is_default
    }

    fn double(&mut self, value: f64) -> bool {
        if value.is_finite() {
            return self.json(value);
        }
        self.json(match value {
            f64::INFINITY => "Infinity",
            f64::NEG_INFINITY => "-Infinity",
            _ => "NaN",
        })
    }

    fn check_limit(&self) -> Result<()> {
        if self.out.len() > self.limit {
            return Err(ToJsonError::TooLarge { limit_bytes: self.limit_bytes });
        }
        Ok(())
    }
}

/// A fixed-width value, whose width its wire type has assured.
fn fixed<const WIDTH: usize>(bytes: &[u8]) -> [u8; WIDTH] {
    bytes.try_into().expect("the wire type gives the width")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::write_len_field;

    /// A request of one log record with this text.
    fn record(text: &[u8]) -> Vec<u8> {
        [1, 5, 2, 2, 1].iter().fold(text.to_vec(), |content, number| {
            let mut out = Vec::new();
            write_len_field(&mut out, *number, &content);
            out
        })
    }

    #[test]
    fn long_texts_are_written_as_short_ones_are() {
        for unit in [&b"a\"\x01"[..], "ä€\n".as_bytes(), b"x\xff\xc3", b"\xff"] {
            let text = unit.repeat(2 * STRING_PIECE_BYTES / unit.len() + 7);
            let mut out = Vec::new();
            to_json(Signal::Logs, &record(&text), usize::MAX, &mut out).expect("is valid");
            let expected = serde_json::to_string(&String::from_utf8_lossy(&text)).expect("JSON");
            let written = String::from_utf8(out).expect("UTF-8");
            assert!(written.contains(&format!("\"stringValue\":{expected}}}")), "{unit:?}");
        }
    }

    /// Scenario: a text that becomes six times as long. Guarantee: the limit holds on the way.
    #[test]
    fn the_limit_holds_within_a_text() {
        const LIMIT_BYTES: usize = 1 << 20;
        let mut out = Vec::new();
        let written = to_json(Signal::Logs, &record(&vec![1; 4 << 20]), LIMIT_BYTES, &mut out);
        assert!(matches!(written, Err(ToJsonError::TooLarge { .. })));
        assert!(out.is_empty() && out.capacity() <= 3 * LIMIT_BYTES, "{}", out.capacity());
    }
}
