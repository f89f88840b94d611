//! The bits of a stream, the lowest of each byte first (RFC 1951, 3.1.1).

/// Behind the end of the input come zeros; [`Bits::taken_bytes`] says whether any were taken.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    pub(super) input: &'a [u8],
    /// Index of the next byte that is not counted yet.
    pub(super) next: usize,
    /// The next bits, the first one lowest. Those above `count` are zeros, or already the bits that
    /// follow.
    pub(super) ahead: u64,
    /// The counted bits of `ahead`: 56 to 63 after [`Bits::fill`], less those taken since.
    pub(super) count: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn of(input: &'a [u8]) -> Self {
        Bits { input, next: 0, ahead: 0, count: 0 }
    }

    /// Takes the number of bits in a table's entry.
    #[inline(always)]
    pub(super) fn skip(&mut self, entry: u32) {
        self.take(entry & 31);
    }

    /// Takes fewer than 32 bits.
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> usize {
        let taken = low(self.ahead, count);
        self.ahead >>= count;
        self.count -= count;
        taken as usize
    }

    /// Afterwards at least 56 bits are counted.
    #[inline(always)]
    pub(super) fn fill(&mut self) {
        let rest = self.input.get(self.next..).unwrap_or_default();
        let bytes =
            rest.first_chunk().map_or_else(|| last_bytes(rest), |bytes| u64::from_le_bytes(*bytes));
        // The bits above the counted ones are the same: to add them again changes nothing.
        self.ahead |= bytes << self.count;
        // As many whole bytes as there is room for.
        self.next += ((63 - self.count) >> 3) as usize;
        self.count |= 56;
    }

    /// Skips the rest of a byte.
    pub(super) fn align(&mut self) {
        self.take(self.count & 7);
    }

    /// Bytes of the input that were taken, whole or in part. `None`: more than there are.
    pub(super) fn taken_bytes(&self) -> Option<usize> {
        let taken = self.next - (self.count >> 3) as usize;
        (taken <= self.input.len()).then_some(taken)
    }

    /// The next bytes as they are. Call [`Bits::align`] first.
    pub(super) fn take_bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let from = self.taken_bytes()?;
        let bytes = self.input[from..].get(..length)?;
        *self = Bits { next: from + length, ..Bits::of(self.input) };
        Some(bytes)
    }
}

/// The lowest `count` bits, fewer than 32.
#[inline(always)]
pub(super) fn low(bits: u64, count: u32) -> u64 {
    bits & ((1 << count) - 1)
}

#[cold]
fn last_bytes(rest: &[u8]) -> u64 {
    rest.iter().rev().fold(0, |bytes, byte| bytes << 8 | u64::from(*byte))
}
