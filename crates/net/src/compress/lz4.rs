//! LZ4 in its frame format, which HTTP's `content-encoding: lz4` means.
//!
//! The frames are read here and lz4_flex decodes their blocks right into the output. Its own frame
//! reader was no substitute: for each frame it allocates and clears up to 12 MiB, as the header of
//! fifteen bytes claims. A body of 2 kB in blocks of up to 4 MiB, as Go's library writes it, takes
//! it over a hundred times as long, and one of 190 kB half as long again
//! (`benches/compression_speed.rs`). It also takes a frame that ends early for a whole one, and
//! ends at a skippable frame.

use std::io::{self, Write};

use bytes::Bytes;
use lz4_flex::block;
use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};
use twox_hash::XxHash32;

use super::{CompressError, DecompressError, InflateError, Output};

const MAGIC: u32 = 0x184d_2204;
/// Sixteen numbers from here begin frames with any content, to be skipped.
const SKIPPABLE_MAGIC: u32 = 0x184d_2a50;
/// In a block's length: its bytes are stored as they are.
const STORED: u32 = 1 << 31;
/// A block that is not independent may refer this far back.
const WINDOW_BYTES: usize = 64 << 10;
/// The shortest match. Its length counts from here.
const MATCH_LEAST_BYTES: usize = 4;

const fn corrupt(reason: &'static str) -> DecompressError {
    DecompressError::Corrupt { format: "lz4", reason }
}

const ENDS_EARLY: DecompressError = corrupt("it ends early");
const BAD_CHECKSUM: DecompressError = corrupt("a checksum does not match");
const MALFORMED_BLOCK: DecompressError = corrupt("a block is malformed");

/// The rest of the input.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], DecompressError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ENDS_EARLY)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, DecompressError> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("are four bytes")))
    }

    /// A length of four bits, which goes on in further bytes if it is 15.
    fn length(&mut self, first: u8) -> Result<usize, DecompressError> {
        let mut length = usize::from(first);
        let mut goes_on = first == 15;
        while goes_on {
            let byte = self.take(1)?[0];
            length += usize::from(byte);
            goes_on = byte == 255;
        }
        Ok(length)
    }
}

/// The part of a frame's descriptor that decoding needs.
struct Descriptor {
    are_blocks_independent: bool,
    have_blocks_checksums: bool,
    has_content_checksum: bool,
    content_bytes: Option<u64>,
    block_limit_bytes: usize,
}

/// Any number of frames, as senders' libraries read them. Nothing at all is an empty message. They
/// are looked through first: that tells their size, and costs little beside decoding.
pub(super) fn decompress<R>(
    input: &[u8],
    output: &mut Output<'_, R>,
) -> Result<(), InflateError<R>> {
    let mut length = 0;
    for_each_frame(input, |descriptor, rest| {
        let mut frame_bytes = 0;
        while let Some((block, is_stored)) = next_block(rest, descriptor)? {
            let block_bytes = if is_stored { block.len() } else { block_len_bytes(block)? };
            if block_bytes > descriptor.block_limit_bytes {
                return Err(corrupt("a block is larger than its header says"));
            }
            frame_bytes += block_bytes;
        }
        if descriptor.content_bytes.is_some_and(|claimed| claimed != frame_bytes as u64) {
            return Err(corrupt("its length is not what its header says"));
        }
        length += frame_bytes;
        if descriptor.has_content_checksum {
            rest.number()?;
        }
        Ok(())
    })?;
    let room = output.room(length)?;
    let mut filled = 0;
    for_each_frame(input, |descriptor, rest| {
        let start = filled;
        while let Some((block, is_stored)) = next_block(rest, descriptor)? {
            let (before, room) = room.split_at_mut(filled);
            filled += if is_stored {
                room[..block.len()].copy_from_slice(block);
                block.len()
            } else {
                let reach = if descriptor.are_blocks_independent {
                    0
                } else {
                    WINDOW_BYTES.min(filled - start)
                };
                block::decompress_into_with_dict(block, room, &before[before.len() - reach..])
                    .map_err(|_| MALFORMED_BLOCK)?
            };
        }
        if descriptor.has_content_checksum
            && rest.number()? != XxHash32::oneshot(0, &room[start..filled])
        {
            return Err(BAD_CHECKSUM);
        }
        Ok(())
    })?;
    output.filled = filled;
    Ok(())
}

