//! MessagePack, read in place and written.
//!
//! A [`Reader`] gives one [`Item`] after the other: a value, or the head of an array or a map whose
//! parts come next. Nothing is allocated, and the caller bounds its own recursion. A [`Scanner`]
//! finds the end of a value in bytes that are still arriving.

/// Why bytes are no MessagePack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it ends within a value")]
    Cut,
    #[error("it has the byte 0xc1, which MessagePack does not use")]
    Unused,
}

/// A value without parts, or the number of parts that come next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    /// Above the largest `i64`.
    Large(u64),
    Float(f64),
    /// Should be UTF-8.
    Str(&'a [u8]),
    Bin(&'a [u8]),
    /// The number of elements.
    Array(usize),
    /// The number of pairs.
    Map(usize),
    Ext(i8, &'a [u8]),
}

/// The first byte of a value and what follows from it: a payload, or parts.
struct Head {
    /// Of the type byte, the length and, of an extension, its type.
    len_bytes: usize,
    payload_bytes: usize,
    /// Values that come next: a pair counts as two.
    parts: u64,
}

/// The head of the value at the beginning of `bytes`. `None`: it is cut.
fn head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    let plain = |payload_bytes| Head { len_bytes: 1, payload_bytes, parts: 0 };
    // The widths of the length, of an extension's type, and the parts that an element stands for.
    let (width, type_width, factor) = match first {
        0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => return Ok(Some(plain(0))),
        0x80..=0x8f => return Ok(Some(Head { parts: 2 * u64::from(first & 0x0f), ..plain(0) })),
        0x90..=0x9f => return Ok(Some(Head { parts: u64::from(first & 0x0f), ..plain(0) })),
        0xa0..=0xbf => return Ok(Some(plain(usize::from(first & 0x1f)))),
        0xc1 => return Err(Malformed::Unused),
        0xcc | 0xd0 => return Ok(Some(plain(1))),
        0xcd | 0xd1 => return Ok(Some(plain(2))),
        0xca | 0xce | 0xd2 => return Ok(Some(plain(4))),
        0xcb | 0xcf | 0xd3 => return Ok(Some(plain(8))),
        0xd4..=0xd8 => {
            let head = Head { len_bytes: 2, payload_bytes: 1 << (first - 0xd4), parts: 0 };
            return Ok((bytes.len() >= 2).then_some(head));
        }
        0xc4..=0xc6 => (1 << (first - 0xc4), 0, 0),
        0xc7..=0xc9 => (1 << (first - 0xc7), 1, 0),
        0xd9..=0xdb => (1 << (first - 0xd9), 0, 0),
        0xdc | 0xdd => (2 << (first - 0xdc), 0, 1),
        0xde | 0xdf => (2 << (first - 0xde), 0, 2),
    };
    let len_bytes = 1 + width + type_width;
    if bytes.len() < len_bytes {
        return Ok(None);
    }
    let number = bytes[1..=width].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let payload_bytes = if factor == 0 { number as usize } else { 0 };
    Ok(Some(Head { len_bytes, payload_bytes, parts: number * factor }))
}

/// Reads values one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Bytes that were read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next item. The parts of an array or a map are items of their own.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within it, or are no MessagePack.
    pub fn item(&mut self) -> Result<Item<'a>, Malformed> {
        let rest = &self.bytes[self.at..];
        let head = head(rest)?.ok_or(Malformed::Cut)?;
        let end = head.len_bytes.checked_add(head.payload_bytes).ok_or(Malformed::Cut)?;
        let payload = rest.get(head.len_bytes..end).ok_or(Malformed::Cut)?;
        self.at += end;
        Ok(match rest[0] {
            byte @ 0x00..=0x7f => Item::Int(i64::from(byte)),
            byte @ 0xe0..=0xff => Item::Int(i64::from(byte as i8)),
            0xc2 | 0xc3 => Item::Bool(rest[0] == 0xc3),
            0x80..=0x8f | 0xde | 0xdf => Item::Map((head.parts / 2) as usize),
            0x90..=0x9f | 0xdc | 0xdd => Item::Array(head.parts as usize),
            0xa0..=0xbf | 0xd9..=0xdb => Item::Str(payload),
            0xc4..=0xc6 => Item::Bin(payload),
            0xc7..=0xc9 | 0xd4..=0xd8 => Item::Ext(rest[head.len_bytes - 1] as i8, payload),
            0xca => Item::Float(f64::from(f32::from_bits(unsigned(payload) as u32))),
            0xcb => Item::Float(f64::from_bits(unsigned(payload))),
            0xcc..=0xcf => {
                let number = unsigned(payload);
                i64::try_from(number).map_or(Item::Large(number), Item::Int)
            }
            0xd0..=0xd3 => {
                let unused = 64 - 8 * payload.len() as u32;
                Item::Int((unsigned(payload) << unused) as i64 >> unused)
            }
            _ => Item::Nil,
        })
    }

    /// The length in bytes of the next value with all its parts, and the number of values in it.
    ///
    /// # Errors
    /// As [`Reader::item`].
    pub fn size(&self) -> Result<(usize, usize), Malformed> {
        let mut scanner = Scanner::default();
        let len = scanner.scan(&self.bytes[self.at..])?.ok_or(Malformed::Cut)?;
        Ok((len, scanner.values))
    }

    /// Passes over the next value with all its parts.
    ///
    /// # Errors
    /// As [`Reader::item`].
    pub fn skip(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.at;
        self.at += self.size()?.0;
        Ok(&self.bytes[start..self.at])
    }
}

