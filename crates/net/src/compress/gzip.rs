//! Unpacking gzip (RFC 1952) and zlib (RFC 1950).
//!
//! Decoders of whole buffers are about twice as fast as a streaming decoder (see
//! `docs/decisions/010-inflater.md`). They do the common case, one member whose trailer tells its
//! size honestly: `sluice_inflate` where the processor can, libdeflate otherwise. Everything else
//! (several members, a trailer that lies, trailing bytes, zlib) goes through the streaming decoder,
//! which needs no claim.

use std::cell::RefCell;

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{Crc, DecompressionError, Decompressor};
use memchr::memmem;

use super::deflate::Wrapping;
use super::output::Pieces;
use super::{Ask, DecompressError, InflateError, Output};

/// A deflate block of only the longest matches: 258 bytes for two bits.
const DEFLATE_RATIO_MAX: usize = 1032;

/// Header (10) and trailer (8) of a member without optional fields, and an empty deflate block (2).
const MEMBER_MIN_BYTES: usize = 20;

/// A member costs microseconds even if it contains little. Honest senders need at most those of
/// bgzip, which puts 64 KiB into each: 1,030 for the largest request by default.
const MEMBERS_MAX: usize = 2_048;

/// A block costs a microsecond even if it contains little, and takes ten bytes. `sluice_inflate`
/// gives up on such streams; other decoders walk this many bytes of them without asking.
const BLOCKS_UNASKED_BYTES: usize = 16 << 10;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

const fn corrupt(wrapping: Wrapping, reason: &'static str) -> DecompressError {
    DecompressError::Corrupt { format: wrapping.name(), reason }
}

const TOO_MANY_MEMBERS: DecompressError =
    DecompressError::Unsupported { format: "gzip", reason: "it has more than 2048 members" };

/// Returns whether it is exactly one member.
pub(super) fn decompress<R>(
    input: &[u8],
    output: &mut Output<'_, R>,
) -> Result<bool, InflateError<R>> {
    let claimed = claimed_len_bytes(input);
    if let Some(claimed) = claimed.filter(|claimed| *claimed <= output.limit_bytes) {
        if inflates_whole(input, output.room(claimed)?) {
            output.filled = claimed;
            return Ok(true);
        }
        ask_about_blocks(input, output)?;
        let room = &mut output.bytes[..claimed];
        let inflated =
            DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.gzip_decompress(input, room));
        match inflated {
            Ok(length) if length == claimed && is_single_member(input, length) => {
                output.filled = length;
                return Ok(true);
            }
            Err(DecompressionError::BadData) => {
                return Err(corrupt(Wrapping::Gzip, MALFORMED).into());
            }
            Ok(_) | Err(DecompressionError::InsufficientSpace) => {}
        }
    }
    if input.is_empty() {
        return Err(corrupt(Wrapping::Gzip, "it is empty").into());
    }
    // Several members take long, even if they contain little.
    output.ask(Ask::Measure)?;
    let mut members = Inflate::new(Wrapping::Gzip, input);
    output.fill_from(&mut members)?;
    Ok(members.begun == 1)
}

/// Whether the input is one member that unpacks to exactly `room`, and is unpacked.
fn inflates_whole(input: &[u8], room: &mut [u8]) -> bool {
    let Some((stream, trailer)) = stream_and_trailer(input) else { return false };
    if inflate(stream, room) != Some(stream.len()) {
        return false;
    }
    let mut checksum = Crc::new();
    checksum.update(room);
    trailer.first_chunk() == Some(&checksum.sum().to_le_bytes())
}

#[cfg(target_arch = "x86_64")]
fn inflate(stream: &[u8], room: &mut [u8]) -> Option<usize> {
    /// Below this length libdeflate is faster, which makes its tables sooner.
    const LEAST_BYTES: usize = 8 << 10;
    thread_local! {
        static INFLATER: RefCell<Option<sluice_inflate::Inflater>> =
            RefCell::new(sluice_inflate::Inflater::new());
    }
    if stream.len() < LEAST_BYTES {
        return None;
    }
    INFLATER.with_borrow_mut(|inflater| inflater.as_mut()?.inflate(stream, room))
}

#[cfg(not(target_arch = "x86_64"))]
fn inflate(_: &[u8], _: &mut [u8]) -> Option<usize> {
    None
}

