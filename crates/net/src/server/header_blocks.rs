//! A look at what a peer sends, before h2 decodes it: what its header blocks cost.
//!
//! h2 copies the values of ordinary header fields, but those of pseudo-header fields stay slices of
//! what was read. In HPACK's dynamic table such a value keeps the whole buffer, up to a frame of
//! the longest kind, for as long as its connection lives, and the table has room for 128 of them.
//! They are followed here as far as it takes to count these buffers: representations, the lengths
//! of strings, and which entries of the table are pseudo-header fields (RFC 7541, 5 and 6).
//!
//! h2 decodes each frame of a block as it comes: a field of one byte then takes a hundred.
//!
//! Frames that bring neither headers nor a body (PING, SETTINGS, WINDOW_UPDATE, PRIORITY, unknown
//! ones) cost time, too. Their heads count as headers, and many in a row end the connection.

/// Limit of one request's headers: names, values and, in HTTP/2, 32 bytes a header.
pub(super) const HEADERS_MAX_BYTES: u32 = 16 << 10;
/// A place in a map of headers: an entry of 104 bytes and its share of the hashes.
pub(super) const FIELD_BYTES: usize = 110;

/// The client's first bytes, if it speaks HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;
const STREAM_MASK: u32 = u32::MAX >> 1;

/// The first index of the dynamic table. The fields before it are the static table's.
const DYNAMIC: u32 = 62;
/// `:authority`, `:path` and `:scheme` in the static table. The values of the other ones are
/// copied.
const KEPT_AS_SLICES: [u32; 5] = [1, 4, 5, 6, 7];
/// A header block may begin with so many changes of the table's size (RFC 7541, 4.2). h2 takes any
/// number, which count towards no limit.
const SIZE_UPDATES_MAX: u32 = 2;
/// Trailers have so many fields at most: of more, h2 would hold a hundred times what came until
/// their request is read. Clients of OTLP send none.
const TRAILER_FIELDS_MAX: usize = 64;
/// A buffer that is kept for a few of its bytes: what was read at once, or a frame.
const KEPT_BUFFER_BYTES: usize = 16 << 10;
/// h2 keeps no more fields of a block: each of them counts 32 bytes and its name.
const FIELDS_MAX: usize = (HEADERS_MAX_BYTES / 33) as usize + 1;
/// The places of a decoded field, in a map that grows by doubling.
const DECODED_FIELD_BYTES: usize = 2 * FIELD_BYTES;
/// A peer may send so many frames in a row that bring neither headers nor a body.
const EMPTY_FRAMES_MAX: u32 = 1_000;
/// Clients send at most so many of them at once: some for each request, and one now and then
/// without requests, for as long as the connection lives.
const EMPTY_AT_ONCE: u32 = 16;
/// Longer integers are no lengths of anything.
const INTEGER_MAX_BITS: u32 = 28;

/// A header block, or a run of empty frames, that no client sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

#[derive(Debug, Default)]
pub(super) struct HeaderBlocks {
    state: State,
    block: Block,
    /// Of the last 128 entries of the dynamic table, the newest in the lowest bit: whether it is a
    /// pseudo-header field that is kept as a slice.
    slices: u128,
    /// The same: whether it is the first such entry of its frame.
    pins: u128,
    header_bytes: usize,
    /// Frames since the last one that brought headers or a part of a body.
    empty_frames: u32,
    /// Those of the last read.
    empty_at_once: u32,
    /// The latest stream of the peer. Further headers of it and of earlier ones are trailers.
    last_stream: u32,
    /// The last block goes on in a further frame, or in the rest of its last one.
    pub(super) is_unfinished: bool,
}

#[derive(Debug)]
enum State {
    /// Bytes of the preface that came.
    Preface(usize),
    /// HTTP/1 has no header blocks.
    Http1,
    FrameHeader([u8; FRAME_HEADER_BYTES], usize),
    /// The rest of a payload without headers.
    Skip(usize),
    Headers(Payload),
}

const NEXT_FRAME: State = State::FrameHeader([0; FRAME_HEADER_BYTES], 0);

impl Default for State {
    fn default() -> Self {
        State::Preface(0)
    }
}

