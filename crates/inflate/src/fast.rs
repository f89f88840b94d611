//! The symbols of a block while neither the input nor the output is near its end, so that one check
//! of each bound is enough for a whole step.
//!
//! The only module with pointers. With slices the same steps take up to a tenth longer, because the
//! compiler runs out of registers.
#![allow(unsafe_code)]

use std::ptr::copy_nonoverlapping;

use super::bits::Bits;
use super::block::{extra_bits, is_end_of_block, match_distance, match_length};
use super::tables::{END, LITERALS, SPECIAL, TWO, Tables};

/// A step fills twice: it reads eight bytes, moves on by seven at most, and reads eight again.
const INPUT_MARGIN: usize = 16;
/// A step writes at most five literals and the longest match, and three pieces beyond its end.
const OUTPUT_MARGIN: usize = 5 + 258 + 3 * PIECE;
/// Most matches of telemetry are no longer than three of these.
const PIECE: usize = 8;

/// Why the steps ended.
pub(super) enum Stop {
    EndOfBlock,
    Malformed,
    /// The end of the input or of the output is near.
    NearAnEnd,
}

/// Bits and bytes by pointers: see [`Bits`].
struct Steps {
    next: *const u8,
    ahead: u64,
    /// Only the lowest six bits count.
    count: u32,
    put: *mut u8,
}

/// Unpacks from `bits` to `output` behind `filled`, and moves both on.
#[target_feature(enable = "bmi1,bmi2,lzcnt,avx2")]
pub(super) fn unpack(
    tables: &Tables,
    bits: &mut Bits<'_>,
    output: &mut [u8],
    filled: &mut usize,
) -> Stop {
    let (Some(input_last), Some(output_last)) =
        (bits.input.len().checked_sub(INPUT_MARGIN), output.len().checked_sub(OUTPUT_MARGIN))
    else {
        return Stop::NearAnEnd;
    };
    if bits.next > input_last || *filled > output_last {
        return Stop::NearAnEnd;
    }
    let (input, output) = (bits.input.as_ptr(), output.as_mut_ptr());
    // SAFETY: a step begins with `next` at most at `input_last` and `put` at most at `output_last`,
    // from where it stays within the margins, and it reads back no further than to the begin of the
    // output.
    unsafe {
        let (input_last, output_last) = (input.add(input_last), output.add(output_last));
        let mut steps = Steps {
            next: input.add(bits.next),
            ahead: bits.ahead,
            count: bits.count,
            put: output.add(*filled),
        };
        let stop = steps.run(tables, output, input_last, output_last);
        bits.next = steps.next.offset_from_unsigned(input);
        (bits.ahead, bits.count) = (steps.ahead, steps.count & 63);
        *filled = steps.put.offset_from_unsigned(output);
        stop
    }
}