/// The stream and trailer of a member without optional fields, the only form that packers of
/// telemetry write (RFC 1952, 2.3).
fn stream_and_trailer(input: &[u8]) -> Option<(&[u8], &[u8])> {
    const HEADER_BYTES: usize = 10;
    const TRAILER_BYTES: usize = 8;
    const MAGIC_DEFLATE_PLAIN: [u8; 4] = [0x1f, 0x8b, 8, 0];
    let (member, trailer) = input.split_at_checked(input.len().checked_sub(TRAILER_BYTES)?)?;
    let stream = member.get(HEADER_BYTES..)?;
    member.starts_with(&MAGIC_DEFLATE_PLAIN).then_some((stream, trailer))
}

pub(super) fn decompress_zlib<R>(
    input: &[u8],
    output: &mut Output<'_, R>,
) -> Result<(), InflateError<R>> {
    ask_about_blocks(input, output)?;
    output.fill_from(&mut Inflate::new(Wrapping::Zlib, input))
}

/// To be called before a decoder that does not give up on blocks that contain little.
fn ask_about_blocks<R>(input: &[u8], output: &mut Output<'_, R>) -> Result<(), InflateError<R>> {
    if input.len() > BLOCKS_UNASKED_BYTES { output.ask(Ask::Measure) } else { Ok(()) }
}

const MALFORMED: &str = "the stream is malformed or its checksum does not match";

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
/// The decoder has verified that the member's trailer contains `length`. If those four bytes occur
/// nowhere in the input but at its very end, the trailer is there. (Chance occurrences make this
/// answer no, which costs only speed.)
fn is_single_member(input: &[u8], length: usize) -> bool {
    let Ok(length) = u32::try_from(length) else { return false };
    let size = length.to_le_bytes();
    input.len() >= MEMBER_MIN_BYTES
        && input.ends_with(&size)
        && memmem::find(&input[MEMBER_MIN_BYTES - size.len()..input.len() - 1], &size).is_none()
}

/// One zlib stream, or any number of gzip members, each verified.
struct Inflate<'a> {
    wrapping: Wrapping,
    input: &'a [u8],
    rest: &'a [u8],
    stream: Decompress,
    is_at_end: bool,
    /// Streams that have begun.
    begun: usize,
}

impl<'a> Inflate<'a> {
    fn new(wrapping: Wrapping, input: &'a [u8]) -> Self {
        let stream = new_stream(wrapping);
        Inflate { wrapping, input, rest: input, stream, is_at_end: false, begun: 1 }
    }
}

fn new_stream(wrapping: Wrapping) -> Decompress {
    match wrapping {
        Wrapping::Gzip => Decompress::new_gzip(15),
        Wrapping::Zlib => Decompress::new(true),
    }
}

impl Pieces for Inflate<'_> {
    fn restart(&mut self) -> Result<(), DecompressError> {
        *self = Inflate::new(self.wrapping, self.input);
        Ok(())
    }

    fn next(&mut self, room: &mut [u8]) -> Result<usize, DecompressError> {
        loop {
            if self.is_at_end {
                match self.wrapping {
                    _ if self.rest.is_empty() => return Ok(0),
                    Wrapping::Zlib => {
                        return Err(corrupt(self.wrapping, "bytes follow its stream"));
                    }
                    Wrapping::Gzip if self.begun == MEMBERS_MAX => return Err(TOO_MANY_MEMBERS),
                    Wrapping::Gzip => {}
                }
                self.stream = new_stream(self.wrapping);
                self.begun += 1;
                self.is_at_end = false;
            }
            let (taken, made) = (self.stream.total_in(), self.stream.total_out());
            let status = self.stream.decompress(self.rest, room, FlushDecompress::None);
            let taken = (self.stream.total_in() - taken) as usize;
            let made = (self.stream.total_out() - made) as usize;
            self.rest = &self.rest[taken..];
            match status {
                Ok(Status::StreamEnd) => self.is_at_end = true,
                Ok(_) if taken == 0 && made == 0 => {
                    return Err(corrupt(self.wrapping, "it ends early"));
                }
                Ok(_) => {}
                Err(_) => return Err(corrupt(self.wrapping, MALFORMED)),
            }
            if made > 0 {
                return Ok(made);
            }
        }
    }
}