/// A big-endian number of at most eight bytes.
fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Finds the end of one value in bytes that arrive piece by piece, each byte looked at once.
#[derive(Clone, Copy, Debug)]
pub struct Scanner {
    /// The start of the next head. It may lie behind the bytes that are there.
    at: usize,
    /// Values that are still to come.
    left: u64,
    /// Values whose heads are there.
    values: usize,
}

impl Default for Scanner {
    fn default() -> Self {
        Scanner { at: 0, left: 1, values: 0 }
    }
}

impl Scanner {
    /// Goes on with all bytes of the value that are there, from its first. `Some`: its length.
    ///
    /// # Errors
    /// [`Malformed`] if it is none.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while self.left > 0 {
            let Some(rest) = bytes.get(self.at..) else { return Ok(None) };
            let Some(head) = head(rest)? else { return Ok(None) };
            self.at = self.at.saturating_add(head.len_bytes).saturating_add(head.payload_bytes);
            self.left = self.left.saturating_add(head.parts) - 1;
            self.values += 1;
        }
        Ok((self.at <= bytes.len()).then_some(self.at))
    }

    /// The value has at least this many bytes, as far as it is known: each value to come has one.
    pub fn least_bytes(&self) -> usize {
        self.at.saturating_add(usize::try_from(self.left).unwrap_or(usize::MAX))
    }
}

/// Writes values, each in its shortest form.
pub trait Write {
    fn write_nil(&mut self);
    fn write_bool(&mut self, value: bool);
    fn write_int(&mut self, value: i64);
    fn write_float(&mut self, value: f64);
    fn write_str(&mut self, text: &str);
    fn write_bin(&mut self, bytes: &[u8]);
    /// The head of a binary whose bytes the caller appends.
    fn write_bin_head(&mut self, len: usize);
    /// The head of an array, whose elements come next.
    fn write_array(&mut self, len: usize);
    /// The head of a map, whose pairs come next.
    fn write_map(&mut self, len: usize);
    /// An extension of eight bytes.
    fn write_ext8(&mut self, kind: i8, payload: [u8; 8]);
}

impl Write for Vec<u8> {
    fn write_nil(&mut self) {
        self.push(0xc0);
    }

