//! A segment file, from front to back: the header block, frames, the footer. A frame is a header,
//! the readers that it is for, metadata and payload; that of a dead letter has the refusal before
//! its original metadata.
//!
//! The header block has two copies, so that no single damaged sector costs the file. The footer has
//! the totals of a sealed segment's frames, without a scan.

use bytes::{Buf as _, BufMut as _};

use super::{BLOCK_LEN_BYTES, BlockError, FRAME_ALIGNMENT_BYTES, VERSION, Version, cut_text};
use crate::types::{Charge, RecordFacts};

/// The header takes the whole first block, which is never written again.
pub const SEGMENT_HEADER_LEN_BYTES: u64 = BLOCK_LEN_BYTES;

const HEADER_MAGIC: &[u8; 8] = b"SLUICSEG";
const HEADER_COPY_LEN_BYTES: usize = 128;
const HEADER_COPY_POSITIONS: [usize; 2] = [0, 2048];
const HEADER_NAME_POSITION: usize = 64;
const HEADER_NAME_LIMIT_BYTES: usize = 32;
const HEADER_CHECKSUM_POSITION: usize = 124;

/// Kind of a file's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Log = 1,
    DeadLetters = 2,
}

/// Content of the first block of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub version: Version,
    pub kind: FileKind,
    /// Random, the same in all segments of one log.
    pub log_id: u128,
    /// Random and unknown to senders: no payload can pass for a frame of this file.
    pub epoch: u64,
    /// No frame in the file has a lower offset.
    pub first_offset: u64,
    /// Wall clock at creation, for people.
    pub created_unix_ns: u64,
    /// Name of the log (its signal), at most 32 bytes.
    pub name: String,
}

impl SegmentHeader {
    /// The whole first block. A name that is too long is cut: it is for people.
    pub fn encode(&self) -> Vec<u8> {
        let mut copy = [0; HEADER_COPY_LEN_BYTES];
        copy[..8].copy_from_slice(HEADER_MAGIC);
        (&mut copy[8..]).put_u16_le(self.version.major);
        (&mut copy[10..]).put_u16_le(self.version.minor);
        (&mut copy[12..]).put_u32_le(HEADER_COPY_LEN_BYTES as u32);
        (&mut copy[16..]).put_u128_le(self.log_id);
        (&mut copy[32..]).put_u64_le(self.epoch);
        (&mut copy[40..]).put_u64_le(self.first_offset);
        (&mut copy[48..]).put_u64_le(self.created_unix_ns);
        copy[56] = self.kind as u8;
        let name = cut_text(&self.name, HEADER_NAME_LIMIT_BYTES);
        copy[57] = name.len() as u8;
        copy[HEADER_NAME_POSITION..HEADER_NAME_POSITION + name.len()].copy_from_slice(name);
        let checksum = crc32c::crc32c(&copy[..HEADER_CHECKSUM_POSITION]);
        (&mut copy[HEADER_CHECKSUM_POSITION..]).put_u32_le(checksum);
        let mut block = vec![0; SEGMENT_HEADER_LEN_BYTES as usize];
        for position in HEADER_COPY_POSITIONS {
            block[position..position + HEADER_COPY_LEN_BYTES].copy_from_slice(&copy);
        }
        block
    }

    /// Decodes the first copy that is whole. `block` may be shorter than a block if the file is.
    pub fn decode(block: &[u8]) -> Result<Self, BlockError> {
        if block.iter().all(|&byte| byte == 0) {
            return Err(BlockError::Empty);
        }
        let copies = HEADER_COPY_POSITIONS
            .iter()
            .filter_map(|&at| block.get(at..at + HEADER_COPY_LEN_BYTES));
        let mut decoded = copies.map(decode_copy);
        let whole = decoded.find(|copy| *copy != Err(BlockError::Damaged));
        whole.unwrap_or(Err(BlockError::Damaged))
    }
}

/// Magic, version and the position of the checksum are the same in every version.
fn decode_copy(copy: &[u8]) -> Result<SegmentHeader, BlockError> {
    if &copy[..8] != HEADER_MAGIC
        || (&copy[HEADER_CHECKSUM_POSITION..]).get_u32_le()
            != crc32c::crc32c(&copy[..HEADER_CHECKSUM_POSITION])
    {
        return Err(BlockError::Damaged);
    }
    let version = Version { major: (&copy[8..]).get_u16_le(), minor: (&copy[10..]).get_u16_le() };
    if version.major > VERSION.major {
        return Err(BlockError::NewerVersion { found: version });
    }
    let name_len = usize::from(copy[57]).min(HEADER_NAME_LIMIT_BYTES);
    Ok(SegmentHeader {
        version,
        kind: match copy[56] {
            1 => FileKind::Log,
            2 => FileKind::DeadLetters,
            _ => return Err(BlockError::Damaged),
        },
        log_id: (&copy[16..]).get_u128_le(),
        epoch: (&copy[32..]).get_u64_le(),
        first_offset: (&copy[40..]).get_u64_le(),
        created_unix_ns: (&copy[48..]).get_u64_le(),
        name: String::from_utf8_lossy(&copy[HEADER_NAME_POSITION..HEADER_NAME_POSITION + name_len])
            .into_owned(),
    })
}

