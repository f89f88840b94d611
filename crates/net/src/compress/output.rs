//! The buffer that a payload is unpacked to, and what the caller is told of its size before it is allocated.

use bytes::Bytes;

use super::DecompressError;

/// Why unpacking stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Failed(DecompressError),
    /// The caller did not admit the memory that was asked for.
    NotAdmitted,
}

impl From<DecompressError> for Stop {
    fn from(error: DecompressError) -> Self {
        Stop::Failed(error)
    }
}

/// The caller did not admit the memory.
pub(crate) struct NotAdmitted;

/// Called with all the bytes that unpacking is about to hold, before it does.
pub(crate) type Hold<'a> = &'a mut dyn FnMut(usize) -> Result<(), NotAdmitted>;

/// A buffer that is filled up to some length. It is never shrunk while it lives, so that reuse costs no zeroing.
#[derive(Default)]
pub(crate) struct Output<'a> {
    pub(super) bytes: Vec<u8>,
    pub(super) filled: usize,
    /// What the decoder keeps beside the output, as far as the output reaches: zstd's window.
    pub(super) window_bytes: usize,
    /// Of a buffer that is used again, what was behind this is not charged.
    longest_room_bytes: usize,
    hold: Option<Hold<'a>>,
}

impl<'a> Output<'a> {
    pub(super) fn reusing(bytes: Vec<u8>, hold: Option<Hold<'a>>) -> Self {
        Output { bytes, hold, ..Output::default() }
    }

    /// Makes room for `length` bytes in all and returns the whole buffer up to there.
    pub(super) fn room(&mut self, length: usize) -> Result<&mut [u8], Stop> {
        let window_bytes = self.window_bytes.min(length);
        if self.bytes.len() < length {
            let mut previous = std::mem::take(&mut self.bytes);
            if self.filled == 0 {
                previous = Vec::new();
            }
            self.hold(previous.len() + length + window_bytes)?;
            self.bytes = vec![0; length];
            self.bytes[..self.filled].copy_from_slice(&previous[..self.filled]);
        }
        self.longest_room_bytes = self.longest_room_bytes.max(length);
        self.hold(self.longest_room_bytes + window_bytes)?;
        Ok(&mut self.bytes[..length])
    }

    fn hold(&mut self, total_bytes: usize) -> Result<(), Stop> {
        match &mut self.hold {
            Some(hold) => hold(total_bytes).map_err(|NotAdmitted| Stop::NotAdmitted),
            None => Ok(()),
        }
    }

    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Ends with the caller told the bytes that it gets, with the room behind them if it is left there.
    pub(super) fn into_bytes(mut self) -> Result<Bytes, Stop> {
        let capacity = self.bytes.len();
        self.bytes.truncate(self.filled);
        // Copies, and so needs both for a moment.
        if capacity - self.filled > self.filled / 8 && self.hold(capacity + self.filled).is_ok() {
            self.bytes = self.bytes.as_slice().to_vec();
        }
        self.hold(self.bytes.capacity())?;
        Ok(Bytes::from(self.bytes))
    }

    /// The next size to try when the buffer is full: doubles, starts from a guess, ends at `limit_bytes`.
    pub(super) fn grown(current: usize, guess: usize, limit_bytes: usize) -> usize {
        current.saturating_mul(2).max(guess).max(4096).min(limit_bytes)
    }
}
