//! The bytes on disk: encoding and decoding without any I/O. `docs/formats/segment-log.md`
//! describes every byte.
//!
//! Invariants: numbers are little endian; everything that is read is covered by a CRC32C; no length
//! from the disk is believed before its checksum and its bounds were checked.

mod cursor;
mod segment;
mod segment_name;

pub use cursor::{
    CursorState, DROPPED_RANGES_LIMIT, DroppedRange, NAME_LIMIT_BYTES, RANGES_LIMIT,
    SLOT_LEN_BYTES, UNTAKEN_RANGES_LIMIT, decode_slot, encode_slot,
};
pub(crate) use cursor::{decode_list, encode_list};
pub use segment::{
    BODY_LIMIT_BYTES, FOOTER_LEN_BYTES, FRAME_PREFIX_LEN_BYTES, FileKind, Footer, FrameHeader,
    FrameRef, HeaderParse, METADATA_LIMIT_BYTES, READERS_LIMIT, REASON_LIMIT_BYTES, Refusal,
    SEGMENT_HEADER_LEN_BYTES, SegmentHeader, body_checksum, encode_frame_header,
    parse_frame_header,
};
pub(crate) use segment::{find_marker, frame_epoch, reader_ids};
pub use segment_name::SegmentName;

/// The version that this code writes. It reads every minor version of the same major version.
pub const VERSION: Version = Version { major: 1, minor: 1 };

/// Frames and footers start at multiples of this.
pub const FRAME_ALIGNMENT_BYTES: u64 = 8;

/// Each sync starts at a multiple of this: no acknowledged block is written again.
pub const BLOCK_LEN_BYTES: u64 = 4096;

/// Version of a file's format. A higher minor version only adds parts that older code may skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u16,
    pub minor: u16,
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// Why a block cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// All zeros: the process or the power failed while it was being created.
    Empty,
    Damaged,
    NewerVersion {
        found: Version,
    },
}

/// The longest start of a text that fits into `limit_bytes`, cut between characters.
fn cut_text(text: &str, limit_bytes: usize) -> &[u8] {
    let mut end = text.len().min(limit_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}
