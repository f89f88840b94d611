//! Snappy. Two formats share the name: the framing format (what gRPC peers send) and the bare block (what HTTP's
//! `content-encoding: snappy` means elsewhere). Receiving looks which one it is, as the Collector does.

use std::io::{Read, Write};

use bytes::Bytes;
use sluice_otlp::Encoding;

use super::{CompressError, DecompressError, Output, Stop};

/// The stream identifier that every framed stream starts with.
const STREAM_IDENTIFIER: [u8; 10] = [0xff, 0x06, 0x00, 0x00, b's', b'N', b'a', b'P', b'p', b'Y'];

/// A copy of 64 bytes takes three: no block grows by more.
const BLOCK_RATIO_MAX: usize = 22;

const fn corrupt(reason: &'static str) -> Stop {
    Stop::Failed(DecompressError::Corrupt { encoding: Encoding::Snappy, reason })
}

pub(super) fn claimed_len_bytes(input: &[u8]) -> Option<usize> {
    if input.starts_with(&STREAM_IDENTIFIER) {
        return None;
    }
    let claimed = snap::raw::decompress_len(input).ok()?;
    (claimed <= input.len().saturating_mul(BLOCK_RATIO_MAX)).then_some(claimed)
}

pub(super) fn decompress(input: &[u8], limit_bytes: usize, output: &mut Output<'_>) -> Result<(), Stop> {
    // Encoders of the framing format write nothing at all for an empty message.
    if input.is_empty() || input.starts_with(&STREAM_IDENTIFIER) {
        decompress_framed(input, limit_bytes, output)
    } else {
        decompress_block(input, limit_bytes, output)
    }
}

fn decompress_block(input: &[u8], limit_bytes: usize, output: &mut Output<'_>) -> Result<(), Stop> {
    let claimed = snap::raw::decompress_len(input).map_err(|_| corrupt("its length is malformed"))?;
    if claimed > limit_bytes {
        return Err(DecompressError::TooLarge { limit_bytes }.into());
    }
    if claimed > input.len().saturating_mul(BLOCK_RATIO_MAX) {
        return Err(corrupt("it claims a length that it cannot reach"));
    }
    output.filled = snap::raw::Decoder::new()
        .decompress(input, output.room(claimed)?)
        .map_err(|_| corrupt("the block is malformed"))?;
    Ok(())
}

fn decompress_framed(input: &[u8], limit_bytes: usize, output: &mut Output<'_>) -> Result<(), Stop> {
    let mut decoder = snap::read::FrameDecoder::new(input);
    // One byte more than the limit, so that "exactly the limit" and "more" can be told apart.
    let ceiling = limit_bytes.saturating_add(1);
    let guess = input.len().saturating_mul(4);
    let mut size = output.bytes.len().max(guess).min(ceiling);
    output.filled = 0;
    loop {
        let filled = output.filled;
        let read = decoder
            .read(&mut output.room(size)?[filled..])
            .map_err(|_| corrupt("a frame is malformed or its checksum does not match"))?;
        output.filled += read;
        if output.filled > limit_bytes {
            return Err(DecompressError::TooLarge { limit_bytes }.into());
        }
        if read == 0 {
            return Ok(());
        }
        if output.filled == size {
            size = Output::grown(size, guess, ceiling);
        }
    }
}

pub(super) fn compress_framed(chunks: &[Bytes]) -> Result<Bytes, CompressError> {
    let refused = |reason: String| CompressError { encoding: Encoding::Snappy, reason };
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    for chunk in chunks {
        encoder.write_all(chunk).map_err(|error| refused(error.to_string()))?;
    }
    encoder.into_inner().map(Bytes::from).map_err(|error| refused(error.to_string()))
}

/// Packs the concatenation of `chunks` into one bare block: HTTP's `content-encoding: snappy`.
pub fn compress_block(chunks: &[Bytes]) -> Result<Bytes, CompressError> {
    snap::raw::Encoder::new()
        .compress_vec(&super::joined(chunks))
        .map(Bytes::from)
        .map_err(|error| CompressError { encoding: Encoding::Snappy, reason: error.to_string() })
}