fn for_each_frame(
    input: &[u8],
    mut read: impl FnMut(&Descriptor, &mut Rest<'_>) -> Result<(), DecompressError>,
) -> Result<(), DecompressError> {
    let mut rest = Rest(input);
    while !rest.0.is_empty() {
        let magic = rest.number()?;
        if magic == MAGIC {
            read(&descriptor(&mut rest)?, &mut rest)?;
        } else if magic & !0xf == SKIPPABLE_MAGIC {
            let length = rest.number()?;
            rest.take(length as usize)?;
        } else {
            return Err(corrupt("it is not in the LZ4 frame format"));
        }
    }
    Ok(())
}

/// A frame's next block, and whether it is stored as it is. `None`: there was none left.
fn next_block<'a>(
    rest: &mut Rest<'a>,
    descriptor: &Descriptor,
) -> Result<Option<(&'a [u8], bool)>, DecompressError> {
    let length = rest.number()?;
    if length == 0 {
        return Ok(None);
    }
    let block = rest.take((length & !STORED) as usize)?;
    if descriptor.have_blocks_checksums && rest.number()? != XxHash32::oneshot(0, block) {
        return Err(BAD_CHECKSUM);
    }
    Ok(Some((block, length & STORED != 0)))
}

/// The unpacked size of a block: sequences of a token, literals and a match, which the last one
/// does not have.
fn block_len_bytes(block: &[u8]) -> Result<usize, DecompressError> {
    let mut rest = Rest(block);
    let mut length = 0;
    loop {
        let token = rest.take(1)?[0];
        let literals = rest.length(token >> 4)?;
        rest.take(literals)?;
        length += literals;
        if rest.0.is_empty() {
            return Ok(length);
        }
        const OFFSET_BYTES: usize = 2;
        rest.take(OFFSET_BYTES)?;
        length += MATCH_LEAST_BYTES + rest.length(token & 15)?;
    }
}

fn descriptor(rest: &mut Rest<'_>) -> Result<Descriptor, DecompressError> {
    let start = rest.0;
    let [flags, sizes] = rest.take(2)? else { return Err(ENDS_EARLY) };
    let has = |bit: u8| flags & bit != 0;
    if flags >> 6 != 1 || has(0b10) || sizes & 0b1000_1111 != 0 || sizes >> 4 < 4 {
        return Err(corrupt("its header is malformed"));
    }
    if has(0b1) {
        return Err(corrupt("it needs a dictionary"));
    }
    let content_bytes = match has(0b1000) {
        true => Some(u64::from_le_bytes(rest.take(8)?.try_into().expect("are eight bytes"))),
        false => None,
    };
    let read = &start[..start.len() - rest.0.len()];
    if rest.take(1)?[0] != (XxHash32::oneshot(0, read) >> 8) as u8 {
        return Err(BAD_CHECKSUM);
    }
    Ok(Descriptor {
        are_blocks_independent: has(0b10_0000),
        have_blocks_checksums: has(0b1_0000),
        has_content_checksum: has(0b100),
        content_bytes,
        // 64 KiB, 256 KiB, 1 MiB, 4 MiB.
        block_limit_bytes: 1 << (8 + 2 * (sizes >> 4)),
    })
}

/// One frame of independent blocks with a checksum of the whole, as Go's library writes it by
/// default.
pub(super) fn compress(chunks: &[Bytes]) -> Result<Bytes, CompressError> {
    let refused = |error: io::Error| CompressError("lz4", error.to_string());
    let whole: usize = chunks.iter().map(Bytes::len).sum();
    let block_size = match whole {
        0..=0x1_0000 => BlockSize::Max64KB,
        0x1_0001..=0x4_0000 => BlockSize::Max256KB,
        _ => BlockSize::Max1MB,
    };
    let info = FrameInfo::new().block_size(block_size).content_checksum(true);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    for chunk in chunks {
        encoder.write_all(chunk).map_err(refused)?;
    }
    encoder.finish().map(Bytes::from).map_err(|error| refused(error.into()))
}

#[cfg(test)]
mod tests {
    use lz4_flex::frame::BlockMode;
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 8 << 20;

    fn unpacked(input: &[u8], limit_bytes: usize) -> Result<Vec<u8>, DecompressError> {
        let mut ask = super::super::admit;
        let mut output = Output::reusing(Vec::new(), limit_bytes, &mut ask);
        decompress(input, &mut output).map_err(super::super::failure)?;
        Ok(output.filled().to_vec())
    }

    fn packed(info: FrameInfo, plain: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(plain).expect("a vector takes it");
        encoder.finish().expect("packs")
    }

