//! The footer of a sealed segment: totals of its frames, without a scan.

use bytes::{Buf as _, BufMut as _};

use crate::types::Charge;

/// Length of the footer, which ends a sealed file.
pub const FOOTER_LEN_BYTES: u64 = 64;

const MARKER: &[u8; 8] = b"SLUSEAL1";
const CHECKSUM_POSITION: usize = 60;

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
        block[..8].copy_from_slice(MARKER);
        (&mut block[8..]).put_u64_le(epoch);
        (&mut block[16..]).put_u64_le(self.frames);
        (&mut block[24..]).put_u64_le(self.first_offset);
        (&mut block[32..]).put_u64_le(self.last_offset);
        (&mut block[40..]).put_u64_le(self.items);
        (&mut block[48..]).put_u64_le(self.charged_bytes);
        let checksum = checksum(&block, position);
        (&mut block[CHECKSUM_POSITION..]).put_u32_le(checksum);
        block
    }

    /// None if no whole footer of the file is at this position: the file is scanned then.
    pub fn decode(block: &[u8], epoch: u64, position: u64) -> Option<Self> {
        let block = block.get(..FOOTER_LEN_BYTES as usize)?;
        let whole = &block[..8] == MARKER
            && (&block[8..]).get_u64_le() == epoch
            && (&block[CHECKSUM_POSITION..]).get_u32_le() == checksum(block, position);
        whole.then(|| Footer {
            frames: (&block[16..]).get_u64_le(),
            first_offset: (&block[24..]).get_u64_le(),
            last_offset: (&block[32..]).get_u64_le(),
            items: (&block[40..]).get_u64_le(),
            charged_bytes: (&block[48..]).get_u64_le(),
        })
    }
}

fn checksum(block: &[u8], position: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[..CHECKSUM_POSITION]), &position.to_le_bytes())
}
