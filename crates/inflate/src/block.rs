//! The symbols of a block (RFC 1951, 3.2.3), up to its end.

use super::bits::{Bits, low};
use super::fast::{self, Stop};
use super::tables::{END, LITERALS, SPECIAL, TWO, Tables};

/// Unpacks to `output` from where it is filled; returns the new length. `None` if the block is
/// malformed or has more than fits.
#[target_feature(enable = "bmi1,bmi2,lzcnt,avx2")]
// Inlined, its inner loop would have fewer registers.
#[inline(never)]
pub(super) fn unpack(
    tables: &Tables,
    bits: &mut Bits<'_>,
    output: &mut [u8],
    mut filled: usize,
) -> Option<usize> {
    match fast::unpack(tables, bits, output, &mut filled) {
        Stop::EndOfBlock => Some(filled),
        Stop::Malformed => None,
        Stop::NearAnEnd => {
            while one(tables, bits, output, &mut filled)? {}
            Some(filled)
        }
    }
}

/// Unpacks one entry, with every bound checked. False: the block is at its end.
fn one(
    tables: &Tables,
    bits: &mut Bits<'_>,
    output: &mut [u8],
    filled: &mut usize,
) -> Option<bool> {
    bits.fill();
    let mut entry = tables.literals.get(bits.ahead);
    if entry & (SPECIAL | END) == SPECIAL {
        bits.skip(entry);
        entry = tables.literals.get_following(entry, bits.ahead);
    }
    let extra = extra_bits(entry, bits.ahead);
    bits.skip(entry);
    if entry & SPECIAL != 0 {
        return is_end_of_block(entry).then_some(false);
    }
    let mut put = |byte: u32| {
        *output.get_mut(*filled)? = byte as u8;
        *filled += 1;
        Some(())
    };
    if entry & LITERALS != 0 {
        put(entry >> 16)?;
        if entry & TWO != 0 {
            put(entry >> 24)?;
        }
        return Some(true);
    }
    if entry & TWO != 0 {
        put(entry >> 24)?;
    }
    let length = match_length(entry, extra);
    bits.fill();
    let mut entry = tables.distances.get(bits.ahead);
    if entry & (SPECIAL | END) == SPECIAL {
        bits.skip(entry);
        entry = tables.distances.get_following(entry, bits.ahead);
    }
    if entry & SPECIAL != 0 {
        return None;
    }
    let distance = match_distance(entry, extra_bits(entry, bits.ahead));
    bits.skip(entry);
    let (from, end) = (filled.checked_sub(distance)?, *filled + length);
    if end > output.len() {
        return None;
    }
    // The match may overlap what it writes.
    (0..length).for_each(|at| output[*filled + at] = output[from + at]);
    *filled = end;
    Some(true)
}

/// Whether an entry with [`SPECIAL`] and [`END`] is the end of the block. Else no code begins so.
#[inline(always)]
pub(super) fn is_end_of_block(entry: u32) -> bool {
    entry >> 16 == 0
}

/// The extra bits of an entry, out of the bits that begin with its code.
#[inline(always)]
pub(super) fn extra_bits(entry: u32, bits: u64) -> usize {
    (low(bits, entry & 31) >> (entry >> 8 & 15)) as usize
}

#[inline(always)]
pub(super) fn match_length(entry: u32, extra: usize) -> usize {
    3 + (entry >> 16 & 0xff) as usize + extra
}

#[inline(always)]
pub(super) fn match_distance(entry: u32, extra: usize) -> usize {
    (entry >> 16) as usize + extra
}
