//! The decoding tables of a block, made from the lengths of its codes (RFC 1951, 3.2.2).
//!
//! A table is looked up with the next bits of the stream. An entry has four bytes, so that the
//! tables stay in the first-level cache beside the output, and stands for as many symbols as its
//! bits contain: two literals, or a literal and the match behind it. That makes fewer lookups that
//! depend on each other, and fewer branches that the processor cannot predict.
//!
//! ```text
//! bits  0-4   how many bits of the stream the entry takes: codes and extra bits of a match
//! bit   6     LITERALS: nothing but literals
//! bit   7     SPECIAL: end of block, no code, or a code that is longer than a lookup
//! bits  8-11  how many of the taken bits come before the extra bits
//! bit  14     TWO: two literals, or a literal before a match
//! bit  15     END, with SPECIAL: end of block, or no code
//! bits 16-23  the first literal, or the length of the match less three without its extra bits
//! bits 24-31  the second literal, or the one before the match
//! ```
//!
//! Bits 16-31 of a distance are the distance without its extra bits; of a code that is longer than
//! a lookup, the place at which to look up the rest.

/// Most literals of text and identifiers have codes of six bits: one lookup decodes two of them.
const LITERAL_BITS: u32 = 12;
const DISTANCE_BITS: u32 = 8;
const CODE_LENGTH_BITS: u32 = 7;

/// No code is longer (RFC 1951, 3.2.7).
const CODE_BITS_MAX: usize = 15;

pub(super) const LITERALS: u32 = 1 << 6;
pub(super) const SPECIAL: u32 = 1 << 7;
pub(super) const TWO: u32 = 1 << 14;
pub(super) const END: u32 = 1 << 15;
/// Bits that no code begins with.
const NO_CODE: u32 = SPECIAL | END | 1 << 16;

/// The most codes that a block can describe; the last two mean nothing.
pub(super) const LITERAL_CODES_MAX: usize = 288;
pub(super) const DISTANCE_CODES_MAX: usize = 32;
pub(super) const CODE_LENGTH_CODES: usize = 19;
const END_OF_BLOCK: usize = 256;

/// Entries before the length of the code is added. Extra bits are counted.
static LITERAL_SYMBOLS: [u32; LITERAL_CODES_MAX] = {
    let mut symbols = [NO_CODE; LITERAL_CODES_MAX];
    let mut symbol = 0;
    while symbol < END_OF_BLOCK {
        symbols[symbol] = LITERALS | (symbol as u32) << 16;
        symbol += 1;
    }
    symbols[END_OF_BLOCK] = SPECIAL | END;
    // Lengths from 3 on, four codes for each number of extra bits; the longest has a code of its
    // own (RFC 1951, 3.2.5).
    let (mut code, mut length) = (0, 0);
    while code < 28 {
        let extra = if code < 8 { 0 } else { code / 4 - 1 };
        symbols[END_OF_BLOCK + 1 + code as usize] = length << 16 | extra;
        length += 1 << extra;
        code += 1;
    }
    symbols[END_OF_BLOCK + 1 + 28] = (258 - 3) << 16;
    symbols
};

static DISTANCE_SYMBOLS: [u32; DISTANCE_CODES_MAX] = {
    let mut symbols = [NO_CODE; DISTANCE_CODES_MAX];
    // From 1 on, two codes for each number of extra bits (RFC 1951, 3.2.5).
    let (mut code, mut distance) = (0, 1);
    while code < 30 {
        let extra = if code < 4 { 0 } else { code / 2 - 1 };
        symbols[code as usize] = distance << 16 | extra;
        distance += 1 << extra;
        code += 1;
    }
    symbols
};

static CODE_LENGTH_SYMBOLS: [u32; CODE_LENGTH_CODES] = {
    let mut symbols = [0; CODE_LENGTH_CODES];
    let mut symbol = 0;
    while symbol < CODE_LENGTH_CODES {
        symbols[symbol] = (symbol as u32) << 16;
        symbol += 1;
    }
    symbols
};

