//! Packing and unpacking of whole payloads, and unpacking of gzip that comes in pieces.
//!
//! Unpacking is where a small hostile request could become a large allocation. Every function here
//! takes a limit on the unpacked size, stops at it, and allocates once, exactly the bytes that are
//! needed: a size that the payload cannot reach is not believed, and one that it does not tell is
//! measured. The functions with `admitted` in their name also ask their caller before they
//! allocate. Contexts are reused per thread.

mod deflate;
mod gzip;
mod lz4;
mod output;
mod snappy;
mod stream;
mod zstd;

use std::cell::RefCell;
use std::convert::Infallible;

use bytes::Bytes;
use sluice_otlp::Encoding;

use self::deflate::Wrapping;
pub use self::output::Ask;
use self::output::Output;
pub use self::snappy::compress_block as compress_snappy_block;
pub use self::stream::GunzipStream;

/// The largest zstd window that is accepted and passed on: every zstd decoder has to support it
/// (RFC 8878, 3.1.1.1.2).
pub const ZSTD_WINDOW_LIMIT_BYTES: u64 = 8 << 20;

/// A thread keeps at most this many bytes for its next payload: no request is charged for them.
const SCRATCH_KEPT_BYTES: usize = 1 << 20;

/// The format in which a payload is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Known(Encoding),
    /// A zlib stream (RFC 1950): HTTP's `deflate` and `zlib`. Taken, never passed on.
    Zlib,
    /// LZ4 frames: HTTP's `lz4`. Taken, never passed on.
    Lz4,
}

impl From<Encoding> for Packing {
    fn from(encoding: Encoding) -> Self {
        Packing::Known(encoding)
    }
}

/// Why a payload could not be unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    #[error("the message is larger than {limit_bytes} bytes after decompression")]
    TooLarge { limit_bytes: usize },
    #[error("the {format} data is corrupt: {reason}")]
    Corrupt { format: &'static str, reason: &'static str },
    /// Well-formed, but not supported (a zstd dictionary or a huge window).
    #[error("the {format} data cannot be decoded here: {reason}")]
    Unsupported { format: &'static str, reason: &'static str },
}

