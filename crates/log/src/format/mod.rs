//! The bytes on disk: encoding and decoding without any I/O. `docs/formats/segment-log.md`
//! describes every byte.
//!
//! Invariants: numbers are little endian; everything that is read is covered by a CRC32C; no length
//! from the disk is believed before its checksum and its bounds were checked.

mod cursor;
mod segment;

use std::fmt;

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

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

const SEGMENT_EXTENSION: &str = ".seg";

/// Names are ordered as their frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// No frame in the file has a lower offset.
    pub first_offset: u64,
    /// Above 0 if a failed write left a file of this offset: `-1`, `-2`, … before the extension.
    pub attempt: u32,
}

impl SegmentName {
    /// None for the name of another kind of file.
    pub fn parse(file_name: &str) -> Option<Self> {
        let stem = file_name.strip_suffix(SEGMENT_EXTENSION)?;
        let (offset, attempt) = match stem.split_once('-') {
            Some((offset, attempt)) => (offset, attempt.parse().ok()?),
            None => (stem, 0),
        };
        let name = SegmentName { first_offset: u64::from_str_radix(offset, 16).ok()?, attempt };
        // Only one spelling counts; otherwise two files could be the same segment.
        (name.to_string() == file_name).then_some(name)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.first_offset)?;
        if self.attempt > 0 {
            write!(formatter, "-{}", self.attempt)?;
        }
        formatter.write_str(SEGMENT_EXTENSION)
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
