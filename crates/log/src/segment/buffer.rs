//! What was read ahead of a file.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::ReaderOptions;
use crate::disk::{DiskFile, read_full_at};
use crate::format::BLOCK_LEN_BYTES;

/// Bad blocks are few. Where the disk refuses more in a row, it is the disk that is bad, and may be
/// well again.
const REFUSED_LIMIT_BYTES: u64 = 1 << 20;

/// What the disk refused of a file and was passed.
#[derive(Default)]
pub(super) struct Refused {
    in_a_row_bytes: u64,
    pub(super) last_error: Option<io::Error>,
}

/// Consecutive bytes of a file.
pub(super) struct ReadBuffer {
    file: Arc<dyn DiskFile>,
    options: ReaderOptions,
    bytes: Vec<u8>,
    /// Position of `bytes[0]`.
    start: u64,
    pub(super) refused: Refused,
}

impl ReadBuffer {
    pub(super) fn new(file: Arc<dyn DiskFile>, options: ReaderOptions) -> Self {
        let read_ahead_bytes = options.read_ahead_bytes.max(BLOCK_LEN_BYTES as usize);
        ReadBuffer {
            file,
            options: ReaderOptions { read_ahead_bytes, ..options },
            bytes: Vec::new(),
            start: 0,
            refused: Refused::default(),
        }
    }

    /// Forgets what was read ahead: the file may have changed there.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
    }

    /// What is buffered from `position` on, without reading more.
    pub(super) fn buffered_from(&self, position: u64) -> &[u8] {
        let index = position.checked_sub(self.start).map_or(usize::MAX, |index| index as usize);
        self.bytes.get(index..).unwrap_or_default()
    }

    /// At least `len` bytes from `position` on; fewer only at `end` or the end of the file.
    pub(super) fn get(&mut self, position: u64, len: usize, end: u64) -> io::Result<&[u8]> {
        if self.buffered_from(position).len() < len {
            self.fill(position, len, end)?;
        }
        Ok(self.buffered_from(position))
    }

    /// A copy of exactly `len` bytes in memory of their own. None if the file ends before.
    pub(super) fn copy(&mut self, at: u64, len: usize, end: u64) -> io::Result<Option<Bytes>> {
        if len <= self.options.read_ahead_bytes {
            let bytes = self.get(at, len, end)?;
            return Ok(bytes.get(..len).map(Bytes::copy_from_slice));
        }
        let mut bytes = vec![0; len];
        let buffered = self.buffered_from(at);
        let buffered_len = buffered.len().min(len);
        bytes[..buffered_len].copy_from_slice(&buffered[..buffered_len]);
        let read = self.read(&mut bytes[buffered_len..], at + buffered_len as u64)?;
        Ok((buffered_len + read == len).then(|| Bytes::from(bytes)))
    }

    /// Makes the buffer start at `position`, keeping what it holds of it.
    fn fill(&mut self, position: u64, len: usize, end: u64) -> io::Result<()> {
        let kept = self.buffered_from(position).len();
        let buffered = self.bytes.len();
        self.bytes.copy_within(buffered - kept.., 0);
        self.bytes.truncate(kept);
        self.start = position;
        let left = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
        let wanted = len.max(self.options.read_ahead_bytes).min(left);
        if wanted <= kept {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(wanted, 0);
        let result = self.read(&mut bytes[kept..], position + kept as u64);
        bytes.truncate(kept + result.as_ref().map_or(0, |&read| read));
        self.bytes = bytes;
        result.map(|_| ())
    }

    fn read(&mut self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let refused = self.options.pass_unreadable.then_some(&mut self.refused);
        read(&*self.file, buffer, position, refused)
    }
}

/// Reads until the buffer is full or the file ends; over bad blocks if they are to be noted.
pub(super) fn read(
    file: &dyn DiskFile,
    buffer: &mut [u8],
    position: u64,
    refused: Option<&mut Refused>,
) -> io::Result<usize> {
    match (read_full_at(file, buffer, position), refused) {
        (Err(_), Some(refused)) => read_by_block(file, buffer, position, refused),
        (Ok(read), Some(refused)) => {
            refused.in_a_row_bytes = 0;
            Ok(read)
        }
        (result, None) => result,
    }
}

/// Reads by the block. Bad blocks become ones, which no checksum takes for a frame.
fn read_by_block(
    file: &dyn DiskFile,
    buffer: &mut [u8],
    position: u64,
    refused: &mut Refused,
) -> io::Result<usize> {
    let left = usize::try_from(file.len_bytes()?.saturating_sub(position)).unwrap_or(usize::MAX);
    let readable = left.min(buffer.len());
    let mut done = 0;
    while done < readable {
        let block_left = BLOCK_LEN_BYTES - (position + done as u64) % BLOCK_LEN_BYTES;
        let block_end = readable.min(done + block_left as usize);
        let block = &mut buffer[done..block_end];
        match read_full_at(file, block, position + done as u64) {
            Ok(_) => refused.in_a_row_bytes = 0,
            Err(error) => {
                refused.in_a_row_bytes += block.len() as u64;
                if refused.in_a_row_bytes > REFUSED_LIMIT_BYTES {
                    return Err(error);
                }
                refused.last_error = Some(error);
                block.fill(0xff);
            }
        }
        done = block_end;
    }
    Ok(readable)
}
