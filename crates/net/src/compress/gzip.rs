//! Unpacking gzip (RFC 1952) and zlib (RFC 1950).
//!
//! libdeflate inflates a whole buffer more than twice as fast as a streaming decoder does (see
//! `examples/compression_speed.rs` and `docs/decisions/010-inflater.md`). It does the common case: one member whose
//! trailer tells its size honestly. Everything else (several members, a trailer that lies, trailing bytes) goes through
//! the streaming decoder, which needs no claim.

use std::cell::RefCell;

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{DecompressionError, Decompressor};
use memchr::memmem;
use sluice_otlp::Encoding;

use super::{DecompressError, Output, Stop};

/// A deflate block of only the longest matches: 258 bytes for two bits.
const DEFLATE_RATIO_MAX: usize = 1032;

/// Header (10) and trailer (8) of a member without optional fields, and an empty deflate block (2).
const MEMBER_MIN_BYTES: usize = 20;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    static GZIP_STREAM: RefCell<Decompress> = RefCell::new(Decompress::new_gzip(15));
}

const fn corrupt(reason: &'static str) -> Stop {
    Stop::Failed(DecompressError::Corrupt { encoding: Encoding::Gzip, reason })
}

/// How many members an input has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Members {
    /// And nothing behind it.
    One,
    Several,
}

pub(super) fn decompress(input: &[u8], limit_bytes: usize, output: &mut Output<'_>) -> Result<Members, Stop> {
    let Some(claimed) = claimed_len_bytes(input).filter(|claimed| *claimed <= limit_bytes) else {
        return decompress_stream(input, limit_bytes, output);
    };
    let room = output.room(claimed)?;
    match DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.gzip_decompress(input, room)) {
        Ok(length) if length == claimed && is_single_member(input, length) => {
            output.filled = length;
            Ok(Members::One)
        }
        Err(DecompressionError::BadData) => Err(corrupt("the stream is malformed or its checksum does not match")),
        Ok(_) | Err(DecompressionError::InsufficientSpace) => decompress_stream(input, limit_bytes, output),
    }
}

/// The size in the trailer (ISIZE, modulo 2^32), if deflate could reach it from this many bytes.
pub(super) fn claimed_len_bytes(input: &[u8]) -> Option<usize> {
    if input.len() < MEMBER_MIN_BYTES {
        return None;
    }
    let claimed = u32::from_le_bytes(*input.last_chunk::<4>()?) as usize;
    (claimed <= input.len().saturating_mul(DEFLATE_RATIO_MAX)).then_some(claimed)
}

/// True if the first member, which unpacked to `length` bytes, ends where the input ends.
///
/// The decoder has verified that the member's trailer holds `length`. If those four bytes occur nowhere in the input
/// but at its very end, the trailer is there. (Chance occurrences make this answer no, which costs only speed.)
fn is_single_member(input: &[u8], length: usize) -> bool {
    let Ok(length) = u32::try_from(length) else { return false };
    let size = length.to_le_bytes();
    input.len() >= MEMBER_MIN_BYTES
        && input.ends_with(&size)
        && memmem::find(&input[MEMBER_MIN_BYTES - size.len()..input.len() - 1], &size).is_none()
}

/// Any number of members, each verified; the buffer grows with what is really there.
fn decompress_stream(input: &[u8], limit_bytes: usize, output: &mut Output<'_>) -> Result<Members, Stop> {
    if input.is_empty() {
        return Err(corrupt("it is empty"));
    }
    GZIP_STREAM.with_borrow_mut(|stream| {
        let mut consumed = 0;
        let mut members = 0;
        output.filled = 0;
        while consumed < input.len() {
            *stream = Decompress::new_gzip(15);
            members += 1;
            consumed += inflate_one(stream, &input[consumed..], limit_bytes, output).map_err(|error| match error {
                StreamError::TooLarge => DecompressError::TooLarge { limit_bytes }.into(),
                StreamError::NotAdmitted => Stop::NotAdmitted,
                StreamError::Truncated => corrupt("it ends early"),
                StreamError::Malformed => corrupt("the stream is malformed or its checksum does not match"),
            })?;
        }
        Ok(if members == 1 { Members::One } else { Members::Several })
    })
}

pub(super) fn decompress_zlib(input: &[u8], limit_bytes: usize, output: &mut Output<'_>) -> Result<(), Stop> {
    let mut stream = Decompress::new(true);
    let consumed = inflate_one(&mut stream, input, limit_bytes, output).map_err(|error| match error {
        StreamError::TooLarge => DecompressError::TooLarge { limit_bytes }.into(),
        StreamError::NotAdmitted => Stop::NotAdmitted,
        StreamError::Truncated => corrupt("the zlib stream ends early"),
        StreamError::Malformed => corrupt("the zlib stream is malformed or its checksum does not match"),
    })?;
    if consumed < input.len() { Err(corrupt("bytes follow the zlib stream")) } else { Ok(()) }
}

enum StreamError {
    TooLarge,
    NotAdmitted,
    Truncated,
    Malformed,
}

/// Inflates one stream, appending to `output`. Returns how many bytes of the input it took.
fn inflate_one(
    stream: &mut Decompress,
    input: &[u8],
    limit_bytes: usize,
    output: &mut Output<'_>,
) -> Result<usize, StreamError> {
    let base = output.filled;
    // One byte more than the limit, so that "exactly the limit" and "more" can be told apart.
    let ceiling = limit_bytes.saturating_add(1);
    let mut size = output.bytes.len().min(ceiling).max(base);
    loop {
        if output.filled == size {
            size = Output::grown(size, input.len().saturating_mul(4), ceiling);
        }
        let consumed = stream.total_in() as usize;
        let filled = output.filled;
        let room = &mut output.room(size).map_err(|_| StreamError::NotAdmitted)?[filled..];
        let status = stream.decompress(&input[consumed..], room, FlushDecompress::None);
        output.filled = base + stream.total_out() as usize;
        let stuck = stream.total_in() as usize == consumed && output.filled == filled;
        if output.filled > limit_bytes {
            return Err(StreamError::TooLarge);
        }
        match status {
            Ok(Status::StreamEnd) => return Ok(stream.total_in() as usize),
            Ok(_) if stuck && output.filled < size => return Err(StreamError::Truncated),
            Ok(_) => {}
            Err(_) => return Err(StreamError::Malformed),
        }
    }
}