    fn all_forms(content_bytes: u64) -> impl Iterator<Item = FrameInfo> {
        let sizes = [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB];
        let modes = [BlockMode::Independent, BlockMode::Linked];
        let forms = sizes.into_iter().flat_map(move |size| modes.map(|mode| (size, mode)));
        forms.flat_map(move |(size, mode)| {
            [false, true].map(|checked| {
                let info = FrameInfo::new().block_size(size).block_mode(mode);
                info.block_checksums(checked)
                    .content_checksum(!checked)
                    .content_size(checked.then_some(content_bytes))
            })
        })
    }

    fn words(length: usize) -> Vec<u8> {
        let words = (0_u32..).flat_map(|index| {
            format!("attribute.{}={};", index % 50, index.wrapping_mul(97)).into_bytes()
        });
        words.take(length).collect()
    }

    #[test]
    fn every_form_of_frame_is_read_and_the_limit_is_exact() {
        for length in [0, 1, 70_000, 5_000_000] {
            let plain = words(length);
            for info in all_forms(length as u64) {
                let input = packed(info.clone(), &plain);
                assert!(unpacked(&input, length).as_deref() == Ok(&plain[..]), "{info:?} {length}");
                if let Some(less) = length.checked_sub(1) {
                    assert_eq!(
                        unpacked(&input, less),
                        Err(DecompressError::TooLarge { limit_bytes: less }),
                        "{info:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn frames_follow_each_other_and_skippable_ones_are_passed_over() {
        let (first, second) = (words(100), words(200_000));
        let linked = FrameInfo::new().block_mode(BlockMode::Linked);
        let skippable =
            [&(SKIPPABLE_MAGIC + 3).to_le_bytes()[..], &3_u32.to_le_bytes(), b"abc"].concat();
        let input = [packed(linked.clone(), &first), skippable, packed(linked, &second)].concat();
        assert_eq!(unpacked(&input, LIMIT).expect("unpacks"), [first, second].concat());
        assert_eq!(unpacked(b"", LIMIT), Ok(Vec::new()));
    }

    /// Guarantee: a gigabyte in a few megabytes stops at the limit, and the buffer does not grow
    /// beyond it.
    #[test]
    fn bombs_stop_at_the_limit_with_a_bounded_buffer() {
        let bomb =
            packed(FrameInfo::new().block_size(BlockSize::Max4MB), &vec![0; 16 << 20]).repeat(64);
        let mut ask = super::super::admit;
        let mut output = Output::reusing(Vec::new(), 1 << 20, &mut ask);
        let result = decompress(&bomb, &mut output);
        assert_eq!(result, Err(DecompressError::TooLarge { limit_bytes: 1 << 20 }.into()));
        assert!(output.bytes.capacity() <= 2 << 20, "grew to {}", output.bytes.capacity());
    }

    /// Guarantee: a claim in a header or a block allocates nothing.
    #[test]
    fn claims_alone_allocate_nothing() {
        let good = packed(FrameInfo::new().block_size(BlockSize::Max4MB), b"x");
        let mut ask = super::super::admit;
        let mut output = Output::reusing(Vec::new(), usize::MAX >> 1, &mut ask);
        for length in [0x7fff_ffff_u32, 0xffff_ffff, 4 << 20] {
            let input =
                [&good[..7], &length.to_le_bytes()[..], &[0x1f, b'x', 1, 0, 255, 255]].concat();
            assert!(decompress(&input, &mut output).is_err());
        }
        assert!(output.bytes.capacity() < 64 << 10, "allocated {}", output.bytes.capacity());
    }

    /// Guarantee: every beginning of a frame, and every flipped bit of one with checksums, is
    /// refused.
    #[test]
    fn what_is_damaged_is_refused() {
        let plain = words(3_000);
        let input = packed(FrameInfo::new().content_checksum(true).block_checksums(true), &plain);
        for end in 1..input.len() {
            assert!(unpacked(&input[..end], LIMIT).is_err(), "cut at {end}");
        }
        for bit in 0..input.len() * 8 {
            let mut damaged = input.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(unpacked(&damaged, LIMIT).is_err(), "bit {bit}");
        }
        assert!(unpacked(b"not a frame at all", LIMIT).is_err());
    }

    proptest! {
        #[test]
        fn what_is_packed_here_unpacks_there_and_back(
            plain in proptest::collection::vec(0..4_u8, 0..200_000)
        ) {
            let (first, second) = plain.split_at(plain.len() / 2);
            let chunks = [first, second].map(Bytes::copy_from_slice);
            let input = compress(&chunks).expect("packs");
            let mut other = Vec::new();
            let mut decoder = lz4_flex::frame::FrameDecoder::new(&input[..]);
            std::io::Read::read_to_end(&mut decoder, &mut other).expect("unpacks");
            prop_assert!(other == plain && unpacked(&input, LIMIT).as_deref() == Ok(&plain[..]));
        }
    }
}