/// The rest of the payload of a frame with headers.
#[derive(Clone, Copy, Debug)]
struct Payload {
    left: usize,
    has_padding_length: bool,
    /// Before the headers.
    skipped: usize,
    /// At its end.
    padding: usize,
    ends_block: bool,
}

impl HeaderBlocks {
    /// Takes what was read at once.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        if std::mem::take(&mut self.empty_at_once) <= EMPTY_AT_ONCE {
            self.empty_frames = 0;
        }
        while let Some((&first, rest)) = bytes.split_first() {
            match &mut self.state {
                State::Http1 => return Ok(()),
                State::Preface(came) => {
                    let is_preface = first == PREFACE[*came];
                    *came += 1;
                    if !is_preface {
                        self.state = State::Http1;
                    } else if *came == PREFACE.len() {
                        self.state = NEXT_FRAME;
                    }
                    bytes = rest;
                }
                State::FrameHeader(header, came) => {
                    let next;
                    (next, bytes) = bytes.split_at(bytes.len().min(FRAME_HEADER_BYTES - *came));
                    header[*came..*came + next.len()].copy_from_slice(next);
                    *came += next.len();
                    if *came == FRAME_HEADER_BYTES {
                        let header = *header;
                        self.begin_payload(header)?;
                    }
                }
                State::Skip(left) => {
                    let skipped = bytes.len().min(*left);
                    *left -= skipped;
                    if *left == 0 {
                        self.state = NEXT_FRAME;
                    }
                    bytes = &bytes[skipped..];
                }
                State::Headers(payload) => {
                    let payload = *payload;
                    let came;
                    (came, bytes) = bytes.split_at(bytes.len().min(payload.left));
                    self.header_bytes += came.len();
                    self.block.bytes += came.len();
                    self.read_payload(payload, came)?;
                }
            }
        }
        Ok(())
    }

    /// Memory that h2 may keep for headers beside those of requests: the buffers that the peer's
    /// table keeps but for the first one, which is in the price of a connection, and a block until
    /// its end.
    pub(super) fn kept_bytes(&self) -> usize {
        let buffers = self.pins().saturating_sub(1) as usize;
        let block = if self.is_unfinished { self.block.decoded_bytes() } else { 0 };
        buffers * KEPT_BUFFER_BYTES + block
    }

    /// The number of buffers that the peer's table may keep.
    fn pins(&self) -> u32 {
        self.pins.count_ones()
    }

    /// Bytes of headers, and of the heads of empty frames, since this was last asked.
    pub(super) fn take_header_bytes(&mut self) -> usize {
        std::mem::take(&mut self.header_bytes)
    }

    fn begin_payload(&mut self, header: [u8; FRAME_HEADER_BYTES]) -> Result<(), Malformed> {
        let [high, middle, low, kind, flags, stream @ ..] = header;
        let left = u32::from_be_bytes([0, high, middle, low]) as usize;
        let is_first = kind == HEADERS;
        let has_headers = is_first || kind == CONTINUATION;
        let ends_block = has_headers && flags & END_HEADERS != 0;
        if is_first {
            let stream = u32::from_be_bytes(stream) & STREAM_MASK;
            let are_trailers = stream <= self.last_stream;
            self.last_stream = self.last_stream.max(stream);
            self.block = Block { are_trailers, ..Block::default() };
            self.is_unfinished = !ends_block;
        }
        if has_headers {
            self.block.frames += 1;
        }
        if has_headers || kind == DATA && left > 0 {
            self.empty_frames = 0;
        } else {
            self.header_bytes += FRAME_HEADER_BYTES;
            self.empty_frames += 1;
            self.empty_at_once += 1;
            if self.empty_frames > EMPTY_FRAMES_MAX {
                return Err(Malformed);
            }
        }
        self.block.has_pin = false;
        self.state = if left == 0 {
            self.is_unfinished &= !ends_block;
            NEXT_FRAME
        } else if has_headers {
            State::Headers(Payload {
                left,
                has_padding_length: is_first && flags & PADDED != 0,
                skipped: if is_first && flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 },
                padding: 0,
                ends_block,
            })
        } else {
            State::Skip(left)
        };
        Ok(())
    }

    fn read_payload(&mut self, mut payload: Payload, mut bytes: &[u8]) -> Result<(), Malformed> {
        while let Some((&byte, rest)) = bytes.split_first() {
            let headers_left = payload.left.saturating_sub(payload.padding);
            let passed = self.block.pass_text(bytes.len().min(headers_left));
            if passed > 0 {
                payload.left -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            bytes = rest;
            if payload.has_padding_length {
                (payload.padding, payload.has_padding_length) = (byte.into(), false);
            } else if payload.skipped > 0 {
                payload.skipped -= 1;
            } else if payload.left > payload.padding
                && let Some(is_slice) = self.block.next(byte, self.slices)?
            {
                let is_pin = is_slice && !self.block.has_pin;
                self.block.has_pin |= is_slice;
                self.slices = self.slices << 1 | u128::from(is_slice);
                self.pins = self.pins << 1 | u128::from(is_pin);
            }
            payload.left -= 1;
        }
        self.state = if payload.left > 0 {
            State::Headers(payload)
        } else {
            self.is_unfinished &= !payload.ends_block;
            NEXT_FRAME
        };
        Ok(())
    }
}

