//! The protobuf wire format, from which everything above is built: tags, varints, lengths.

use std::ops::Range;

pub use crate::schema::{FIXED32, FIXED64, LEN, VARINT};

/// Unknown groups may nest this deep, within [`crate::NESTING_LIMIT`].
pub(crate) const GROUP_NESTING_LIMIT: usize = 16;

/// A singular message may occur this often within its parent: protobuf merges several, which no
/// known sender writes. Unbounded, two bytes of a hostile request would cost fifty of memory.
pub(crate) const OCCURRENCES_LIMIT: usize = 1024;

/// Why a request is not a protobuf message of its kind, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed OTLP request at byte {offset}: {reason}")]
pub struct Malformed {
    /// Offset into the request, in bytes.
    pub offset: usize,
    pub reason: &'static str,
}

pub(crate) const NOT_UTF8: &str = "a string is not valid UTF-8";

impl Malformed {
    /// Whether [`crate::repair_strings`] may help.
    pub fn is_text(&self) -> bool {
        self.reason == NOT_UTF8
    }
}

pub type Result<T, E = Malformed> = std::result::Result<T, E>;

pub(crate) const fn malformed(offset: usize, reason: &'static str) -> Malformed {
    Malformed { offset, reason }
}

pub(crate) const GROUP_START: u8 = 3;
const GROUP_END: u8 = 4;

/// The tag byte of a length-delimited field. Only for field numbers below 16.
pub(crate) const fn len_tag(number: u32) -> u8 {
    assert!(number > 0 && number < 16);
    (number as u8) << 3 | LEN
}

/// Reads a varint at `position`; answers its value and the position after it.
#[inline(always)]
pub fn read_varint(bytes: &[u8], position: usize) -> Result<(u64, usize)> {
    match bytes.get(position) {
        Some(&byte) if byte < 0x80 => Ok((u64::from(byte), position + 1)),
        _ => read_long_varint(bytes, position),
    }
}

#[inline(never)]
fn read_long_varint(bytes: &[u8], position: usize) -> Result<(u64, usize)> {
    let mut value = 0u64;
    for index in 0..10 {
        let Some(&byte) = bytes.get(position + index) else {
            return Err(malformed(position, "a varint runs past the end of its message"));
        };
        if index == 9 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, position + index + 1));
        }
    }
    Err(malformed(position, "a varint is longer than 64 bits"))
}

/// Reads a tag at `position`; answers field number, wire type and the position after it.
#[inline(always)]
pub(crate) fn read_tag(bytes: &[u8], position: usize) -> Result<(u32, u8, usize)> {
    let (tag, next) = read_varint(bytes, position)?;
    if tag > u64::from(u32::MAX) {
        return Err(malformed(position, "a field number is out of range"));
    }
    let number = (tag >> 3) as u32;
    if number == 0 {
        return Err(malformed(position, "a field has the number zero"));
    }
    Ok((number, (tag & 7) as u8, next))
}

/// Reads the length of a length-delimited field; answers the range of its content.
#[inline(always)]
pub(crate) fn read_len(bytes: &[u8], position: usize) -> Result<Range<usize>> {
    let (len, start) = read_varint(bytes, position)?;
    if len > (bytes.len() - start) as u64 {
        return Err(malformed(position, "a length runs past the end of its message"));
    }
    Ok(start..start + len as usize)
}

/// Skips `width` bytes of a fixed-width value.
#[inline(always)]
pub(crate) fn skip_fixed(bytes: &[u8], position: usize, width: usize) -> Result<usize> {
    if bytes.len() - position < width {
        return Err(malformed(position, "a fixed-width value runs past the end of its message"));
    }
    Ok(position + width)
}

/// Skips the value of a field, or a whole group, whose tag was read; answers the position after it.
pub(crate) fn skip_value(
    bytes: &[u8],
    number: u32,
    wire_type: u8,
    position: usize,
) -> Result<usize> {
    match wire_type {
        VARINT => Ok(read_varint(bytes, position)?.1),
        FIXED64 => skip_fixed(bytes, position, 8),
        LEN => Ok(read_len(bytes, position)?.end),
        FIXED32 => skip_fixed(bytes, position, 4),
        GROUP_START => skip_group(bytes, number, position),
        GROUP_END => Err(malformed(position, "a group ends that was not started")),
        _ => Err(malformed(position, "a field has an invalid wire type")),
    }
}

fn skip_group(bytes: &[u8], number: u32, mut position: usize) -> Result<usize> {
    let mut open = [0u32; GROUP_NESTING_LIMIT];
    open[0] = number;
    let mut depth = 1;
    while depth > 0 {
        let start = position;
        let (number, wire_type, next) = read_tag(bytes, position)?;
        position = match wire_type {
            GROUP_START => {
                let slot = open.get_mut(depth).ok_or(malformed(start, "groups nest too deeply"))?;
                *slot = number;
                depth += 1;
                next
            }
            GROUP_END if open[depth - 1] == number => {
                depth -= 1;
                next
            }
            _ => skip_value(bytes, number, wire_type, next)?,
        };
    }
    Ok(position)
}

/// One field of a message on the wire. Positions are offsets into the bytes that were read.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub number: u32,
    pub wire_type: u8,
    /// Start of the tag.
    pub(crate) start: usize,
    /// End of the tag.
    pub(crate) after_tag: usize,
    /// Start of the content of a length-delimited field, or of the value of any other.
    pub(crate) content: usize,
    /// Start of the next field.
    pub(crate) end: usize,
}

