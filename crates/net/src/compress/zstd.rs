//! Zstandard (RFC 8878).

use std::cell::RefCell;

use bytes::Bytes;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{self, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::output::Pieces;
use super::{
    Ask, CompressError, DecompressError, InflateError, Output, SCRATCH_KEPT_BYTES,
    ZSTD_WINDOW_LIMIT_BYTES,
};

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The shortest block (a header, and a byte that is repeated), and the most that it unpacks to.
const BLOCK_LEAST_BYTES: usize = 4;
const BLOCK_MAX_BYTES: usize = 128 << 10;

/// A block may cost a microsecond even if it contains little, and take sixteen bytes. This many
/// bytes are unpacked without asking; as telemetry they are half a megabyte.
const BLOCKS_UNASKED_BYTES: usize = 64 << 10;

const DEFAULT_LEVEL: i32 = 1;

/// Levels above would choose windows that receivers refuse.
const LAST_LEVEL_WITH_SMALL_WINDOW: i32 = 19;

thread_local! {
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
}

const fn corrupt(reason: &'static str) -> DecompressError {
    DecompressError::Corrupt { format: "zstd", reason }
}

const fn unsupported(reason: &'static str) -> DecompressError {
    DecompressError::Unsupported { format: "zstd", reason }
}

/// The fields of a frame's header.
struct FrameHeader {
    window_bytes: u64,
    content_bytes: Option<u64>,
    has_dictionary: bool,
}

/// Reads the header of the frame at the start of `input`. `None` if there is none. libzstd does not
/// tell its window (RFC 8878, 3.1.1.1.2), which is the whole content if that is one segment.
fn frame_header(input: &[u8]) -> Option<FrameHeader> {
    let &[descriptor, window, ..] = input.strip_prefix(&MAGIC)? else { return None };
    let content_bytes = zstd_safe::get_frame_content_size(input).ok()?;
    let base = 1_u64 << (10 + (window >> 3));
    let is_single_segment = descriptor & 0x20 != 0;
    Some(FrameHeader {
        window_bytes: if is_single_segment {
            content_bytes?
        } else {
            base + base / 8 * u64::from(window & 7)
        },
        content_bytes,
        has_dictionary: zstd_safe::get_dict_id_from_frame(input).is_some(),
    })
}

/// The sum of the sizes in the frames' headers, if each has one that it can reach.
pub(super) fn claimed_len_bytes(input: &[u8]) -> Option<usize> {
    let (mut rest, mut sum) = (input, 0_usize);
    while !rest.is_empty() {
        let (frame, after) =
            rest.split_at_checked(zstd_safe::find_frame_compressed_size(rest).ok()?)?;
        // Without a header it is a frame to be passed over.
        if let Some(header) = frame_header(frame) {
            let claimed = usize::try_from(header.content_bytes?).ok()?;
            let most = (frame.len() / BLOCK_LEAST_BYTES + 1).saturating_mul(BLOCK_MAX_BYTES);
            sum = sum.checked_add(claimed).filter(|_| claimed <= most)?;
        }
        rest = after;
    }
    Some(sum)
}

pub(super) fn is_single_plain_frame(input: &[u8]) -> bool {
    frame_header(input).is_some_and(|header| {
        !header.has_dictionary && header.window_bytes <= ZSTD_WINDOW_LIMIT_BYTES
    }) && zstd_safe::find_frame_compressed_size(input) == Ok(input.len())
}

pub(super) fn decompress<R>(
    input: &[u8],
    output: &mut Output<'_, R>,
) -> Result<(), InflateError<R>> {
    if input.is_empty() {
        return Err(corrupt("it is empty").into());
    }
    if let Some(header) = frame_header(input) {
        if header.has_dictionary {
            return Err(unsupported("it needs a dictionary").into());
        }
        let content_bytes = header.content_bytes.unwrap_or(0);
        output.check_limit(usize::try_from(content_bytes).unwrap_or(usize::MAX))?;
    }
    if input.len() > BLOCKS_UNASKED_BYTES {
        output.ask(Ask::Measure)?;
    }
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let context = match kept {
            Some(context) => context,
            None => kept.insert(new_context()?),
        };
        let mut frames = Frames { context, input, rest: input, has_ended: false };
        let result = match claimed_len_bytes(input) {
            Some(claimed) => frames.decompress_at_once(claimed, output),
            None => {
                output.window_bytes = ZSTD_WINDOW_LIMIT_BYTES as usize;
                output
                    .fill_from(&mut frames)
                    .and_then(|()| Ok(check_claimed_sizes(input, output.filled)?))
            }
        };
        // A context that stopped in the middle of a frame is not worth repairing. One with a large
        // window is not kept either: as much of its window is resident as was unpacked through it.
        if result.is_err() || output.filled > SCRATCH_KEPT_BYTES {
            *kept = None;
        }
        result
    })
}

