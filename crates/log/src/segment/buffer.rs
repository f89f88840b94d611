//! Bytes of a file that were read ahead.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::ReaderOptions;
use crate::disk::{DiskFile, read_full_at};
use crate::format::BLOCK_LEN_BYTES;

/// Bad blocks are few. If the disk refuses more than this in a row, the whole disk is bad, and may
/// recover.
const REFUSED_LIMIT_BYTES: u64 = 1 << 20;

/// A file that is read, and its bytes that the disk refused and that were passed.
pub(super) struct Reads {
    file: Arc<dyn DiskFile>,
    /// Bad blocks are passed.
    pass_unreadable: bool,
    refused_in_a_row_bytes: u64,
    pub(super) last_error: Option<io::Error>,
}

/// Consecutive bytes of a file.
pub(super) struct ReadBuffer {
    pub(super) reads: Reads,
    read_ahead_bytes: usize,
    bytes: Vec<u8>,
    /// Position of `bytes[0]`.
    start: u64,
}

impl ReadBuffer {
    pub(super) fn new(file: Arc<dyn DiskFile>, options: ReaderOptions) -> Self {
        let reads = Reads::new(file, options.pass_unreadable);
        let read_ahead_bytes = options.read_ahead_bytes.max(BLOCK_LEN_BYTES as usize);
        ReadBuffer { reads, read_ahead_bytes, bytes: Vec::new(), start: 0 }
    }

    /// Frees the bytes that were read ahead, for instance if they may have changed in the file.
    pub(super) fn free(&mut self) {
        self.bytes = Vec::new();
    }

    /// The buffered bytes from `position` on, without reading more.
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
        if len <= self.read_ahead_bytes {
            let bytes = self.get(at, len, end)?;
            return Ok(bytes.get(..len).map(Bytes::copy_from_slice));
        }
        let mut bytes = vec![0; len];
        let buffered = self.buffered_from(at);
        let buffered_len = buffered.len().min(len);
        bytes[..buffered_len].copy_from_slice(&buffered[..buffered_len]);
        let read = self.reads.read(&mut bytes[buffered_len..], at + buffered_len as u64)?;
        Ok((buffered_len + read == len).then(|| Bytes::from(bytes)))
    }

    /// Makes the buffer start at `position`. Buffered bytes from there on are kept.
    fn fill(&mut self, position: u64, len: usize, end: u64) -> io::Result<()> {
        let kept = self.buffered_from(position).len();
        let buffered = self.bytes.len();
        self.bytes.copy_within(buffered - kept.., 0);
        self.bytes.truncate(kept);
        self.start = position;
        let left = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
        let wanted = len.max(self.read_ahead_bytes).min(left);
        if wanted <= kept {
            return Ok(());
        }
        self.bytes.resize(wanted, 0);
        let result = self.reads.read(&mut self.bytes[kept..], position + kept as u64);
        self.bytes.truncate(kept + result.as_ref().map_or(0, |&read| read));
        result.map(|_| ())
    }
}

impl Reads {
    pub(super) fn new(file: Arc<dyn DiskFile>, pass_unreadable: bool) -> Self {
        Reads { file, pass_unreadable, refused_in_a_row_bytes: 0, last_error: None }
    }

    /// Reads until the buffer is full or the file ends.
    pub(super) fn read(&mut self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let read = read_full_at(&*self.file, buffer, position);
        if read.is_err() && self.pass_unreadable {
            return self.read_by_block(buffer, position);
        }
        self.refused_in_a_row_bytes = 0;
        read
    }

    /// Reads by the block. Bad blocks become `0xff` bytes, which no checksum accepts as a frame.
    fn read_by_block(&mut self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let file = &*self.file;
        let left = file.len_bytes()?.saturating_sub(position);
        let readable = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let (mut bad, mut last_error) = (Vec::new(), None);
        let mut has_come_back = false;
        let mut done = 0;
        while done < readable {
            let block_left = BLOCK_LEN_BYTES - (position + done as u64) % BLOCK_LEN_BYTES;
            let block = done..readable.min(done + block_left as usize);
            done = block.end;
            match read_full_at(file, &mut buffer[block.clone()], position + block.start as u64) {
                Ok(_) => {
                    self.refused_in_a_row_bytes = 0;
                    has_come_back |= !bad.is_empty();
                }
                Err(error) => {
                    self.refused_in_a_row_bytes += block.len() as u64;
                    if self.refused_in_a_row_bytes > REFUSED_LIMIT_BYTES {
                        return Err(error);
                    }
                    last_error = Some(error);
                    bad.push(block);
                }
            }
        }
        // The whole disk may have been away when these blocks were read.
        while std::mem::take(&mut has_come_back) {
            bad.retain(|block| {
                let block_position = position + block.start as u64;
                let again = read_full_at(file, &mut buffer[block.clone()], block_position);
                has_come_back |= again.is_ok();
                again.map_err(|error| last_error = Some(error)).is_err()
            });
        }
        if !bad.is_empty() {
            self.last_error = last_error;
        }
        bad.into_iter().for_each(|block| buffer[block].fill(0xff));
        Ok(readable)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const BLOCK: usize = BLOCK_LEN_BYTES as usize;

    /// A file of sevens that is refused for this many reads. One block of it stays bad.
    struct Away {
        reads: AtomicUsize,
        bad: Range<u64>,
    }

    impl DiskFile for Away {
        fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
            let is_away = self
                .reads
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            if is_away.is_ok() || self.bad.contains(&position) {
                return Err(io::Error::other("refused"));
            }
            buffer.fill(7);
            Ok(buffer.len())
        }

        fn len_bytes(&self) -> io::Result<u64> {
            Ok(16 * BLOCK_LEN_BYTES)
        }

        fn is_linked(&self) -> io::Result<bool> {
            Ok(true)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            unreachable!("it is read only")
        }

        fn sync_data(&self) -> io::Result<()> {
            unreachable!("it is read only")
        }

        fn allocate(&self, _: u64) -> io::Result<()> {
            unreachable!("it is read only")
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            unreachable!("it is read only")
        }
    }

    /// Scenario: a disk comes back while a file is read by the block, and one block stays bad.
    /// Guarantee: that block alone counts as bad.
    #[test]
    fn of_a_disk_that_comes_back_only_what_stays_bad_is_passed() {
        for away_for in [0, 1, 5, 12] {
            let bad = 3 * BLOCK_LEN_BYTES..4 * BLOCK_LEN_BYTES;
            let file = Away { reads: AtomicUsize::new(1 + away_for), bad };
            let mut buffer = vec![0; 16 * BLOCK];
            let mut reads = Reads::new(Arc::new(file), true);
            let read = reads.read(&mut buffer, 0).expect("bad blocks are few");
            assert_eq!(read, buffer.len());
            let blocks: Vec<u8> = buffer.chunks(BLOCK).map(|block| block[0]).collect();
            let expected: Vec<u8> =
                (0..16).map(|block| if block == 3 { 0xff } else { 7 }).collect();
            assert_eq!(blocks, expected, "away for {away_for} blocks");
            assert!(reads.last_error.is_some());
        }
    }
}