/// Places for the ends of codes that are longer than a lookup. At least two such codes share their
/// first bits.
const FOLLOWING: usize = 2048;
const _: () =
    assert!((LITERAL_CODES_MAX / 2) << (CODE_BITS_MAX as u32 - LITERAL_BITS) <= FOLLOWING);
const _: () =
    assert!((DISTANCE_CODES_MAX / 2) << (CODE_BITS_MAX as u32 - DISTANCE_BITS) <= FOLLOWING);

pub(super) struct Table<const ENTRIES: usize> {
    entries: [u32; ENTRIES],
    following: [u32; FOLLOWING],
}

impl<const ENTRIES: usize> Table<ENTRIES> {
    const BITS: usize = ENTRIES.trailing_zeros() as usize;

    const EMPTY: Self = Table { entries: [0; ENTRIES], following: [0; FOLLOWING] };

    /// The entry for the code that these bits begin with.
    #[inline(always)]
    pub(super) fn get(&self, bits: u64) -> u32 {
        self.entries[bits as usize % ENTRIES]
    }

    /// The entry for the end of a longer code, whose first bits gave `entry`.
    #[inline(always)]
    pub(super) fn get_following(&self, entry: u32, bits: u64) -> u32 {
        let bits = bits as usize % (1 << (CODE_BITS_MAX - Self::BITS));
        self.following[((entry >> 16) as usize + bits) % FOLLOWING]
    }

    /// Makes the table for codes of these lengths. `None` unless the code is complete, as that of
    /// every packer is: any bits begin with exactly one code.
    #[inline(always)]
    fn make(&mut self, lengths: &[u8], symbols: &[u32]) -> Option<()> {
        let sorted = Sorted::by_code(lengths)?;
        let mut symbols = sorted.symbols.iter().map(|symbol| symbols[usize::from(*symbol)]);
        let mut code = Code(0);
        for length in 1..=Self::BITS {
            // The entry of a shorter code repeats for all bits behind it.
            let (known, rest) = self.entries.split_at_mut(1 << (length - 1));
            rest[..known.len()].copy_from_slice(known);
            for symbol in symbols.by_ref().take(sorted.count(length)) {
                self.entries[code.0 % ENTRIES] = with_code(symbol, length);
                code.advance(length);
            }
        }
        let group = 1 << (CODE_BITS_MAX - Self::BITS);
        let (mut begins, mut end) = (None, 0);
        for length in Self::BITS + 1..=CODE_BITS_MAX {
            for symbol in symbols.by_ref().take(sorted.count(length)) {
                let begin = code.0 % ENTRIES;
                if begins != Some(begin) {
                    begins = Some(begin);
                    self.entries[begin] = SPECIAL | (end as u32) << 16 | Self::BITS as u32;
                    end += group;
                }
                let entry = with_code(symbol, length - Self::BITS);
                let places = self.following[end - group..end][code.0 / ENTRIES..].iter_mut();
                places.step_by(1 << (length - Self::BITS)).for_each(|place| *place = entry);
                code.advance(length);
            }
        }
        Some(())
    }
}

/// Adds the length of the symbol's code, or of the rest of the code, to its entry.
#[inline(always)]
fn with_code(symbol: u32, length: usize) -> u32 {
    let length = length as u32;
    if symbol & SPECIAL != 0 { symbol | length } else { symbol + length + (length << 8) }
}

/// The codes in their order, bit-reversed: the first bit of the stream is the lowest.
struct Code(usize);

impl Code {
    /// Adds one, carrying downwards. There is nothing behind the last code.
    #[inline(always)]
    fn advance(&mut self, length: usize) {
        let zeros = !self.0 & ((1 << length) - 1);
        let bit = zeros.checked_ilog2().map_or(0, |highest| 1_usize << highest);
        self.0 = self.0 & bit.saturating_sub(1) | bit;
    }
}

/// The symbols that have codes, in the order of their codes.
struct Sorted {
    symbols: [u16; LITERAL_CODES_MAX],
    /// By length.
    counts: [u16; CODE_BITS_MAX + 1],
}

