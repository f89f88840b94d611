//! A look at header blocks, before h2 decodes them: what they cost.
//!
//! h2 copies the values of ordinary header fields, but those of pseudo-header fields stay slices of
//! what was read. In HPACK's dynamic table such a value keeps the whole buffer, up to a frame of
//! the longest kind, for as long as its connection lives, and the table has room for 128 of them.
//! They are followed here as far as it takes to count these buffers: representations, the lengths
//! of strings, and which entries of the table are pseudo-header fields (RFC 7541, 5 and 6).
//!
//! h2 decodes each frame of a block as it comes: a field of one byte then takes a hundred.

use super::connection::{FIELD_BYTES, HEADERS_MAX_BYTES};

/// The first index of the dynamic table. The fields before it are the static table's.
const DYNAMIC: u32 = 62;
/// `:authority`, `:path` and `:scheme` in the static table. The values of the other ones are
/// copied.
const KEPT_AS_SLICES: [u32; 5] = [1, 4, 5, 6, 7];
/// A header block may begin with so many changes of the table's size (RFC 7541, 4.2). h2 takes any
/// number, which count towards no limit.
const SIZE_UPDATES_MAX: u32 = 2;
/// Trailers, which wait with their request, have so many fields and bytes at most. Clients of OTLP
/// send none.
const TRAILERS_MAX_FIELDS: usize = 8;
const TRAILERS_MAX_BYTES: usize = 1 << 10;
/// What trailers of that size hold: twice their text, and the map.
pub(super) const TRAILERS_BYTES: usize = 4 << 10;
/// A buffer that is kept for a few of its bytes: what was read at once, or a frame.
const KEPT_BUFFER_BYTES: usize = 16 << 10;
/// h2 keeps no more fields of a block: each of them counts 32 bytes and its name.
const FIELDS_MAX: usize = (HEADERS_MAX_BYTES / 33) as usize + 1;
/// The places of a decoded field, in a map that grows by doubling.
const DECODED_FIELD_BYTES: usize = 2 * FIELD_BYTES;
/// Longer integers are no lengths of anything.
const INTEGER_MAX_BITS: u32 = 28;

/// What no client sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

#[derive(Debug, Default)]
pub(super) struct HeaderBlocks {
    block: Block,
    /// Of the last 128 entries of the dynamic table, the newest in the lowest bit: whether it is a
    /// pseudo-header field that is kept as a slice.
    slices: u128,
    /// The same: whether it is the first such entry of its frame.
    pins: u128,
    /// The last block goes on in a further frame, or in the rest of its last one.
    pub is_unfinished: bool,
}

impl HeaderBlocks {
    pub(super) fn begin_block(&mut self, are_trailers: bool) {
        self.block = Block { are_trailers, ..Block::default() };
    }

    pub(super) fn begin_frame(&mut self) {
        self.block.frames += 1;
        self.block.has_pin = false;
    }

    /// Takes a part of the block, without padding.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        let block = &mut self.block;
        block.bytes += bytes.len();
        while let Some((&byte, rest)) = bytes.split_first() {
            let passed = block.pass_text(bytes.len());
            if passed > 0 {
                bytes = &bytes[passed..];
                continue;
            }
            bytes = rest;
            if let Some(is_slice) = block.next(byte, self.slices)? {
                let is_pin = is_slice && !block.has_pin;
                block.has_pin |= is_slice;
                self.slices = self.slices << 1 | u128::from(is_slice);
                self.pins = self.pins << 1 | u128::from(is_pin);
            }
        }
        let is_long = block.bytes > TRAILERS_MAX_BYTES || block.fields > TRAILERS_MAX_FIELDS;
        if block.are_trailers && is_long { Err(Malformed) } else { Ok(()) }
    }

    /// What h2 may keep of headers beside those of requests: the buffers that the peer's table
    /// keeps but for the first one, which is in the price of a connection, and a block until its
    /// end.
    pub(super) fn kept_bytes(&self) -> usize {
        let buffers = self.pins().saturating_sub(1) as usize;
        let block = if self.is_unfinished { self.block.decoded_bytes() } else { 0 };
        buffers * KEPT_BUFFER_BYTES + block
    }

    /// How many buffers the peer's table may keep.
    fn pins(&self) -> u32 {
        self.pins.count_ones()
    }
}

