//! Memory that a disk can take without a copy in between.

/// Addresses, positions and lengths that are multiples of this suit the blocks of any usual disk.
pub const ALIGNMENT_BYTES: usize = 4096;

/// First capacity of a buffer, which grows to its limit: a log that writes little needs little.
const FIRST_CAPACITY_BYTES: usize = 64 << 10;

/// Bytes on their way to a file, in aligned memory.
#[derive(Debug)]
pub struct AlignedBuffer {
    /// Longer than the aligned part that is used. Never grows in place.
    memory: Vec<u8>,
    /// Index at which the aligned part of the memory begins.
    start: usize,
    capacity: usize,
    len: usize,
    limit: usize,
}

impl AlignedBuffer {
    /// A buffer of at most `limit_bytes`, rounded up to whole blocks. Allocates at the first use.
    pub fn new(limit_bytes: usize) -> Self {
        let limit = limit_bytes.next_multiple_of(ALIGNMENT_BYTES).max(ALIGNMENT_BYTES);
        AlignedBuffer { memory: Vec::new(), start: 0, capacity: 0, len: 0, limit }
    }

    /// Appends as many bytes as fit; returns the rest. If there is a rest, the buffer is full.
    #[must_use]
    pub fn append<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        self.reserve(bytes.len());
        let (now, rest) = bytes.split_at(bytes.len().min(self.capacity - self.len));
        let room = self.start + self.len;
        self.memory[room..room + now.len()].copy_from_slice(now);
        self.len += now.len();
        rest
    }

    /// Appends zeros up to the end of the block.
    pub fn fill_block(&mut self) {
        let len = self.len.next_multiple_of(ALIGNMENT_BYTES);
        self.memory[self.start + self.len..self.start + len].fill(0);
        self.len = len;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    fn reserve(&mut self, more: usize) {
        let wanted = self.len.saturating_add(more).min(self.limit);
        if wanted <= self.capacity {
            return;
        }
        let capacity =
            wanted.next_power_of_two().clamp(FIRST_CAPACITY_BYTES.min(self.limit), self.limit);
        let mut memory = vec![0; capacity + ALIGNMENT_BYTES];
        let start = memory.as_ptr().align_offset(ALIGNMENT_BYTES);
        memory[start..start + self.len].copy_from_slice(self.bytes());
        *self = AlignedBuffer { memory, start, capacity, ..*self };
    }
}

/// Whether a disk can take these bytes at this position without a copy.
pub(super) fn is_aligned(bytes: &[u8], position: u64) -> bool {
    bytes.as_ptr().align_offset(ALIGNMENT_BYTES) == 0
        && !bytes.is_empty()
        && bytes.len().is_multiple_of(ALIGNMENT_BYTES)
        && position.is_multiple_of(ALIGNMENT_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_what_fits_and_keeps_it_aligned_while_it_grows() {
        let mut buffer = AlignedBuffer::new(200_000);
        let bytes: Vec<u8> = (0..300_000_u32).map(|index| index as u8).collect();
        let mut rest = &bytes[..];
        for step in [1, 4095, 70_000] {
            let (now, later) = rest.split_at(step);
            assert!(buffer.append(now).is_empty());
            rest = later;
            assert_eq!(buffer.bytes(), &bytes[..bytes.len() - rest.len()]);
        }
        let rest = buffer.append(rest);
        assert_eq!(buffer.bytes().len(), 200_704, "the limit, in whole blocks");
        assert_eq!(rest, &bytes[200_704..]);
        assert!(is_aligned(buffer.bytes(), 8192) && !is_aligned(buffer.bytes(), 8191));
        assert_eq!(buffer.append(b"x"), b"x", "it is full");
        buffer.clear();
        assert!(buffer.append(b"abc").is_empty());
        buffer.fill_block();
        assert_eq!((buffer.bytes().len(), &buffer.bytes()[..4]), (4096, &b"abc\0"[..]));
        assert!(
            buffer.bytes()[3..].iter().all(|byte| *byte == 0),
            "nothing of what was there before"
        );
        buffer.fill_block();
        assert_eq!(buffer.bytes().len(), 4096);
    }

    #[test]
    fn an_empty_one_takes_no_memory() {
        let mut buffer = AlignedBuffer::new(1 << 20);
        buffer.fill_block();
        assert!(
            buffer.bytes().is_empty() && buffer.memory.is_empty() && !is_aligned(buffer.bytes(), 0)
        );
    }
}
