//! Inflates whole buffers (RFC 1951) on x86-64 processors with BMI2 and AVX2.
//!
//! Three quarters of the CPU time of passing on compressed telemetry is inflating. This decoder
//! takes a tenth to a third less than libdeflate, because one lookup decodes as many symbols as its
//! bits contain (see `tables` and `docs/decisions/010-inflater.md`).
//!
//! It takes a stream or leaves it: malformed or unusual ones, and those of an unexpected length,
//! are libdeflate's, which says what is wrong. A taken stream still has a checksum to pass.

#![cfg(target_arch = "x86_64")]

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
/// The most times that one of those codes repeats a length.
const REPEATED_MAX: usize = 138;

/// Streams whose blocks are shorter than this on average are left to libdeflate, which makes its
/// tables sooner: a body full of empty blocks, of ten bits each, would cost seconds.
const BLOCK_MIN_BYTES: usize = 2048;
/// This many blocks are taken whatever their length.
const FEW_BLOCKS: usize = 16;

/// A decoder, with the tables of a block.
pub struct Inflater {
    tables: Box<Tables>,
}

impl Inflater {
    /// `None` if this processor lacks the instructions.
    pub fn new() -> Option<Self> {
        let can = is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("avx2");
        can.then(|| Inflater { tables: Tables::new() })
    }

    /// Fills `output` exactly with the unpacked stream and returns how many bytes of `input` the
    /// stream has; bytes after it are ignored. `None`: the stream is not taken, though it may be
    /// good, and the content of `output` is undefined.
    pub fn inflate(&mut self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        // SAFETY: there is an inflater only where the processor has these features.
        #[expect(
            unsafe_code,
            reason = "the instructions that shift by any register save a twentieth"
        )]
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

/// A stored block (RFC 1951, 3.2.4). Returns its length in bytes.
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
        let entry = tables.code_lengths.get(bits.ahead);
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
