//! Snappy. Two formats share the name: the framing format (sent by gRPC peers) and the bare block
//! (HTTP's `content-encoding: snappy` elsewhere). Receiving looks which one it is, as the Collector
//! does.

use std::fmt::Display;
use std::io::{Read, Write};

use bytes::Bytes;

use super::{CompressError, DecompressError, InflateError, Output};

/// The stream identifier that every framed stream starts with.
const STREAM_IDENTIFIER: [u8; 10] = [0xff, 0x06, 0x00, 0x00, b's', b'N', b'a', b'P', b'p', b'Y'];

/// A copy of 64 bytes takes three: no block grows by more.
const BLOCK_RATIO_MAX: usize = 22;

const MALFORMED: DecompressError = DecompressError::Corrupt {
    format: "snappy",
    reason: "a block is malformed or its checksum does not match",
};

/// The unpacked size of all blocks, if they are well-formed as far as their headers tell.
pub(super) fn claimed_len_bytes(input: &[u8]) -> Option<usize> {
    match is_framed(input) {
        true => framed_len_bytes(input),
        false => block_len_bytes(input),
    }
}

/// Encoders of the framing format write nothing at all for an empty message.
fn is_framed(input: &[u8]) -> bool {
    input.is_empty() || input.starts_with(&STREAM_IDENTIFIER)
}

fn block_len_bytes(block: &[u8]) -> Option<usize> {
    let claimed = snap::raw::decompress_len(block).ok()?;
    (claimed <= block.len().saturating_mul(BLOCK_RATIO_MAX)).then_some(claimed)
}

/// A chunk is a type, the length of its data in three bytes, and the data: a checksum and a block,
/// a checksum and bytes, or anything that is to be passed over.
fn framed_len_bytes(mut input: &[u8]) -> Option<usize> {
    const COMPRESSED: u8 = 0;
    const UNCOMPRESSED: u8 = 1;
    const CHECKSUM_BYTES: usize = 4;
    let mut length = 0;
    while let Some((&[kind, a, b, c], rest)) = input.split_first_chunk() {
        let (data, after) = rest.split_at_checked(u32::from_le_bytes([a, b, c, 0]) as usize)?;
        length += match kind {
            COMPRESSED => block_len_bytes(data.get(CHECKSUM_BYTES..)?)?,
            UNCOMPRESSED => data.len().checked_sub(CHECKSUM_BYTES)?,
            _ => 0,
        };
        input = after;
    }
    input.is_empty().then_some(length)
}

pub(super) fn decompress<R>(
    input: &[u8],
    output: &mut Output<'_, R>,
) -> Result<(), InflateError<R>> {
    let claimed = claimed_len_bytes(input).ok_or(MALFORMED)?;
    let room = output.room(claimed)?;
    if is_framed(input) {
        let mut decoder = snap::read::FrameDecoder::new(input);
        decoder.read_exact(room).map_err(|_| MALFORMED)?;
        // Checks that the payload ends here.
        if decoder.read(&mut [0]).map_err(|_| MALFORMED)? > 0 {
            return Err(MALFORMED.into());
        }
    } else {
        snap::raw::Decoder::new().decompress(input, room).map_err(|_| MALFORMED)?;
    }
    output.filled = claimed;
    Ok(())
}

pub(super) fn compress_framed(chunks: &[Bytes]) -> Result<Bytes, CompressError> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    for chunk in chunks {
        encoder.write_all(chunk).map_err(refused)?;
    }
    encoder.into_inner().map(Bytes::from).map_err(refused)
}

/// Packs the concatenation of `chunks` into one bare block: HTTP's `content-encoding: snappy`.
pub fn compress_block(chunks: &[Bytes]) -> Result<Bytes, CompressError> {
    let packed = snap::raw::Encoder::new().compress_vec(&super::joined(chunks));
    packed.map(Bytes::from).map_err(refused)
}

fn refused(error: impl Display) -> CompressError {
    CompressError("snappy", error.to_string())
}