/// The fixed part of a frame's header; the reader ids follow it.
pub const FRAME_PREFIX_LEN_BYTES: usize = 64;
/// A frame is for at most this many readers.
pub const READERS_LIMIT: usize = 4096;
/// Longest metadata of a frame.
pub const METADATA_LIMIT_BYTES: usize = 16 << 20;
/// Longest metadata and payload together.
pub const BODY_LIMIT_BYTES: usize = 1 << 30;

/// The last character is the major version of the layout.
const FRAME_MARKER: &[u8; 8] = b"SLUFRAM1";
const FRAME_CHECKSUM_POSITION: usize = 60;
/// The bit of the flags byte that the log itself uses: [`FrameRef::is_taken`].
const TAKEN_FLAG: u8 = 0x80;

/// The fields of a frame's header, without the reader ids: few callers need a copy of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub offset: u64,
    pub facts: RecordFacts,
    /// The frame's charge to the budget of each of its readers.
    pub charge: Charge,
    /// See [`FrameRef::is_taken`].
    pub is_taken: bool,
    pub metadata_len_bytes: u32,
    pub payload_len_bytes: u32,
    pub readers: u16,
    pub body_checksum: u32,
}

/// A frame to be written.
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'a> {
    pub offset: u64,
    pub facts: RecordFacts,
    pub charge: Charge,
    /// A reader took the frame before it was written. That reader is not in `readers`.
    pub is_taken: bool,
    /// Persistent ids of the cursors that the frame is for, at most [`READERS_LIMIT`].
    pub readers: &'a [u32],
    /// At most [`METADATA_LIMIT_BYTES`].
    pub metadata: &'a [u8],
    /// At most [`BODY_LIMIT_BYTES`] together with the metadata.
    pub payload: &'a [u8],
}

/// Result of parsing a position where a frame may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderParse {
    Frame(FrameHeader),
    /// The parse needs more bytes: this many from the start of the frame.
    Needs(usize),
    /// No frame of this file begins here, or a damaged one.
    NoFrame,
}

impl FrameHeader {
    /// Fixed part and reader ids.
    pub fn header_len_bytes(&self) -> u64 {
        FRAME_PREFIX_LEN_BYTES as u64 + 4 * u64::from(self.readers)
    }

    /// Metadata and payload.
    pub fn body_len_bytes(&self) -> u64 {
        u64::from(self.metadata_len_bytes) + u64::from(self.payload_len_bytes)
    }

    /// Header, body and the zeros up to the next frame.
    pub fn frame_len_bytes(&self) -> u64 {
        (self.header_len_bytes() + self.body_len_bytes()).next_multiple_of(FRAME_ALIGNMENT_BYTES)
    }
}

impl FrameRef<'_> {
    /// Bytes that the frame takes in a segment.
    pub fn frame_len_bytes(&self) -> u64 {
        (self.unpadded_len() as u64).next_multiple_of(FRAME_ALIGNMENT_BYTES)
    }

    /// The same without the zeros up to the next frame.
    pub(crate) fn unpadded_len(&self) -> usize {
        FRAME_PREFIX_LEN_BYTES + 4 * self.readers.len() + self.metadata.len() + self.payload.len()
    }

    /// True if the frame can be written at all.
    pub fn is_within_limits(&self) -> bool {
        self.readers.len() <= READERS_LIMIT
            && self.metadata.len() <= METADATA_LIMIT_BYTES
            && self.metadata.len() + self.payload.len() <= BODY_LIMIT_BYTES
    }
}

/// The checksum of a frame's metadata followed by its payload.
pub fn body_checksum(metadata: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(metadata), payload)
}

