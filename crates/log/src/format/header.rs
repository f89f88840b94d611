//! The header of a segment file: one block with two copies, so that no single damaged sector costs
//! the file.

use bytes::{Buf as _, BufMut as _};

use super::{BLOCK_LEN_BYTES, BlockError, VERSION, Version, cut_text};

/// The header takes the whole first block, which is never written again.
pub const SEGMENT_HEADER_LEN_BYTES: u64 = BLOCK_LEN_BYTES;

const MAGIC: &[u8; 8] = b"SLUICSEG";
const COPY_LEN_BYTES: usize = 128;
const COPY_POSITIONS: [usize; 2] = [0, 2048];
const NAME_POSITION: usize = 64;
const NAME_LIMIT_BYTES: usize = 32;
const CHECKSUM_POSITION: usize = 124;

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
        let mut copy = [0; COPY_LEN_BYTES];
        copy[..8].copy_from_slice(MAGIC);
        (&mut copy[8..]).put_u16_le(self.version.major);
        (&mut copy[10..]).put_u16_le(self.version.minor);
        (&mut copy[12..]).put_u32_le(COPY_LEN_BYTES as u32);
        (&mut copy[16..]).put_u128_le(self.log_id);
        (&mut copy[32..]).put_u64_le(self.epoch);
        (&mut copy[40..]).put_u64_le(self.first_offset);
        (&mut copy[48..]).put_u64_le(self.created_unix_ns);
        copy[56] = self.kind as u8;
        let name = cut_text(&self.name, NAME_LIMIT_BYTES);
        copy[57] = name.len() as u8;
        copy[NAME_POSITION..NAME_POSITION + name.len()].copy_from_slice(name);
        let checksum = crc32c::crc32c(&copy[..CHECKSUM_POSITION]);
        (&mut copy[CHECKSUM_POSITION..]).put_u32_le(checksum);
        let mut block = vec![0; SEGMENT_HEADER_LEN_BYTES as usize];
        for position in COPY_POSITIONS {
            block[position..position + COPY_LEN_BYTES].copy_from_slice(&copy);
        }
        block
    }

    /// Decodes the first copy that is whole. `block` may be shorter than a block if the file is.
    pub fn decode(block: &[u8]) -> Result<Self, BlockError> {
        if block.iter().all(|&byte| byte == 0) {
            return Err(BlockError::Empty);
        }
        let copies = COPY_POSITIONS.iter().filter_map(|&at| block.get(at..at + COPY_LEN_BYTES));
        let mut decoded = copies.map(decode_copy);
        let whole = decoded.find(|copy| *copy != Err(BlockError::Damaged));
        whole.unwrap_or(Err(BlockError::Damaged))
    }
}

/// Magic, version and the position of the checksum are the same in every version.
fn decode_copy(copy: &[u8]) -> Result<SegmentHeader, BlockError> {
    if &copy[..8] != MAGIC
        || (&copy[CHECKSUM_POSITION..]).get_u32_le() != crc32c::crc32c(&copy[..CHECKSUM_POSITION])
    {
        return Err(BlockError::Damaged);
    }
    let version = Version { major: (&copy[8..]).get_u16_le(), minor: (&copy[10..]).get_u16_le() };
    if version.major > VERSION.major {
        return Err(BlockError::NewerVersion { found: version });
    }
    let name_len = usize::from(copy[57]).min(NAME_LIMIT_BYTES);
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
        name: String::from_utf8_lossy(&copy[NAME_POSITION..NAME_POSITION + name_len]).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            version: VERSION,
            kind: FileKind::DeadLetters,
            log_id: u128::MAX - 1,
            epoch: 3,
            first_offset: u64::MAX - 1,
            created_unix_ns: 5,
            name: "logs".to_owned(),
        }
    }

    #[test]
    fn one_damaged_copy_costs_nothing_and_two_are_told_from_an_empty_block() {
        let block = header().encode();
        assert_eq!(SegmentHeader::decode(&block), Ok(header()));
        for at in 0..128 {
            let mut damaged = block.clone();
            damaged[at] ^= 0x40;
            assert_eq!(SegmentHeader::decode(&damaged), Ok(header()), "byte {at}");
            damaged[2048 + at] ^= 0x40;
            assert_eq!(SegmentHeader::decode(&damaged), Err(BlockError::Damaged), "byte {at}");
        }
        assert_eq!(SegmentHeader::decode(&[0; 4096]), Err(BlockError::Empty));
        assert_eq!(SegmentHeader::decode(&[]), Err(BlockError::Empty));
        assert_eq!(SegmentHeader::decode(&block[..127]), Err(BlockError::Damaged));
        assert_eq!(SegmentHeader::decode(&block[..128]), Ok(header()));
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let long = SegmentHeader { name: "ä".repeat(15) + "xä", ..header() };
        assert_eq!(SegmentHeader::decode(&long.encode()).unwrap().name, "ä".repeat(15) + "x");
    }
}