    fn write_bool(&mut self, value: bool) {
        self.push(0xc2 + u8::from(value));
    }

    fn write_int(&mut self, value: i64) {
        match value {
            -32..=127 => self.push(value as u8),
            0x80..=0xff => self.extend_from_slice(&[0xcc, value as u8]),
            0x100..=0xffff => with_number(self, 0xcd, &(value as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => with_number(self, 0xce, &(value as u32).to_be_bytes()),
            0x1_0000_0000.. => with_number(self, 0xcf, &(value as u64).to_be_bytes()),
            -0x80..=-0x21 => self.extend_from_slice(&[0xd0, value as u8]),
            -0x8000..=-0x81 => with_number(self, 0xd1, &(value as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => with_number(self, 0xd2, &(value as i32).to_be_bytes()),
            _ => with_number(self, 0xd3, &value.to_be_bytes()),
        }
    }

    fn write_float(&mut self, value: f64) {
        with_number(self, 0xcb, &value.to_be_bytes());
    }

    fn write_str(&mut self, text: &str) {
        match text.len() {
            len @ 0..=31 => self.push(0xa0 | len as u8),
            len @ 0..=0xff => self.extend_from_slice(&[0xd9, len as u8]),
            len => wide(self, len, 0xda),
        }
        self.extend_from_slice(text.as_bytes());
    }

    fn write_bin(&mut self, bytes: &[u8]) {
        self.write_bin_head(bytes.len());
        self.extend_from_slice(bytes);
    }

    fn write_bin_head(&mut self, len: usize) {
        match len {
            0..=0xff => self.extend_from_slice(&[0xc4, len as u8]),
            _ => wide(self, len, 0xc5),
        }
    }

    fn write_array(&mut self, len: usize) {
        match len {
            0..=15 => self.push(0x90 | len as u8),
            _ => wide(self, len, 0xdc),
        }
    }

    fn write_map(&mut self, len: usize) {
        match len {
            0..=15 => self.push(0x80 | len as u8),
            _ => wide(self, len, 0xde),
        }
    }

    fn write_ext8(&mut self, kind: i8, payload: [u8; 8]) {
        self.extend_from_slice(&[0xd7, kind as u8]);
        self.extend_from_slice(&payload);
    }
}

fn with_number(out: &mut Vec<u8>, first: u8, number: &[u8]) {
    out.push(first);
    out.extend_from_slice(number);
}

/// A length of 16 bits behind `first`, or one of 32 bits behind the next type byte.
fn wide(out: &mut Vec<u8>, len: usize, first: u8) {
    match u16::try_from(len) {
        Ok(len) => with_number(out, first, &len.to_be_bytes()),
        Err(_) => {
            with_number(out, first + 1, &u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The item, which has to be all of the bytes.
    fn item(bytes: &[u8]) -> Item<'_> {
        let mut reader = Reader::new(bytes);
        let item = reader.item().expect("is an item");
        assert!(reader.is_at_end() || matches!(item, Item::Array(_) | Item::Map(_)), "{item:?}");
        item
    }

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let mut edges = vec![0, 127, 128, -1, -32, -33, i64::MAX, i64::MIN];
        for shift in [7, 8, 15, 16, 31, 32, 62] {
            let power = 1_i64 << shift;
            edges.extend([power - 1, power, power + 1, -power - 1, -power, 1 - power]);
        }
        for value in edges {
            let mut out = Vec::new();
            out.write_int(value);
            assert_eq!(item(&out), Item::Int(value), "{out:x?}");
        }
        assert_eq!(item(&[0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0]), Item::Large(1 << 63));
        assert_eq!(item(&[0xca, 0x3f, 0x80, 0, 0]), Item::Float(1.0));
        let mut out = Vec::new();
        out.write_float(-2.5);
        assert_eq!(item(&out), Item::Float(-2.5));
    }

    #[test]
    fn lengths_are_read_as_they_were_written() {
        for len in [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536, 70_000] {
            let text = "x".repeat(len);
            let mut outs: [Vec<u8>; 4] = Default::default();
            outs[0].write_str(&text);
            outs[1].write_bin(text.as_bytes());
            outs[2].write_array(len);
            outs[3].write_map(len);
            assert_eq!(item(&outs[0]), Item::Str(text.as_bytes()));
            assert_eq!(item(&outs[1]), Item::Bin(text.as_bytes()));
            assert_eq!(item(&outs[2]), Item::Array(len));
            assert_eq!(item(&outs[3]), Item::Map(len));
        }
    }

    #[test]
    fn extensions_of_all_widths_are_read() {
        for (bytes, payload) in [
            (&[0xd4, 5, 1][..], &[1][..]),
            (&[0xd5, 5, 1, 2], &[1, 2]),
            (&[0xc7, 3, 5, 1, 2, 3], &[1, 2, 3]),
            (&[0xc8, 0, 1, 5, 9], &[9]),
            (&[0xc9, 0, 0, 0, 0, 5], &[]),
        ] {
            assert_eq!(item(bytes), Item::Ext(5, payload));
        }
        let mut out = Vec::new();
        out.write_ext8(-1, [7; 8]);
        assert_eq!(item(&out), Item::Ext(-1, &[7; 8]));
    }

    /// A value with parts of all kinds.
    fn nested() -> Vec<u8> {
        let mut out = Vec::new();
        out.write_array(4);
        out.write_map(2);
        out.write_str("a");
        out.write_array(0);
        out.write_bin(&[0xc1; 300]);
        out.write_nil();
        out.write_float(1.0);
        out.write_ext8(0, [0xc1; 8]);
        out.write_bool(true);
        out
    }

    /// Guarantee: the end of a value is found whatever the pieces are in which it arrives, and
    /// never too early.
    #[test]
    fn the_end_is_found_in_pieces() {
        let whole = nested();
        let mut behind = whole.clone();
        behind.push(0xc0);
        assert_eq!(Reader::new(&behind).skip(), Ok(&whole[..]));
        assert_eq!(Reader::new(&behind).size(), Ok((whole.len(), 9)));
        for step in 1..9 {
            let mut scanner = Scanner::default();
            for end in (0..whole.len()).step_by(step) {
                assert_eq!(scanner.scan(&whole[..end]), Ok(None), "{end}");
                assert!(scanner.least_bytes() <= whole.len());
            }
            assert_eq!(scanner.scan(&behind), Ok(Some(whole.len())));
        }
        for end in 0..whole.len() {
            assert_eq!(Reader::new(&whole[..end]).skip(), Err(Malformed::Cut));
        }
    }

    /// Scenario: lengths that no memory has, and arrays in arrays. Guarantee: they are found cut,
    /// and nothing is allocated or recursed into for them.
    #[test]
    fn hostile_lengths_cost_nothing() {
        let huge: [&[u8]; 5] = [
            &[0xdd, 0xff, 0xff, 0xff, 0xff],
            &[0xdf, 0xff, 0xff, 0xff, 0xff],
            &[0xc6, 0xff, 0xff, 0xff, 0xff],
            &[0xdb, 0xff, 0xff, 0xff, 0xff],
            &[0xc9, 0xff, 0xff, 0xff, 0xff, 0],
        ];
        for bytes in huge {
            let mut scanner = Scanner::default();
            assert_eq!(scanner.scan(bytes), Ok(None));
            assert!(scanner.least_bytes() >= u32::MAX as usize);
        }
        assert_eq!(Reader::new(&[0x91; 1 << 20]).skip(), Err(Malformed::Cut));
        assert_eq!(Reader::new(&[0xc1]).item(), Err(Malformed::Unused));
        for first in 0..=255 {
            let _ = Reader::new(&[first]).item();
            let _ = Reader::new(&[first, 0xff, 0xff, 0xff, 0xff, 0xff]).skip();
        }
    }
}