#[cfg(test)]
pub(super) fn keeps_decoder() -> bool {
    DECOMPRESSOR.with_borrow(Option::is_some)
}

fn new_context() -> Result<DCtx<'static>, DecompressError> {
    let mut context = DCtx::try_create().ok_or(unsupported("no memory for a decoder"))?;
    context
        .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LIMIT_BYTES.trailing_zeros()))
        .map_err(|_| unsupported("the decoder refuses its window limit"))?;
    Ok(context)
}

/// Any number of frames, each verified.
struct Frames<'a> {
    context: &'a mut DCtx<'static>,
    input: &'a [u8],
    rest: &'a [u8],
    has_ended: bool,
}

impl Frames<'_> {
    /// libzstd decodes in one pass if there is room for the whole frame.
    fn decompress_at_once<R>(
        &mut self,
        length: usize,
        output: &mut Output<'_, R>,
    ) -> Result<(), InflateError<R>> {
        self.restart()?;
        let filled = self.fill(output.room(length)?)?;
        if filled < length || self.next(&mut [0])? > 0 {
            return Err(WRONG_LENGTH.into());
        }
        output.filled = length;
        Ok(())
    }
}

impl Pieces for Frames<'_> {
    fn restart(&mut self) -> Result<(), DecompressError> {
        (self.rest, self.has_ended) = (self.input, false);
        self.context
            .reset(ResetDirective::SessionOnly)
            .map(|_| ())
            .map_err(|_| unsupported("the decoder cannot be reset"))
    }

    fn next(&mut self, room: &mut [u8]) -> Result<usize, DecompressError> {
        while !self.has_ended {
            let mut source = InBuffer::around(self.rest);
            let mut target = OutBuffer::around(&mut *room);
            let wanted =
                self.context.decompress_stream(&mut target, &mut source).map_err(stream_error)?;
            let (written, read) = (target.pos(), source.pos());
            self.rest = &self.rest[read..];
            let is_at_end = self.rest.is_empty();
            self.has_ended = wanted == 0 && is_at_end;
            if written > 0 {
                return Ok(written);
            }
            if !self.has_ended && (is_at_end || read == 0) {
                return Err(corrupt("it ends early"));
            }
        }
        Ok(0)
    }
}

const WRONG_LENGTH: DecompressError = corrupt("its length is not what its header says");

/// libzstd's streaming decoder accepts a frame that ends before the size in its header, if its last
/// block is empty. Other decoders refuse that, so it must not be passed on.
fn check_claimed_sizes(input: &[u8], unpacked_bytes: usize) -> Result<(), DecompressError> {
    let (mut rest, mut claimed_bytes, mut is_exact) = (input, 0_u64, true);
    while !rest.is_empty() {
        let frame_bytes = zstd_safe::find_frame_compressed_size(rest).map_err(stream_error)?;
        if let Some(header) = frame_header(rest) {
            claimed_bytes = claimed_bytes.saturating_add(header.content_bytes.unwrap_or(0));
            is_exact &= header.content_bytes.is_some();
        }
        rest = &rest[frame_bytes..];
    }
    let unpacked_bytes = unpacked_bytes as u64;
    if claimed_bytes > unpacked_bytes || (is_exact && claimed_bytes < unpacked_bytes) {
        return Err(WRONG_LENGTH);
    }
    Ok(())
}

fn stream_error(code: zstd_safe::ErrorCode) -> DecompressError {
    match zstd_safe::get_error_name(code) {
        "Frame requires too much memory for decoding" => {
            unsupported("its window is larger than 8 MiB")
        }
        "Dictionary mismatch" => unsupported("it needs a dictionary"),
        "Unknown frame descriptor" => corrupt("it does not start with a frame"),
        "Restored data doesn't match checksum" => corrupt("the checksum does not match"),
        _ => corrupt("the frame is malformed"),
    }
}

pub(super) fn compress(chunks: &[Bytes], level: Option<i32>) -> Result<Bytes, CompressError> {
    let level = level.unwrap_or(DEFAULT_LEVEL);
    if !(1..=22).contains(&level) {
        return Err(CompressError("zstd", format!("there is no level {level}; use 1 to 22")));
    }
    let input = super::joined(chunks);
    let packed = COMPRESSOR.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(kept_level, _)| *kept_level != level) {
            let mut compressor = Compressor::new(level)?;
            if level > LAST_LEVEL_WITH_SMALL_WINDOW {
                compressor.set_parameter(CParameter::WindowLog(
                    ZSTD_WINDOW_LIMIT_BYTES.trailing_zeros(),
                ))?;
            }
            *kept = Some((level, compressor));
        }
        let (_, compressor) = kept.as_mut().expect("was just put there");
        compressor.compress(&input)
    });
    packed.map(Bytes::from).map_err(|error| CompressError("zstd", error.to_string()))
}