impl Field {
    /// True for a string, bytes, a message or a packed list with this number.
    pub fn is_message(&self, number: u32) -> bool {
        self.number == number && self.wire_type == LEN
    }

    pub fn content(&self) -> Range<usize> {
        self.content..self.end
    }

    /// The range of the length of a length-delimited field.
    pub(crate) fn len(&self) -> Range<usize> {
        self.after_tag..self.content
    }

    pub(crate) fn whole(&self) -> Range<usize> {
        self.start..self.end
    }

    /// The value of a varint field; zero for any other.
    pub fn varint(&self, bytes: &[u8]) -> u64 {
        if self.wire_type != VARINT {
            return 0;
        }
        read_varint(bytes, self.content).map_or(0, |(value, _)| value)
    }
}

/// Iterates over the fields of the message that lies at `range` of `bytes`.
pub struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8], range: Range<usize>) -> Self {
        Fields { bytes: &bytes[..range.end], position: range.start }
    }

    /// All fields of a message that fills `bytes`.
    pub fn of(bytes: &'a [u8]) -> Self {
        Fields { bytes, position: 0 }
    }

    #[inline(always)]
    pub fn next_field(&mut self) -> Result<Option<Field>> {
        let start = self.position;
        if start >= self.bytes.len() {
            return Ok(None);
        }
        let (number, wire_type, after_tag) = read_tag(self.bytes, start)?;
        let (content, end) = if wire_type == LEN {
            let content = read_len(self.bytes, after_tag)?;
            (content.start, content.end)
        } else {
            (after_tag, skip_value(self.bytes, number, wire_type, after_tag)?)
        };
        self.position = end;
        Ok(Some(Field { number, wire_type, start, after_tag, content, end }))
    }

    /// The next string, bytes, message or packed list with this number.
    #[inline(always)]
    pub fn next_message(&mut self, number: u32) -> Result<Option<Field>> {
        while let Some(field) = self.next_field()? {
            if field.is_message(number) {
                return Ok(Some(field));
            }
        }
        Ok(None)
    }
}

/// Number of bytes of `value` as a varint.
pub const fn varint_len(value: usize) -> usize {
    (70 - (value as u64 | 1).leading_zeros() as usize) / 7
}

pub fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a length-delimited field whose number is below 16.
pub fn write_len_field(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    out.push(len_tag(number));
    write_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// Writes a message whose number is below 16 and whose length takes `width` bytes: if it takes
/// others, its content moves. Answers how many it takes.
pub fn write_message(
    out: &mut Vec<u8>,
    number: u32,
    width: usize,
    content: impl FnOnce(&mut Vec<u8>),
) -> usize {
    out.push(len_tag(number));
    let start = out.len();
    out.resize(start + width, 0);
    content(out);
    let len = out.len() - start - width;
    let needed = varint_len(len);
    if needed != width {
        out.resize(out.len() + needed.saturating_sub(width), 0);
        out.copy_within(start + width..start + width + len, start + needed);
        out.truncate(start + needed + len);
    }
    let mut rest = len;
    for byte in &mut out[start..start + needed] {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    out[start + needed - 1] &= 0x7f;
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: a message is canonical, whatever was guessed about its length.
    #[test]
    fn a_guess_of_a_length_changes_nothing() {
        for len in [0, 1, 127, 128, 16_383, 16_384, 2_097_152] {
            let content = vec![7; len];
            let mut expected = vec![1];
            write_len_field(&mut expected, 3, &content);
            for width in 1..6 {
                let mut out = vec![1];
                let needed =
                    write_message(&mut out, 3, width, |out| out.extend_from_slice(&content));
                assert!(out == expected, "{len} {width}");
                assert_eq!(needed, expected.len() - len - 2);
            }
        }
    }

    /// Every width of varint: a written value is read back, and the width is foretold.
    #[test]
    fn varints_round_trip() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                let mut out = Vec::new();
                write_varint(&mut out, value);
                assert_eq!(read_varint(&out, 0), Ok((value, out.len())));
                assert_eq!(varint_len(value as usize), out.len());
            }
        }
    }

    /// A varint of more than 64 bits, and one that never ends, are refused.
    #[test]
    fn overlong_varints_are_refused() {
        assert!(read_varint(&[0xff; 11], 0).is_err());
        assert!(
            read_varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], 0).is_err()
        );
        assert!(read_varint(&[0x80], 0).is_err());
        assert!(read_varint(&[], 0).is_err());
        assert_eq!(read_varint(&[0x80, 0], 0), Ok((0, 2)));
    }

    /// Groups: skipped whole with their content; refused when they cross, do not end, or nest
    /// without bound.
    #[test]
    fn groups_are_skipped_boundedly() {
        let nested = [0x0b, 0x13, 0x08, 0x01, 0x14, 0x0a, 0x02, 7, 7, 0x0c];
        let field = Fields::of(&nested).next_field().unwrap().unwrap();
        assert_eq!((field.number, field.end), (1, nested.len()));
        assert!(Fields::of(&[0x0b, 0x13, 0x0c, 0x14]).next_field().is_err());
        assert!(Fields::of(&[0x0b]).next_field().is_err());
        assert!(Fields::of(&[0x0c]).next_field().is_err());
        assert!(Fields::of(&[0x0b; 1000]).next_field().is_err());
    }
}