impl Steps {
    /// # Safety
    /// `next..=input_last` plus [`INPUT_MARGIN`] must be readable, and `output..=output_last` plus
    /// [`OUTPUT_MARGIN`] writable, with `put` in it.
    #[target_feature(enable = "bmi1,bmi2,lzcnt,avx2")]
    unsafe fn run(
        &mut self,
        tables: &Tables,
        output: *const u8,
        input_last: *const u8,
        output_last: *mut u8,
    ) -> Stop {
        // A local copy, to which there is no pointer, can stay in registers.
        let mut at = Steps { ..*self };
        // SAFETY: see `unpack`, and the margins for what a step reads and writes.
        let stop = unsafe {
            at.fill();
            // Looked up before the bits are taken, to start the load as early as possible.
            let mut entry = tables.literals.get(at.ahead);
            loop {
                debug_assert!(
                    at.next <= input_last.add(INPUT_MARGIN)
                        && at.put <= output_last.add(OUTPUT_MARGIN)
                );
                if at.next > input_last || at.put > output_last {
                    break Stop::NearAnEnd;
                }
                let mut begin = at.ahead;
                at.skip(entry);
                if entry & LITERALS != 0 {
                    let literals = entry;
                    (entry, begin) = (tables.literals.get(at.ahead), at.ahead);
                    at.put_literals(literals);
                    at.skip(entry);
                    if entry & LITERALS != 0 {
                        let literals = entry;
                        (entry, begin) = (tables.literals.get(at.ahead), at.ahead);
                        at.put_literals(literals);
                        at.skip(entry);
                        if entry & LITERALS != 0 {
                            let literals = entry;
                            entry = tables.literals.get(at.ahead);
                            at.fill();
                            at.put_literals(literals);
                            continue;
                        }
                    }
                }
                if entry & SPECIAL != 0 {
                    if entry & END == 0 {
                        (entry, begin) = (tables.literals.get_following(entry, at.ahead), at.ahead);
                        at.skip(entry);
                    }
                    if entry & SPECIAL != 0 {
                        break if is_end_of_block(entry) {
                            Stop::EndOfBlock
                        } else {
                            Stop::Malformed
                        };
                    }
                    if entry & LITERALS != 0 {
                        at.put_literals(entry);
                        at.fill();
                        entry = tables.literals.get(at.ahead);
                        continue;
                    }
                }
                let mut distance = tables.distances.get(at.ahead);
                at.put_literal_before_match(entry);
                at.fill();
                let length = match_length(entry, extra_bits(entry, begin));
                if distance & SPECIAL != 0 {
                    if distance & END == 0 {
                        at.skip(distance);
                        distance = tables.distances.get_following(distance, at.ahead);
                    }
                    if distance & SPECIAL != 0 {
                        break Stop::Malformed;
                    }
                }
                let begin = at.ahead;
                at.skip(distance);
                entry = tables.literals.get(at.ahead);
                let distance = match_distance(distance, extra_bits(distance, begin));
                at.fill();
                if distance > at.put.offset_from_unsigned(output) {
                    break Stop::Malformed;
                }
                at.put_match(distance, length);
            }
        };
        *self = at;
        stop
    }

    #[inline(always)]
    unsafe fn fill(&mut self) {
        // SAFETY: `next` is within the margin.
        let bytes = unsafe { self.next.cast::<[u8; 8]>().read() };
        self.ahead |= u64::from_le_bytes(bytes) << (self.count & 63);
        // SAFETY: as many bytes were just read.
        self.next = unsafe { self.next.add(7).sub((self.count >> 3 & 7) as usize) };
        self.count |= 56;
    }

    #[inline(always)]
    fn skip(&mut self, entry: u32) {
        // A shift takes the lowest six bits, of which the highest is clear in every entry.
        self.ahead >>= entry & 63;
        self.count = self.count.wrapping_sub(entry & 31);
    }

    /// Writes two bytes, even if the entry has one literal.
    #[inline(always)]
    unsafe fn put_literals(&mut self, entry: u32) {
        // SAFETY: `put` is within the margin.
        unsafe {
            self.put.cast::<[u8; 2]>().write(((entry >> 16) as u16).to_le_bytes());
            self.put = self.put.add(1 + usize::from(entry & TWO != 0));
        }
    }

    /// Writes one byte, even if the entry has no literal.
    #[inline(always)]
    unsafe fn put_literal_before_match(&mut self, entry: u32) {
        // SAFETY: `put` is within the margin.
        unsafe {
            self.put.write((entry >> 24) as u8);
            self.put = self.put.add(usize::from(entry & TWO != 0));
        }
    }

    /// Writes up to three pieces beyond the match.
    #[inline(always)]
    unsafe fn put_match(&mut self, distance: usize, length: usize) {
        // SAFETY: `distance` bytes were written before `put`, and `put` is within the margin.
        unsafe {
            let (mut from, mut to) = (self.put.sub(distance).cast_const(), self.put);
            self.put = to.add(length);
            if distance < PIECE {
                // The match overlaps what it writes.
                while to < self.put {
                    *to = *from;
                    (from, to) = (from.add(1), to.add(1));
                }
                return;
            }
            for piece in 0..3 {
                copy_piece(from.add(piece * PIECE), to.add(piece * PIECE));
            }
            if length > 3 * PIECE {
                (from, to) = (from.add(3 * PIECE), to.add(3 * PIECE));
                while to < self.put {
                    copy_piece(from, to);
                    (from, to) = (from.add(PIECE), to.add(PIECE));
                }
            }
        }
    }
}

/// The next piece may read what this one writes; the same piece may not.
#[inline(always)]
unsafe fn copy_piece(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's; they are at least a piece apart.
    unsafe { copy_nonoverlapping(from, to, PIECE) };
}
