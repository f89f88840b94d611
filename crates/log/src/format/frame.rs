//! A frame: header, the readers that it is for, metadata, payload.

use bytes::{Buf as _, BufMut as _};

use super::FRAME_ALIGNMENT_BYTES;
use crate::record::RecordFacts;
use crate::types::Charge;

/// The fixed part of a frame's header; the reader ids follow it.
pub const FRAME_PREFIX_LEN_BYTES: usize = 64;
/// A frame is for at most this many readers.
pub const READERS_LIMIT: usize = 4096;
/// Longest metadata of a frame.
pub const METADATA_LIMIT_BYTES: usize = 16 << 20;
/// Longest metadata and payload together.
pub const BODY_LIMIT_BYTES: usize = 1 << 30;

/// The last character is the major version of the layout.
const MARKER: &[u8; 8] = b"SLUFRAM1";
const CHECKSUM_POSITION: usize = 60;
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
    prefix[..8].copy_from_slice(MARKER);
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
    (&mut output[start + CHECKSUM_POSITION..]).put_u32_le(checksum);
}

/// Parses the header of a frame at `position`, where `bytes` starts. A header counts only where it
/// was written: its checksum covers its position, so that neither a misplaced write nor a copy of a
/// segment within a payload passes.
pub fn parse_frame_header(bytes: &[u8], epoch: u64, position: u64) -> HeaderParse {
    if bytes.len() < FRAME_PREFIX_LEN_BYTES {
        return HeaderParse::Needs(FRAME_PREFIX_LEN_BYTES);
    }
    if &bytes[..8] != MARKER || (&bytes[8..]).get_u64_le() != epoch {
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
    if header_checksum(&bytes[..header_len], position) != (&bytes[CHECKSUM_POSITION..]).get_u32_le()
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
    (bytes.len() >= FRAME_PREFIX_LEN_BYTES && &bytes[..8] == MARKER)
        .then(|| (&bytes[8..]).get_u64_le())
}

/// First multiple of the alignment in `bytes` at which marker and epoch of a frame stand.
pub(crate) fn find_marker(bytes: &[u8], epoch: u64) -> Option<usize> {
    let epoch = epoch.to_le_bytes();
    let step = FRAME_ALIGNMENT_BYTES as usize;
    let last = bytes.len().checked_sub(16)?;
    (0..=last)
        .step_by(step)
        .find(|&at| &bytes[at..at + 8] == MARKER && bytes[at + 8..at + 16] == epoch)
}

fn header_checksum(header: &[u8], position: u64) -> u32 {
    let fixed = crc32c::crc32c(&header[..CHECKSUM_POSITION]);
    let readers = crc32c::crc32c_append(fixed, &header[FRAME_PREFIX_LEN_BYTES..]);
    crc32c::crc32c_append(readers, &position.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame<'a>(readers: &'a [u32], metadata: &'a [u8], payload: &'a [u8]) -> FrameRef<'a> {
        FrameRef {
            offset: 7,
            facts: RecordFacts {
                received_unix_ns: 8,
                encoding: 11,
                flags: 12,
                uncompressed_len_bytes: 13,
            },
            charge: Charge { bytes: 10, items: 9 },
            is_taken: true,
            readers,
            metadata,
            payload,
        }
    }

    fn encode(frame: &FrameRef<'_>, epoch: u64, position: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_frame_header(frame, epoch, position, &mut bytes);
        bytes
    }

    #[test]
    fn a_header_counts_only_in_its_file_and_at_its_place() {
        let bytes = encode(&frame(&[1, 2], b"m", b"payload"), 5, 4096);
        let HeaderParse::Frame(header) = parse_frame_header(&bytes, 5, 4096) else {
            panic!("not parsed")
        };
        let written = frame(&[1, 2], b"m", b"payload");
        assert_eq!((header.offset, header.readers, header.is_taken), (7, 2, true));
        assert_eq!((header.facts, header.charge), (written.facts, written.charge));
        assert_eq!(header.body_checksum, body_checksum(b"m", b"payload"));
        assert_eq!(header.frame_len_bytes(), 64 + 8 + 8);
        assert_eq!(reader_ids(&bytes, &header).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(parse_frame_header(&bytes, 6, 4096), HeaderParse::NoFrame);
        assert_eq!(parse_frame_header(&bytes, 5, 4104), HeaderParse::NoFrame);
    }

    #[test]
    fn a_header_that_is_cut_asks_for_what_it_needs_and_no_more() {
        let bytes = encode(&frame(&[1, 2, 3], b"", b""), 5, 0);
        for len in 0..bytes.len() {
            let needs =
                if len < FRAME_PREFIX_LEN_BYTES { FRAME_PREFIX_LEN_BYTES } else { bytes.len() };
            assert_eq!(parse_frame_header(&bytes[..len], 5, 0), HeaderParse::Needs(needs));
        }
    }

    #[test]
    fn lengths_beyond_the_limits_are_no_frame_even_with_a_checksum_that_fits() {
        for (at, value) in [
            (32, u32::MAX),
            (36, METADATA_LIMIT_BYTES as u32 + 1),
            (32, BODY_LIMIT_BYTES as u32 + 1),
        ] {
            let mut bytes = encode(&frame(&[], b"", b""), 5, 0);
            (&mut bytes[at..]).put_u32_le(value);
            let checksum = header_checksum(&bytes, 0);
            (&mut bytes[CHECKSUM_POSITION..]).put_u32_le(checksum);
            assert_eq!(parse_frame_header(&bytes, 5, 0), HeaderParse::NoFrame, "{value} at {at}");
        }
    }

    #[test]
    fn the_marker_is_found_at_multiples_of_the_alignment_only() {
        let bytes = encode(&frame(&[], b"", b""), 5, 0);
        for shift in 0..=24 {
            let mut shifted = vec![0xff; shift];
            shifted.extend_from_slice(&bytes);
            assert_eq!(find_marker(&shifted, 5), (shift % 8 == 0).then_some(shift));
            assert_eq!(find_marker(&shifted, 6), None);
        }
        assert_eq!(find_marker(&bytes[..15], 5), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_frame(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            epoch: u64,
            position: u64,
        ) {
            let parsed = parse_frame_header(&bytes, epoch, position);
            prop_assert!(!matches!(parsed, HeaderParse::Frame(_)));
        }

        #[test]
        fn any_change_of_a_header_is_seen(
            readers in proptest::collection::vec(any::<u32>(), 0..5),
            at: usize,
            change in 1u8..,
        ) {
            let mut bytes = encode(&frame(&readers, b"metadata", b"payload"), 5, 4096);
            let at = at % bytes.len();
            bytes[at] ^= change;
            prop_assert!(!matches!(parse_frame_header(&bytes, 5, 4096), HeaderParse::Frame(_)));
        }
    }
}