/// A header block, byte by byte.
#[derive(Debug, Default)]
struct Block {
    field: Field,
    size_updates: u32,
    are_trailers: bool,
    /// Its current frame has an entry that is kept as a slice.
    has_pin: bool,
    /// That came, and in how many frames.
    bytes: usize,
    frames: usize,
    fields: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Field {
    #[default]
    Start,
    /// An index or a size that goes on.
    Index(Kind, Integer),
    /// The length of a string comes next, or goes on.
    Length(Text, Option<Integer>),
    /// The first byte of a name comes next; the length of the name.
    Name(Text, u32),
    /// So many bytes of a string are left.
    Text(Text, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Indexed,
    Literal { is_inserted: bool },
    SizeUpdate,
}

#[derive(Clone, Copy, Debug)]
struct Text {
    is_name: bool,
    is_huffman: bool,
    is_inserted: bool,
    is_slice: bool,
}

#[derive(Clone, Copy, Debug)]
struct Integer {
    value: u32,
    bits: u32,
}

impl Integer {
    /// `Err`: it goes on.
    fn begin(byte: u8, mask: u8) -> Result<u32, Integer> {
        let value = u32::from(byte & mask);
        if byte & mask == mask { Err(Integer { value, bits: 0 }) } else { Ok(value) }
    }

    fn next(self, byte: u8) -> Result<Result<u32, Integer>, Malformed> {
        if self.bits > INTEGER_MAX_BITS - 7 {
            return Err(Malformed);
        }
        let value = self.value + (u32::from(byte & 0x7f) << self.bits);
        let integer = Integer { value, bits: self.bits + 7 };
        Ok(if byte & 0x80 == 0 { Ok(value) } else { Err(integer) })
    }
}

impl Block {
    /// What h2 may hold of it: its frames' buffers, texts, and places for fields, each of which has
    /// a byte at least.
    fn decoded_bytes(&self) -> usize {
        let fields = self.bytes.min(FIELDS_MAX);
        self.frames * KEPT_BUFFER_BYTES + self.bytes + fields * DECODED_FIELD_BYTES
    }

    /// Passes all of a string but its last byte, as far as there are so many bytes: it says
    /// nothing. How many bytes that are.
    fn pass_text(&mut self, available: usize) -> usize {
        let Field::Text(_, left) = &mut self.field else { return 0 };
        let passed = available.min(*left as usize - 1);
        *left -= passed as u32;
        passed
    }

    /// At the end of a field that enters the table: whether it is kept as a slice. `slices` are the
    /// entries before it.
    fn next(&mut self, byte: u8, slices: u128) -> Result<Option<bool>, Malformed> {
        let mut ended = None;
        self.field = match self.field {
            Field::Start => {
                let (kind, mask) = match byte {
                    0x80.. => (Kind::Indexed, 0x7f),
                    0x40.. => (Kind::Literal { is_inserted: true }, 0x3f),
                    0x20.. => (Kind::SizeUpdate, 0x1f),
                    _ => (Kind::Literal { is_inserted: false }, 0x0f),
                };
                if kind == Kind::SizeUpdate {
                    self.size_updates += 1;
                    if self.size_updates > SIZE_UPDATES_MAX {
                        return Err(Malformed);
                    }
                } else {
                    self.fields += 1;
                }
                after_index(kind, Integer::begin(byte, mask), slices)
            }
            Field::Index(kind, integer) => after_index(kind, integer.next(byte)?, slices),
            Field::Length(mut text, integer) => {
                let length = match integer {
                    None => {
                        text.is_huffman = byte & 0x80 != 0;
                        Integer::begin(byte, 0x7f)
                    }
                    Some(integer) => integer.next(byte)?,
                };
                match length {
                    Err(integer) => Field::Length(text, Some(integer)),
                    Ok(length) if text.is_name && length > 0 => Field::Name(text, length),
                    Ok(length) => text.rest(length, &mut ended),
                }
            }
            Field::Name(text, left) => {
                // Huffman's code of a colon has seven bits.
                let is_slice = if text.is_huffman { byte & 0xfe == 0xb8 } else { byte == b':' };
                Text { is_slice, ..text }.rest(left - 1, &mut ended)
            }
            Field::Text(text, left) => text.rest(left - 1, &mut ended),
        };
        Ok(ended)
    }
}

fn after_index(kind: Kind, index: Result<u32, Integer>, slices: u128) -> Field {
    match (kind, index) {
        (_, Err(integer)) => Field::Index(kind, integer),
        (Kind::Literal { is_inserted }, Ok(index)) => {
            let is_slice = KEPT_AS_SLICES.contains(&index)
                || index >= DYNAMIC && slices.checked_shr(index - DYNAMIC).unwrap_or(0) & 1 == 1;
            let text = Text { is_name: index == 0, is_huffman: false, is_inserted, is_slice };
            Field::Length(text, None)
        }
        (Kind::Indexed | Kind::SizeUpdate, Ok(_)) => Field::Start,
    }
}

impl Text {
    /// What follows, with so many bytes of the string left.
    fn rest(self, left: u32, ended: &mut Option<bool>) -> Field {
        if left > 0 {
            return Field::Text(self, left);
        }
        if self.is_name {
            return Field::Length(Text { is_name: false, ..self }, None);
        }
        *ended = self.is_inserted.then_some(self.is_slice);
        Field::Start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(in crate::server) fn text(text: &str) -> Vec<u8> {
        assert!(text.len() < 127);
        [&[text.len() as u8][..], text.as_bytes()].concat()
    }

    /// `:path` by its name in the static table, entering the table.
    fn path(value: &str) -> Vec<u8> {
        [vec![0x44], text(value)].concat()
    }

    /// Each block in a frame of its own.
    fn read(blocks: &[Vec<u8>]) -> (HeaderBlocks, Result<(), Malformed>) {
        let mut read = HeaderBlocks::default();
        let result = blocks.iter().try_for_each(|block| {
            read.begin_block(false);
            read.begin_frame();
            read.read(block)
        });
        (read, result)
    }

    #[test]
    fn each_frame_whose_path_enters_the_table_is_counted_once() {
        let newest = [vec![0x7e], text("/by/the/newest/name")].concat();
        let literal = [vec![0x40], text(":path"), text("/literal")].concat();
        // ":path" in Huffman's code.
        let huffman = [&[0x40, 0x84, 0xb9, 0x58, 0xd3, 0x3f][..], &text("/huffman")].concat();
        let ordinary = [vec![0x40], text("otlp:tenant"), text(":path")].concat();
        let not_indexed = [vec![0x04], text("/once")].concat();
        let first = [path("/a"), path("/b"), vec![0x82, 0x86]].concat();
        let blocks = [first, newest, literal, huffman, ordinary, not_indexed, vec![0xbe, 0xbf]];
        let (blocks, result) = read(&blocks);
        assert_eq!((blocks.pins(), result), (4, Ok(())));
        assert_eq!(blocks.kept_bytes(), 3 * KEPT_BUFFER_BYTES);
    }

    #[test]
    fn a_name_that_left_the_table_counts_no_more() {
        let mut blocks = vec![path("/a")];
        blocks.resize(129, [vec![0x40], text("x"), text("y")].concat());
        assert_eq!(read(&blocks).0.pins(), 0);
    }

    #[test]
    fn a_block_may_change_the_size_of_the_table_twice() {
        let twice = vec![0x20, 0x3f, 0xe1, 0x1f, 0x82];
        assert_eq!(read(&[twice.clone(), twice]).1, Ok(()));
        assert_eq!(read(&[vec![0x20; 3]]).1, Err(Malformed));
        // Also if its frames are short.
        let (mut blocks, _) = read(&[vec![0x20; 2]]);
        blocks.begin_frame();
        assert_eq!(blocks.read(&[0x20]), Err(Malformed));
    }

    /// Guarantee: what trailers hold is within what is charged for them.
    #[test]
    fn trailers_are_short() {
        let trailers = |block: &[u8]| {
            let mut blocks = HeaderBlocks::default();
            blocks.begin_block(true);
            blocks.read(block)
        };
        let field = [vec![0x40], text("checksum"), text(&"x".repeat(100))].concat();
        assert_eq!(trailers(&field.repeat(TRAILERS_MAX_FIELDS)), Ok(()));
        assert_eq!(trailers(&[0x82; TRAILERS_MAX_FIELDS + 1]), Err(Malformed));
        let long = [&[0x00, 1, b'x', 0x7f, 0x81, 0x09], &[b'x'; 1300][..]].concat();
        assert_eq!(trailers(&long), Err(Malformed));
        let places = TRAILERS_MAX_FIELDS * DECODED_FIELD_BYTES;
        assert!(places + 2 * TRAILERS_MAX_BYTES <= TRAILERS_BYTES);
    }
}
