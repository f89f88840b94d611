//! Packing and unpacking of whole payloads.
//!
//! Unpacking is where a small hostile request could become a large allocation, so every function here takes a limit on
//! the unpacked size, stops at it, and never allocates what a header merely claims. Contexts are reused per thread.

mod deflate;
mod gzip;
#[cfg(target_arch = "x86_64")]
pub mod inflate;
mod lz4;
mod snappy;
mod zstd;

use std::cell::RefCell;

use bytes::Bytes;
use sluice_otlp::Encoding;

use self::deflate::Wrapping;
use self::gzip::Members;
pub use self::snappy::compress_block as compress_snappy_block;

/// The largest zstd window that is accepted and passed on: what every zstd decoder has to support (RFC 8878, 3.1.1.1.2).
pub const ZSTD_WINDOW_LIMIT_BYTES: u64 = 8 << 20;

/// Scratch buffers above this size are given back to the allocator after use.
const SCRATCH_KEPT_BYTES: usize = 4 << 20;

/// Why a payload could not be unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    #[error("the message is larger than {limit_bytes} bytes after decompression")]
    TooLarge { limit_bytes: usize },
    #[error("the {encoding} data is corrupt: {reason}", encoding = .encoding.as_str())]
    Corrupt { encoding: Encoding, reason: &'static str },
    #[error("the lz4 data is corrupt: {reason}")]
    CorruptLz4 { reason: &'static str },
    /// Well-formed, but outside of what is taken (a zstd dictionary or a huge window).
    #[error("the {encoding} data cannot be decoded here: {reason}", encoding = .encoding.as_str())]
    Unsupported { encoding: Encoding, reason: &'static str },
}

/// Why a payload could not be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot compress with {encoding}: {reason}", encoding = .encoding.as_str())]
pub struct CompressError {
    pub encoding: Encoding,
    pub reason: String,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An unpacked payload, for as long as it is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Unpacked<'a> {
    pub bytes: &'a [u8],
    /// True if its packed form may be sent on as it is to any receiver: exactly one gzip member, or exactly one zstd frame without
    /// dictionary and with a window of at most 8 MiB.
    pub is_passable: bool,
}

/// A buffer that is filled up to some length. It is never shrunk while it lives, so that reuse costs no zeroing.
#[derive(Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    filled: usize,
}

impl Output {
    fn reusing(bytes: Vec<u8>) -> Self {
        Output { bytes, filled: 0 }
    }

    /// Makes room for `length` bytes in all and returns the whole buffer up to there.
    fn room(&mut self, length: usize) -> &mut [u8] {
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        &mut self.bytes[..length]
    }

    fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    fn into_bytes(mut self) -> Bytes {
        self.bytes.truncate(self.filled);
        if self.bytes.capacity() - self.filled > self.filled / 8 {
            self.bytes.shrink_to_fit();
        }
        Bytes::from(self.bytes)
    }

    /// The next size to try when the buffer is full: doubles, starts from a guess, ends at `limit_bytes`.
    fn grown(current: usize, guess: usize, limit_bytes: usize) -> usize {
        current.saturating_mul(2).max(guess).max(4096).min(limit_bytes)
    }
}

/// Unpacks a whole payload into memory of its own. `limit_bytes` bounds the unpacked size.
pub fn decompress(encoding: Encoding, input: &[u8], limit_bytes: usize) -> Result<Bytes, DecompressError> {
    let mut output = Output::default();
    unpack(encoding, input, limit_bytes, &mut output)?;
    Ok(output.into_bytes())
}

/// Unpacks a payload into a buffer that belongs to this thread and shows it to `look`: for payloads that are validated
/// and then travel on in their compressed form. Costs no allocation once the thread is warm.
pub fn with_decompressed<T>(
    encoding: Encoding,
    input: &[u8],
    limit_bytes: usize,
    look: impl FnOnce(Unpacked<'_>) -> T,
) -> Result<T, DecompressError> {
    if encoding == Encoding::Identity {
        return if input.len() > limit_bytes {
            Err(DecompressError::TooLarge { limit_bytes })
        } else {
            Ok(look(Unpacked { bytes: input, is_passable: true }))
        };
    }
    // Taken out of its cell, so that `look` may come back here.
    let mut output = Output::reusing(SCRATCH.with(RefCell::take));
    let result = unpack(encoding, input, limit_bytes, &mut output)
        .map(|is_passable| look(Unpacked { bytes: output.filled(), is_passable }));
    if output.bytes.len() <= SCRATCH_KEPT_BYTES {
        SCRATCH.with(|cell| cell.replace(output.bytes));
    }
    result
}

/// Returns whether the packed form is passable: see [`Unpacked`].
fn unpack(encoding: Encoding, input: &[u8], limit_bytes: usize, output: &mut Output) -> Result<bool, DecompressError> {
    match encoding {
        Encoding::Identity => {
            if input.len() > limit_bytes {
                return Err(DecompressError::TooLarge { limit_bytes });
            }
            output.room(input.len()).copy_from_slice(input);
            output.filled = input.len();
            Ok(true)
        }
        Encoding::Gzip => Ok(gzip::decompress(input, limit_bytes, output)? == Members::One),
        Encoding::Zstd => {
            zstd::decompress(input, limit_bytes, output)?;
            Ok(zstd::is_single_plain_frame(input))
        }
        Encoding::Snappy => {
            snappy::decompress(input, limit_bytes, output)?;
            // Two formats share the name: what one receiver takes another refuses.
            Ok(false)
        }
    }
}

/// Unpacks a zlib stream (RFC 1950): what `content-encoding: deflate` and `zlib` mean over HTTP.
pub fn decompress_zlib(input: &[u8], limit_bytes: usize) -> Result<Bytes, DecompressError> {
    let mut output = Output::default();
    gzip::decompress_zlib(input, limit_bytes, &mut output)?;
    Ok(output.into_bytes())
}

/// Unpacks LZ4 frames, for `content-encoding: lz4`.
pub fn decompress_lz4(input: &[u8], limit_bytes: usize) -> Result<Bytes, DecompressError> {
    let mut output = Output::default();
    lz4::decompress(input, limit_bytes, &mut output)?;
    Ok(output.into_bytes())
}

/// The unpacked size that a payload claims, if it claims one that its length makes plausible. A hint for admission.
pub fn claimed_len_bytes(encoding: Encoding, input: &[u8]) -> Option<usize> {
    match encoding {
        Encoding::Identity => Some(input.len()),
        Encoding::Gzip => gzip::claimed_len_bytes(input),
        Encoding::Zstd => zstd::claimed_len_bytes(input),
        Encoding::Snappy => snappy::claimed_len_bytes(input),
    }
}

/// Packs the concatenation of `chunks`. `level` is the encoding's own scale (gzip 1–9, zstd 1–22); `None` is its
/// fastest sensible level. Snappy means the framing format, which gRPC peers and Collectors take.
pub fn compress(encoding: Encoding, chunks: &[Bytes], level: Option<i32>) -> Result<Bytes, CompressError> {
    match encoding {
        Encoding::Identity => Ok(joined(chunks)),
        Encoding::Gzip => deflate::compress(&joined(chunks), Wrapping::Gzip, level),
        Encoding::Zstd => zstd::compress(chunks, level),
        Encoding::Snappy => snappy::compress_framed(chunks),
    }
}

/// Packs into a zlib stream, for `content-encoding: deflate` and `zlib`.
pub fn compress_zlib(chunks: &[Bytes], level: Option<i32>) -> Result<Bytes, CompressError> {
    deflate::compress(&joined(chunks), Wrapping::Zlib, level)
}

/// Packs into an LZ4 frame, for `content-encoding: lz4`.
pub fn compress_lz4(chunks: &[Bytes]) -> std::io::Result<Bytes> {
    lz4::compress(chunks)
}

/// The chunks as one buffer: shared if it is one already, copied otherwise.
fn joined(chunks: &[Bytes]) -> Bytes {
    match chunks {
        [] => Bytes::new(),
        [single] => single.clone(),
        several => {
            let mut bytes = Vec::with_capacity(several.iter().map(Bytes::len).sum());
            several.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
            Bytes::from(bytes)
        }
    }
}

#[cfg(test)]
mod tests;
