//! Packing gzip (RFC 1952) and zlib (RFC 1950).
//!
//! Level 1 of ISA-L takes two fifths to half of the time of libdeflate's and gives two percent more
//! bytes, but exists in fast for x86-64 only (see `benches/compression_speed.rs`). Every other
//! level, and other processors, are libdeflate's.
//! `docs/decisions/011-gzip-is-packed-by-isa-l.md` has the measured effect.

use std::cell::RefCell;

use bytes::Bytes;
use libdeflater::{CompressionLvl, Compressor};

use super::CompressError;

/// The fastest level: 6 costs five times as much for six percent.
const DEFAULT_LEVEL: i32 = 1;

/// The format around the deflate stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapping {
    Gzip,
    Zlib,
}

impl Wrapping {
    pub(super) const fn name(self) -> &'static str {
        ["gzip", "zlib"][self as usize]
    }
}

thread_local! {
    static COMPRESSOR: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) };
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

pub(super) fn compress(
    input: &[u8],
    wrapping: Wrapping,
    level: Option<i32>,
) -> Result<Bytes, CompressError> {
    // -1 is zlib's way of saying "default"; 0 stores.
    let level = level.filter(|level| *level >= 0).unwrap_or(DEFAULT_LEVEL);
    SCRATCH.with_borrow_mut(|scratch| {
        let length = match fast(input, wrapping, level, scratch) {
            Some(length) => length,
            None => with_libdeflate(input, wrapping, level, scratch)?,
        };
        Ok(scratch.take(length))
    })
}

/// Packs with ISA-L if that is faster. `None`: it is not, or ISA-L cannot.
#[cfg(target_arch = "x86_64")]
fn fast(input: &[u8], wrapping: Wrapping, level: i32, scratch: &mut Scratch) -> Option<usize> {
    /// Incompressible input is stored in blocks (of up to 64 KiB) with a header each.
    const STORED_BLOCK_BYTES: usize = 8 << 10;
    const STORED_HEADER_BYTES: usize = 5;
    /// Header and trailer, and the ends of the first and the last block.
    const WRAPPING_BYTES: usize = 64;
    let is_taken = level == 1 && u32::try_from(input.len()).is_ok();
    let codec = match wrapping {
        Wrapping::Gzip => isal::Codec::Gzip,
        Wrapping::Zlib => isal::Codec::Zlib,
    };
    let bound =
        input.len() + input.len() / STORED_BLOCK_BYTES * STORED_HEADER_BYTES + WRAPPING_BYTES;
    is_taken
        .then(|| {
            isal::compress_into(input, scratch.at_least(bound), isal::CompressionLevel::One, codec)
        })
        .and_then(Result::ok)
}

#[cfg(not(target_arch = "x86_64"))]
fn fast(_: &[u8], _: Wrapping, _: i32, _: &mut Scratch) -> Option<usize> {
    None
}

fn with_libdeflate(
    input: &[u8],
    wrapping: Wrapping,
    level: i32,
    scratch: &mut Scratch,
) -> Result<usize, CompressError> {
    let refused = |reason: String| CompressError(wrapping.name(), reason);
    let valid = CompressionLvl::new(level)
        .map_err(|_| refused(format!("there is no level {level}; use 1 to 9")))?;
    COMPRESSOR.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(kept_level, _)| *kept_level != level) {
            *kept = Some((level, Compressor::new(valid)));
        }
        let (_, compressor) = kept.as_mut().expect("was just put there");
        let packed = match wrapping {
            Wrapping::Gzip => {
                let bound = compressor.gzip_compress_bound(input.len());
                compressor.gzip_compress(input, scratch.at_least(bound))
            }
            Wrapping::Zlib => {
                let bound = compressor.zlib_compress_bound(input.len());
                compressor.zlib_compress(input, scratch.at_least(bound))
            }
        };
        packed.map_err(|error| refused(error.to_string()))
    })
}

/// A thread's buffer for packed bytes. It is used again, so that its pages are there already and
/// need no zeroing: the packed bytes, which are few, are then copied to their own buffer.
#[derive(Default)]
struct Scratch(Vec<u8>);

/// A larger scratch is given back after use.
const SCRATCH_KEPT_BYTES: usize = 4 << 20;

impl Scratch {
    fn at_least(&mut self, length: usize) -> &mut [u8] {
        if self.0.len() < length {
            self.0.resize(length, 0);
        }
        &mut self.0[..length]
    }

    fn take(&mut self, length: usize) -> Bytes {
        let packed = Bytes::copy_from_slice(&self.0[..length]);
        if self.0.len() > SCRATCH_KEPT_BYTES {
            self.0 = Vec::new();
        }
        packed
    }
}
