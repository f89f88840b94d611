//! Inflating whole buffers (RFC 1951), on x86-64 processors of the last ten years.
//!
//! Three quarters of what a gateway does with compressed telemetry that it passes on unchanged is this, and libdeflate, the fastest library there is, takes
//! a tenth to a fifth longer for it (`examples/compression_speed.rs`). What a decoder waits for is a lookup that the one before it has to point to, and
//! what the processor guessed wrongly. So one lookup gives as many symbols here as its bits hold (see `tables`).
//!
//! It takes a stream or it does not: what is malformed, unusual or of another length than expected is left to libdeflate, which says what is wrong with it.
//! What it takes still has a checksum to pass.

mod bits;
mod block;
mod fast;
mod tables;
#[cfg(test)]
mod tests;

use bits::Bits;
use tables::{CODE_LENGTH_CODES, DISTANCE_CODES_MAX, LITERAL_CODES_MAX, Tables};

/// The order in which the lengths of the codes for lengths come (RFC 1951, 3.2.7).
const CODE_LENGTH_ORDER: [usize; CODE_LENGTH_CODES] =
    [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
/// The most that one of those codes repeats a length.
const REPEATED_MAX: usize = 138;

/// Blocks that unpack to less than this on average are left to libdeflate, whose tables are made sooner: an empty block has ten bits, and a body full of them
/// would cost seconds.
const BLOCK_MIN_BYTES: usize = 2048;
/// So many of any length are taken.
const FEW_BLOCKS: usize = 16;

/// Holds the tables of a block.
pub struct Inflater {
    tables: Box<Tables>,
}

impl Inflater {
    /// `None` if this processor has not what makes it fast.
    pub fn new() -> Option<Self> {
        let can = is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("avx2");
        can.then(|| Inflater { tables: Tables::new() })
    }

    /// Fills `output` with what a stream unpacks to, and returns how many bytes of the input it took; what is behind them does not matter. `None` if it does
    /// not take this stream, which may be a good one all the same; what `output` holds then has no meaning.
    pub fn inflate(&mut self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        // SAFETY: there is an inflater only where the processor has these features.
        #[expect(unsafe_code, reason = "the instructions that shift by any register save a twentieth")]
        unsafe {
            stream(&mut self.tables, input, output)
        }
    }
}

#[target_feature(enable = "bmi1,bmi2,lzcnt,avx2")]
fn stream(tables: &mut Tables, input: &[u8], output: &mut [u8]) -> Option<usize> {
    let mut bits = Bits::of(input);
    let (mut filled, mut blocks) = (0, 0);
    loop {
        bits.fill();
        let is_last = bits.take(1) == 1;
        let block_type = bits.take(2);
        if block_type == 0 {
            filled += stored(&mut bits, &mut output[filled..])?;
        } else {
            blocks += 1;
            if blocks > FEW_BLOCKS + filled / BLOCK_MIN_BYTES {
                return None;
            }
            match block_type {
                1 => fixed_codes(tables)?,
                2 => described_codes(tables, &mut bits)?,
                _ => return None,
            }
            filled = block::unpack(tables, &mut bits, output, filled)?;
        }
        if is_last {
            return bits.taken_bytes().filter(|_| filled == output.len());
        }
    }
}

/// A block that was not packed (RFC 1951, 3.2.4). Returns how many bytes it has.
fn stored(bits: &mut Bits<'_>, output: &mut [u8]) -> Option<usize> {
    bits.align();
    let (length, complement) = (bits.take(16), bits.take(16));
    if length ^ complement != 0xffff {
        return None;
    }
    output.get_mut(..length)?.copy_from_slice(bits.take_bytes(length)?);
    Some(length)
}

/// RFC 1951, 3.2.6.
#[target_feature(enable = "bmi1,bmi2,lzcnt,avx2")]
fn fixed_codes(tables: &mut Tables) -> Option<()> {
    let mut literals = [8; LITERAL_CODES_MAX];
    literals[144..256].fill(9);
    literals[256..280].fill(7);
    tables.make(&literals, &[5; DISTANCE_CODES_MAX])
}

/// RFC 1951, 3.2.7.
#[target_feature(enable = "bmi1,bmi2,lzcnt,avx2")]
fn described_codes(tables: &mut Tables, bits: &mut Bits<'_>) -> Option<()> {
    bits.fill();
    let (literals, distances, described) = (bits.take(5) + 257, bits.take(5) + 1, bits.take(4) + 4);
    let mut code_lengths = [0; CODE_LENGTH_CODES];
    for code in &CODE_LENGTH_ORDER[..described] {
        bits.fill();
        code_lengths[*code] = bits.take(3) as u8;
    }
    tables.make_code_lengths(&code_lengths)?;
    let mut lengths = [0; LITERAL_CODES_MAX + DISTANCE_CODES_MAX + REPEATED_MAX];
    let mut known = 0;
    while known < literals + distances {
        bits.fill();
        let entry = tables.code_lengths.get(bits.peek());
        bits.skip(entry);
        let (length, times) = match entry >> 16 {
            length @ 0..16 => (length as u8, 1),
            16 => (lengths[known.checked_sub(1)?], 3 + bits.take(2)),
            17 => (0, 3 + bits.take(3)),
            _ => (0, 11 + bits.take(7)),
        };
        lengths[known..known + times].fill(length);
        known += times;
    }
    let (literals, distances) = lengths.get(..literals + distances)?.split_at(literals);
    (known == literals.len() + distances.len()).then(|| tables.make(literals, distances))?
}
