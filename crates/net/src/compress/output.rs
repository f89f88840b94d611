//! The buffer that a payload is unpacked to. The caller is asked before it is allocated.

use std::cell::RefCell;

use bytes::Bytes;

use super::{DecompressError, InflateError};

/// A payload that does not tell its size and is no longer than this is unpacked once. A thread
/// keeps a buffer of this size.
const PIECE_BYTES: usize = 128 << 10;

thread_local! {
    static PIECE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Questions of unpacking to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// May unpacking use this many bytes in all from now on? The number rises and falls.
    Hold { bytes: usize },
    /// May it take long? It may have to unpack everything twice, the first time to learn the size,
    /// or to walk through many blocks that contain little.
    Measure,
}

/// A decoder of a payload that does not tell its size.
pub(super) trait Pieces {
    /// Begins again at the front.
    fn restart(&mut self) -> Result<(), DecompressError>;

    /// Unpacks the next bytes into `room` and returns their number: zero at the end.
    fn next(&mut self, room: &mut [u8]) -> Result<usize, DecompressError>;

    /// Unpacks until the room is full or the payload ends.
    fn fill(&mut self, room: &mut [u8]) -> Result<usize, DecompressError> {
        let mut filled = 0;
        while filled < room.len() {
            match self.next(&mut room[filled..])? {
                0 => break,
                length => filled += length,
            }
        }
        Ok(filled)
    }
}

/// A buffer that is filled up to some length. It is never shrunk while it lives, so that reuse
/// costs no zeroing.
pub(super) struct Output<'a, R> {
    pub(super) bytes: Vec<u8>,
    pub(super) filled: usize,
    /// The decoder's memory beside the output, as far as the output reaches: zstd's window.
    pub(super) window_bytes: usize,
    /// The most unpacked bytes. [`Output::room`] keeps to it.
    pub(super) limit_bytes: usize,
    asked: &'a mut dyn FnMut(Ask) -> Result<(), R>,
}

impl<'a, R> Output<'a, R> {
    pub(super) fn reusing(
        bytes: Vec<u8>,
        limit_bytes: usize,
        asked: &'a mut dyn FnMut(Ask) -> Result<(), R>,
    ) -> Self {
        Output { bytes, filled: 0, window_bytes: 0, limit_bytes, asked }
    }

    /// An error if `length` is more than the limit.
    pub(super) fn check_limit(&self, length: usize) -> Result<(), DecompressError> {
        let limit_bytes = self.limit_bytes;
        if length > limit_bytes { Err(DecompressError::TooLarge { limit_bytes }) } else { Ok(()) }
    }

    /// Room for exactly `length` bytes, within the limit. The buffer's content is lost.
    pub(super) fn room(&mut self, length: usize) -> Result<&mut [u8], InflateError<R>> {
        self.check_limit(length)?;
        self.filled = 0;
        if self.bytes.len() < length {
            self.bytes = Vec::new();
        }
        self.ask(Ask::Hold { bytes: length + self.window_bytes.min(length) })?;
        if self.bytes.len() < length {
            self.bytes = vec![0; length];
        }
        Ok(&mut self.bytes[..length])
    }

    /// Unpacks a payload that does not tell its size. A long one is unpacked once to learn it, and
    /// again into memory of that size: a growing buffer would take twice as much at times.
    pub(super) fn fill_from(&mut self, pieces: &mut impl Pieces) -> Result<(), InflateError<R>> {
        pieces.restart()?;
        self.filled = PIECE.with_borrow_mut(|piece| -> Result<usize, InflateError<R>> {
            piece.resize(PIECE_BYTES, 0);
            let mut length = pieces.fill(piece)?;
            if length < PIECE_BYTES {
                self.room(length)?.copy_from_slice(&piece[..length]);
                return Ok(length);
            }
            self.ask(Ask::Measure)?;
            self.bytes = Vec::new();
            self.ask(Ask::Hold { bytes: self.window_bytes })?;
            loop {
                self.check_limit(length)?;
                match pieces.fill(piece)? {
                    0 => break,
                    more => length += more,
                }
            }
            pieces.restart()?;
            Ok(pieces.fill(self.room(length)?)?)
        })?;
        Ok(())
    }

    pub(super) fn ask(&mut self, ask: Ask) -> Result<(), InflateError<R>> {
        (self.asked)(ask).map_err(InflateError::Refused)
    }

    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Returns the bytes, after asking the caller for exactly their number.
    pub(super) fn into_bytes(mut self) -> Result<Bytes, InflateError<R>> {
        self.ask(Ask::Hold { bytes: self.filled })?;
        self.bytes.truncate(self.filled);
        Ok(Bytes::from(self.bytes))
    }
}