/// A header block, byte by byte.
#[derive(Debug, Default)]
struct Block {
    field: Field,
    size_updates: u32,
    are_trailers: bool,
    fields: usize,
    /// Its current frame has an entry that is kept as a slice.
    has_pin: bool,
    /// That came, and in how many frames.
    bytes: usize,
    frames: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Field {
    #[default]
    Start,
    /// An index or a size that goes on; of a literal, whether it enters the table.
    Index(Option<bool>, Integer),
    /// The length of a string comes next, or goes on.
    Length(Text, Option<Integer>),
    /// The first byte of a name comes next; the length of the name.
    Name(Text, u32),
    /// This many bytes of a string are left.
    Text(Text, u32),
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
    /// Memory that h2 may take for it: its frames' buffers, texts, and places for fields, each of
    /// which has a byte at least.
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

    fn note_field(&mut self) -> Result<(), Malformed> {
        self.fields += 1;
        let are_too_many = self.are_trailers && self.fields > TRAILER_FIELDS_MAX;
        if are_too_many { Err(Malformed) } else { Ok(()) }
    }

    /// At the end of a field that enters the table: whether it is kept as a slice. `slices` are the
    /// entries before it.
    fn next(&mut self, byte: u8, slices: u128) -> Result<Option<bool>, Malformed> {
        if matches!(self.field, Field::Start) && (0x80..0xff).contains(&byte) {
            // An index and no more: most fields of a busy connection.
            return self.note_field().map(|()| None);
        }
        let mut ended = None;
        self.field = match self.field {
            Field::Start => {
                let (is_inserted, mask) = match byte {
                    0x80.. => (None, 0x7f),
                    0x40.. => (Some(true), 0x3f),
                    0x20.. => (None, 0x1f),
                    _ => (Some(false), 0x0f),
                };
                let is_size_update = (0x20..0x40).contains(&byte);
                if is_size_update {
                    self.size_updates += 1;
                    if self.size_updates > SIZE_UPDATES_MAX {
                        return Err(Malformed);
                    }
                } else {
                    self.note_field()?;
                }
                after_index(is_inserted, Integer::begin(byte, mask), slices)
            }
            Field::Index(is_inserted, integer) => {
                after_index(is_inserted, integer.next(byte)?, slices)
            }
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

fn after_index(is_inserted: Option<bool>, index: Result<u32, Integer>, slices: u128) -> Field {
    match (is_inserted, index) {
        (_, Err(integer)) => Field::Index(is_inserted, integer),
        (None, Ok(_)) => Field::Start,
        (Some(is_inserted), Ok(index)) => {
            let is_slice = KEPT_AS_SLICES.contains(&index)
                || index >= DYNAMIC && slices.checked_shr(index - DYNAMIC).unwrap_or(0) & 1 == 1;
            let text = Text { is_name: index == 0, is_huffman: false, is_inserted, is_slice };
            Field::Length(text, None)
        }
    }
}

impl Text {
    /// The next state, with this many bytes of the string left.
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
mod tests;