/// Why a payload could not be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot compress with {0}: {1}")]
pub struct CompressError(&'static str, String);

/// Why a payload was not unpacked by a function that asks its caller for memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InflateError<R> {
    #[error(transparent)]
    Failed(#[from] DecompressError),
    /// The caller's refusal when it was asked for memory.
    #[error("{0}")]
    Refused(R),
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An unpacked payload, for as long as it is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Unpacked<'a> {
    pub bytes: &'a [u8],
    /// True if its packed form may be sent on as it is to any receiver: exactly one gzip member, or
    /// exactly one zstd frame without dictionary and with a window of at most 8 MiB.
    pub is_passable: bool,
}

/// Unpacks a whole payload into memory of its own. `limit_bytes` bounds the unpacked size.
pub fn decompress(
    packing: impl Into<Packing>,
    input: &[u8],
    limit_bytes: usize,
) -> Result<Bytes, DecompressError> {
    decompress_admitted(packing, input, limit_bytes, &mut admit).map_err(failure)
}

/// As [`decompress`], for payloads whose memory has to be admitted before it is taken.
///
/// `ask` is called before each allocation; its last [`Ask::Hold`] tells the memory of the returned
/// bytes. After an error no memory is in use any more. If it refuses, unpacking ends.
pub fn decompress_admitted<R>(
    packing: impl Into<Packing>,
    input: &[u8],
    limit_bytes: usize,
    ask: &mut dyn FnMut(Ask) -> Result<(), R>,
) -> Result<Bytes, InflateError<R>> {
    let mut output = Output::reusing(Vec::new(), limit_bytes, ask);
    unpack(packing.into(), input, &mut output)?;
    output.into_bytes()
}

/// Unpacks a payload into a buffer that belongs to this thread and shows it to `inspect`: for
/// payloads that are validated and then travel on in their compressed form. Costs no allocation
/// once the thread is warm.
pub fn with_decompressed<T>(
    packing: impl Into<Packing>,
    input: &[u8],
    limit_bytes: usize,
    inspect: impl FnOnce(Unpacked<'_>) -> T,
) -> Result<T, DecompressError> {
    with_decompressed_admitted(packing, input, limit_bytes, &mut admit, inspect).map_err(failure)
}

/// As [`with_decompressed`], for payloads whose memory has to be admitted before it is taken: see
/// [`decompress_admitted`]. When this returns, the bytes that `inspect` saw are freed, except for
/// those that the thread keeps.
pub fn with_decompressed_admitted<T, R>(
    packing: impl Into<Packing>,
    input: &[u8],
    limit_bytes: usize,
    ask: &mut dyn FnMut(Ask) -> Result<(), R>,
    inspect: impl FnOnce(Unpacked<'_>) -> T,
) -> Result<T, InflateError<R>> {
    // Taken out of its cell, so that `inspect` may come back here.
    let mut output = Output::reusing(SCRATCH.with(RefCell::take), limit_bytes, ask);
    let result = unpack(packing.into(), input, &mut output)
        .map(|is_passable| inspect(Unpacked { bytes: output.filled(), is_passable }));
    if output.bytes.len() <= SCRATCH_KEPT_BYTES {
        SCRATCH.with(|cell| cell.replace(output.bytes));
    }
    result
}

fn admit(_: Ask) -> Result<(), Infallible> {
    Ok(())
}

fn failure(error: InflateError<Infallible>) -> DecompressError {
    match error {
        InflateError::Failed(error) => error,
    }
}

/// Returns whether the packed form is passable: see [`Unpacked`].
fn unpack<R>(
    packing: Packing,
    input: &[u8],
    output: &mut Output<'_, R>,
) -> Result<bool, InflateError<R>> {
    match packing {
        Packing::Known(Encoding::Identity) => {
            output.room(input.len())?.copy_from_slice(input);
            output.filled = input.len();
            Ok(true)
        }
        Packing::Known(Encoding::Gzip) => gzip::decompress(input, output),
        Packing::Known(Encoding::Zstd) => {
            zstd::decompress(input, output)?;
            Ok(zstd::is_single_plain_frame(input))
        }
        // Two formats share snappy's name, and not every receiver takes both; the other two have no
        // encoding.
        Packing::Known(Encoding::Snappy) => snappy::decompress(input, output).map(|()| false),
        Packing::Zlib => gzip::decompress_zlib(input, output).map(|()| false),
        Packing::Lz4 => lz4::decompress(input, output).map(|()| false),
    }
}

/// The unpacked size that a payload tells, if input of this length can reach it.
pub fn claimed_len_bytes(packing: impl Into<Packing>, input: &[u8]) -> Option<usize> {
    match packing.into() {
        Packing::Known(Encoding::Identity) => Some(input.len()),
        Packing::Known(Encoding::Gzip) => gzip::claimed_len_bytes(input),
        Packing::Known(Encoding::Zstd) => zstd::claimed_len_bytes(input),
        Packing::Known(Encoding::Snappy) => snappy::claimed_len_bytes(input),
        // A zlib stream never tells, and LZ4 has to be looked through.
        Packing::Zlib | Packing::Lz4 => None,
    }
}

/// Packs the concatenation of `chunks`. `level` is the format's own scale (gzip and zlib 1–9, zstd
/// 1–22); `None` is its fastest sensible level. Snappy means the framing format, which gRPC peers
/// and Collectors take, LZ4 one frame.
pub fn compress(
    packing: impl Into<Packing>,
    chunks: &[Bytes],
    level: Option<i32>,
) -> Result<Bytes, CompressError> {
    match packing.into() {
        Packing::Known(Encoding::Identity) => Ok(joined(chunks)),
        Packing::Known(Encoding::Gzip) => deflate::compress(&joined(chunks), Wrapping::Gzip, level),
        Packing::Known(Encoding::Zstd) => zstd::compress(chunks, level),
        Packing::Known(Encoding::Snappy) => snappy::compress_framed(chunks),
        Packing::Zlib => deflate::compress(&joined(chunks), Wrapping::Zlib, level),
        Packing::Lz4 => lz4::compress(chunks),
    }
}

/// The chunks as one buffer: shared if it is one already, copied otherwise.
pub fn joined(chunks: &[Bytes]) -> Bytes {
    match chunks {
        [single] => single.clone(),
        several => Bytes::from(several.concat()),
    }
}

#[cfg(test)]
mod admission_tests;
#[cfg(test)]
mod tests;