/// Appends the header of a frame at `position` of the file with this epoch.
pub fn encode_frame_header(frame: &FrameRef<'_>, epoch: u64, position: u64, output: &mut Vec<u8>) {
    debug_assert!(frame.is_within_limits(), "the segment writer refuses larger frames");
    let mut prefix = [0; FRAME_PREFIX_LEN_BYTES];
    prefix[..8].copy_from_slice(FRAME_MARKER);
    (&mut prefix[8..]).put_u64_le(epoch);
    (&mut prefix[16..]).put_u64_le(frame.offset);
    (&mut prefix[24..]).put_u64_le(frame.facts.received_unix_ns);
    (&mut prefix[32..]).put_u32_le(frame.payload.len() as u32);
    (&mut prefix[36..]).put_u32_le(frame.metadata.len() as u32);
    (&mut prefix[40..]).put_u32_le(u32::try_from(frame.charge.items).unwrap_or(u32::MAX));
    prefix[44] = frame.facts.encoding;
    prefix[45] = frame.facts.flags | if frame.is_taken { TAKEN_FLAG } else { 0 };
    (&mut prefix[46..]).put_u16_le(frame.readers.len() as u16);
    (&mut prefix[48..]).put_u32_le(frame.facts.uncompressed_len_bytes);
    (&mut prefix[52..]).put_u32_le(body_checksum(frame.metadata, frame.payload));
    (&mut prefix[56..]).put_u32_le(u32::try_from(frame.charge.bytes).unwrap_or(u32::MAX));
    let start = output.len();
    output.put_slice(&prefix);
    frame.readers.iter().for_each(|reader| output.put_u32_le(*reader));
    let checksum = header_checksum(&output[start..], position);
    (&mut output[start + FRAME_CHECKSUM_POSITION..]).put_u32_le(checksum);
}

/// Parses the header of a frame at `position`, where `bytes` starts. A header counts only where it
/// was written: its checksum covers its position, so that neither a misplaced write nor a copy of a
/// segment within a payload passes.
pub fn parse_frame_header(bytes: &[u8], epoch: u64, position: u64) -> HeaderParse {
    if bytes.len() < FRAME_PREFIX_LEN_BYTES {
        return HeaderParse::Needs(FRAME_PREFIX_LEN_BYTES);
    }
    if &bytes[..8] != FRAME_MARKER || (&bytes[8..]).get_u64_le() != epoch {
        return HeaderParse::NoFrame;
    }
    let readers = (&bytes[46..]).get_u16_le();
    let header_len = FRAME_PREFIX_LEN_BYTES + 4 * usize::from(readers);
    if usize::from(readers) > READERS_LIMIT {
        return HeaderParse::NoFrame;
    }
    if bytes.len() < header_len {
        return HeaderParse::Needs(header_len);
    }
    if header_checksum(&bytes[..header_len], position)
        != (&bytes[FRAME_CHECKSUM_POSITION..]).get_u32_le()
    {
        return HeaderParse::NoFrame;
    }
    let header = FrameHeader {
        offset: (&bytes[16..]).get_u64_le(),
        facts: RecordFacts {
            received_unix_ns: (&bytes[24..]).get_u64_le(),
            encoding: bytes[44],
            flags: bytes[45] & !TAKEN_FLAG,
            uncompressed_len_bytes: (&bytes[48..]).get_u32_le(),
        },
        charge: Charge {
            bytes: u64::from((&bytes[56..]).get_u32_le()),
            items: u64::from((&bytes[40..]).get_u32_le()),
        },
        is_taken: bytes[45] & TAKEN_FLAG != 0,
        payload_len_bytes: (&bytes[32..]).get_u32_le(),
        metadata_len_bytes: (&bytes[36..]).get_u32_le(),
        readers,
        body_checksum: (&bytes[52..]).get_u32_le(),
    };
    let within_limits = header.metadata_len_bytes as usize <= METADATA_LIMIT_BYTES
        && header.body_len_bytes() <= BODY_LIMIT_BYTES as u64;
    if within_limits { HeaderParse::Frame(header) } else { HeaderParse::NoFrame }
}

/// The reader ids behind the fixed part of `header`, which was parsed from the same bytes.
pub(crate) fn reader_ids(bytes: &[u8], header: &FrameHeader) -> impl Iterator<Item = u32> {
    let end = header.header_len_bytes() as usize;
    bytes[FRAME_PREFIX_LEN_BYTES..end].chunks_exact(4).map(|id| (&*id).get_u32_le())
}

/// The epoch that a header claims, not verified: see [`parse_frame_header`].
pub(crate) fn frame_epoch(bytes: &[u8]) -> Option<u64> {
    (bytes.len() >= FRAME_PREFIX_LEN_BYTES && &bytes[..8] == FRAME_MARKER)
        .then(|| (&bytes[8..]).get_u64_le())
}

/// First multiple of the alignment in `bytes` at which marker and epoch of a frame stand.
pub(crate) fn find_marker(bytes: &[u8], epoch: u64) -> Option<usize> {
    let epoch = epoch.to_le_bytes();
    let step = FRAME_ALIGNMENT_BYTES as usize;
    let last = bytes.len().checked_sub(16)?;
    (0..=last)
        .step_by(step)
        .find(|&at| &bytes[at..at + 8] == FRAME_MARKER && bytes[at + 8..at + 16] == epoch)
}