impl Sorted {
    /// `None` unless the code is complete.
    #[inline(always)]
    fn by_code(lengths: &[u8]) -> Option<Self> {
        let mut counts = [0; CODE_BITS_MAX + 1];
        for length in lengths {
            counts[usize::from(length & 15)] += 1;
        }
        let mut places = [0; CODE_BITS_MAX + 1];
        let (mut symbols_before, mut bits_used) = (0, 0);
        for length in 1..=CODE_BITS_MAX {
            places[length] = symbols_before;
            symbols_before += counts[length];
            bits_used += u32::from(counts[length]) << (CODE_BITS_MAX - length);
        }
        if bits_used != 1 << CODE_BITS_MAX {
            return None;
        }
        // Symbols without a code come last.
        places[0] = symbols_before;
        let mut symbols = [0; LITERAL_CODES_MAX];
        for (symbol, length) in lengths.iter().enumerate() {
            let place = &mut places[usize::from(length & 15)];
            symbols[usize::from(*place)] = symbol as u16;
            *place += 1;
        }
        Some(Sorted { symbols, counts })
    }

    #[inline(always)]
    fn count(&self, length: usize) -> usize {
        usize::from(self.counts[length])
    }
}

/// All tables of a block.
pub(super) struct Tables {
    pub(super) literals: Table<{ 1 << LITERAL_BITS }>,
    pub(super) distances: Table<{ 1 << DISTANCE_BITS }>,
    pub(super) code_lengths: Table<{ 1 << CODE_LENGTH_BITS }>,
    /// Scratch space of `join`: the entry that follows each entry.
    seconds: [u32; 1 << LITERAL_BITS],
}

impl Tables {
    pub(super) fn new() -> Box<Self> {
        Box::new(Tables {
            literals: Table::EMPTY,
            distances: Table::EMPTY,
            code_lengths: Table::EMPTY,
            seconds: [0; 1 << LITERAL_BITS],
        })
    }

    #[inline(always)]
    pub(super) fn make_code_lengths(&mut self, lengths: &[u8; CODE_LENGTH_CODES]) -> Option<()> {
        self.code_lengths.make(lengths, &CODE_LENGTH_SYMBOLS)
    }

    #[inline(always)]
    pub(super) fn make(&mut self, literals: &[u8], distances: &[u8]) -> Option<()> {
        self.literals.make(literals, &LITERAL_SYMBOLS)?;
        self.distances.make(distances, &DISTANCE_SYMBOLS)?;
        self.join();
        Some(())
    }

    /// Joins entries whose bits contain two symbols. In two passes, the second without lookups, so
    /// that the compiler can vectorize it.
    #[inline(always)]
    fn join(&mut self) {
        let firsts = &mut self.literals.entries;
        for (bits, second) in self.seconds.iter_mut().enumerate() {
            *second = firsts[(bits >> (firsts[bits] & 31)) % firsts.len()];
        }
        for (first, second) in firsts.iter_mut().zip(&self.seconds) {
            *first = joined(*first, *second);
        }
    }
}

/// An entry of both symbols, or the first one alone if the bits do not contain both.
#[inline(always)]
fn joined(first: u32, second: u32) -> u32 {
    let length = first & 31;
    let fits = length + (second >> 8 & 15) <= LITERAL_BITS;
    let joins = all_if(fits) & all_if(first & LITERALS != 0) & all_if(second & SPECIAL == 0);
    // A match keeps its length in the lower place; two literals are in order.
    let swapped = (first ^ second) & all_if(second & LITERALS != 0);
    let (lower, upper) = (second ^ swapped, first ^ swapped);
    let symbols = lower & 0xff_0000 | upper << 8 & 0xff00_0000;
    let both = symbols | ((second & 0xffff) + length + (length << 8) + TWO);
    first & !joins | both & joins
}

/// All bits or none, without a branch.
#[inline(always)]
fn all_if(condition: bool) -> u32 {
    0_u32.wrapping_sub(u32::from(condition))
}

#[cfg(test)]
mod tests;
