//! The bits of a stream, the lowest of each byte first (RFC 1951, 3.1.1).

/// Behind the end of the input come zeros; [`Bits::taken_bytes`] tells whether any of them were taken.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    pub(super) input: &'a [u8],
    /// Of the next byte that is not counted yet.
    pub(super) next: usize,
    /// The next ones. Those above the counted ones are zeros, or already what comes next.
    pub(super) ahead: u64,
    /// How many of them are counted, at most 63.
    pub(super) count: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn of(input: &'a [u8]) -> Self {
        Bits { input, next: 0, ahead: 0, count: 0 }
    }

    /// What comes next, the first of them lowest: at least 56 after [`Bits::fill`], less what was taken since.
    #[inline(always)]
    pub(super) fn peek(&self) -> u64 {
        self.ahead
    }

    /// Takes as many as an entry of a table says.
    #[inline(always)]
    pub(super) fn skip(&mut self, entry: u32) {
        self.take(entry & 31);
    }

    /// Fewer than 32.
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> usize {
        let taken = low(self.ahead, count);
        self.ahead >>= count;
        self.count -= count;
        taken as usize
    }

    /// Afterwards at least 56 are there.
    #[inline(always)]
    pub(super) fn fill(&mut self) {
        let rest = self.input.get(self.next..).unwrap_or_default();
        let bytes = rest.first_chunk().map_or_else(|| last_bytes(rest), |bytes| u64::from_le_bytes(*bytes));
        // To add again what is above the counted ones changes nothing.
        self.ahead |= bytes << self.count;
        self.next += whole_bytes(self.count);
        self.count |= 56;
    }

    /// Leaves out the rest of a byte.
    pub(super) fn align(&mut self) {
        self.take(self.count & 7);
    }

    /// Of the input; a byte of which some bits were taken counts whole. `None` if more was taken than there is.
    pub(super) fn taken_bytes(&self) -> Option<usize> {
        let taken = self.next - (self.count >> 3) as usize;
        (taken <= self.input.len()).then_some(taken)
    }

    /// The next bytes as they are, from the begin of a byte.
    pub(super) fn take_bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let from = self.taken_bytes()?;
        let bytes = self.input[from..].get(..length)?;
        *self = Bits { next: from + length, ..Bits::of(self.input) };
        Some(bytes)
    }
}

/// How many bytes fit to so many bits.
#[inline(always)]
pub(super) fn whole_bytes(count: u32) -> usize {
    ((63 - count) >> 3) as usize
}

/// The lowest of them, fewer than 32.
#[inline(always)]
pub(super) fn low(bits: u64, count: u32) -> u64 {
    bits & ((1 << count) - 1)
}

#[cold]
fn last_bytes(rest: &[u8]) -> u64 {
    rest.iter().rev().fold(0, |bytes, byte| bytes << 8 | u64::from(*byte))
}