fn header_checksum(header: &[u8], position: u64) -> u32 {
    let fixed = crc32c::crc32c(&header[..FRAME_CHECKSUM_POSITION]);
    let readers = crc32c::crc32c_append(fixed, &header[FRAME_PREFIX_LEN_BYTES..]);
    crc32c::crc32c_append(readers, &position.to_le_bytes())
}

/// Length of the footer, which ends a sealed file.
pub const FOOTER_LEN_BYTES: u64 = 64;

const FOOTER_MARKER: &[u8; 8] = b"SLUSEAL1";
const FOOTER_CHECKSUM_POSITION: usize = 60;

/// Totals of a segment's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    pub frames: u64,
    /// Lowest offset; meaningless without frames.
    pub first_offset: u64,
    /// Highest offset; meaningless without frames.
    pub last_offset: u64,
    pub items: u64,
    /// Sum of the frames' charges.
    pub charged_bytes: u64,
}

impl Footer {
    /// Adds a frame to the totals.
    pub fn count(&mut self, offset: u64, charge: Charge) {
        let is_first = self.frames == 0;
        self.first_offset = if is_first { offset } else { self.first_offset.min(offset) };
        self.last_offset = self.last_offset.max(offset);
        self.frames += 1;
        self.items += charge.items;
        self.charged_bytes += charge.bytes;
    }

    /// `position` is the footer's position in its file: a copy elsewhere does not count.
    pub fn encode(&self, epoch: u64, position: u64) -> [u8; FOOTER_LEN_BYTES as usize] {
        let mut block = [0; FOOTER_LEN_BYTES as usize];
        block[..8].copy_from_slice(FOOTER_MARKER);
        (&mut block[8..]).put_u64_le(epoch);
        (&mut block[16..]).put_u64_le(self.frames);
        (&mut block[24..]).put_u64_le(self.first_offset);
        (&mut block[32..]).put_u64_le(self.last_offset);
        (&mut block[40..]).put_u64_le(self.items);
        (&mut block[48..]).put_u64_le(self.charged_bytes);
        let checksum = footer_checksum(&block, position);
        (&mut block[FOOTER_CHECKSUM_POSITION..]).put_u32_le(checksum);
        block
    }

    /// None if no whole footer of the file is at this position: the file is scanned then.
    pub fn decode(block: &[u8], epoch: u64, position: u64) -> Option<Self> {
        let block = block.get(..FOOTER_LEN_BYTES as usize)?;
        let whole = &block[..8] == FOOTER_MARKER
            && (&block[8..]).get_u64_le() == epoch
            && (&block[FOOTER_CHECKSUM_POSITION..]).get_u32_le()
                == footer_checksum(block, position);
        whole.then(|| Footer {
            frames: (&block[16..]).get_u64_le(),
            first_offset: (&block[24..]).get_u64_le(),
            last_offset: (&block[32..]).get_u64_le(),
            items: (&block[40..]).get_u64_le(),
            charged_bytes: (&block[48..]).get_u64_le(),
        })
    }
}

fn footer_checksum(block: &[u8], position: u64) -> u32 {
    crc32c::crc32c_append(
        crc32c::crc32c(&block[..FOOTER_CHECKSUM_POSITION]),
        &position.to_le_bytes(),
    )
}

/// Longest reason; the rest is cut.
pub const REASON_LIMIT_BYTES: usize = 4096;

const REFUSAL_FIXED_LEN_BYTES: usize = 16;

/// Why a frame was refused for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Wall clock.
    pub refused_unix_ns: u64,
    /// The backend's status, in codes of the log's user.
    pub code: u32,
    /// For people. At most [`REASON_LIMIT_BYTES`].
    pub reason: String,
}

impl Refusal {
    pub fn encode(&self, output: &mut Vec<u8>) {
        let reason = cut_text(&self.reason, REASON_LIMIT_BYTES);
        output.put_u64_le(self.refused_unix_ns);
        output.put_u32_le(self.code);
        output.put_u32_le(reason.len() as u32);
        output.put_slice(reason);
    }

    /// The refusal and its length in bytes. None if the metadata has no refusal.
    pub fn decode(metadata: &[u8]) -> Option<(Self, usize)> {
        let fixed = metadata.get(..REFUSAL_FIXED_LEN_BYTES)?;
        let len = REFUSAL_FIXED_LEN_BYTES + (&fixed[12..]).get_u32_le() as usize;
        let reason =
            String::from_utf8_lossy(metadata.get(REFUSAL_FIXED_LEN_BYTES..len)?).into_owned();
        let (refused_unix_ns, code) = ((&fixed[..]).get_u64_le(), (&fixed[8..]).get_u32_le());
        Some((Refusal { refused_unix_ns, code, reason }, len))
    }
}

#[cfg(test)]
mod tests;
