//! Reads of a file by the buffer, which pass bad blocks.
//!
//! Bad blocks become `0xff` bytes, which no checksum accepts as a frame. A block is bad if the disk
//! refuses it and can read others: one that was refused before another could be read is asked for
//! again. [`BadBlocks`] keeps them, so that a reader may stop at any of them and go on later: a
//! drive may take a second for each refusal.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{DiskFile, read_full_at};
use crate::format::BLOCK_LEN_BYTES;

/// Bad blocks are few. If the disk refuses more than this in a row, the whole disk is bad, and may
/// recover.
const REFUSED_LIMIT_BLOCKS: usize = (1 << 20) / BLOCK_LEN_BYTES as usize;

/// Blocks of a file that the disk refuses to read, by their numbers.
#[derive(Debug)]
pub(crate) struct BadBlocks {
    state: Mutex<BadBlocksState>,
}

#[derive(Debug)]
struct BadBlocksState {
    known: BTreeMap<u64, Refused>,
    last_error: Option<io::Error>,
    /// Blocks that are not known yet may be passed as well.
    may_pass: bool,
    /// Refusals may take this long in a turn.
    turn_limit: Duration,
    /// The time that refusals took in this turn.
    refused_for: Duration,
    turn_is_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// The whole disk may have been away.
    Once,
    /// Also after another block could be read.
    Again,
}

impl BadBlocks {
    /// None is known. Without turns: a read asks for every block.
    pub(crate) fn new(may_pass: bool) -> Arc<Self> {
        let state = BadBlocksState {
            known: BTreeMap::new(),
            last_error: None,
            may_pass,
            turn_limit: Duration::MAX,
            refused_for: Duration::ZERO,
            turn_is_over: false,
        };
        Arc::new(BadBlocks { state: Mutex::new(state) })
    }

    /// From here on a read ends with an error at the first refusal by which all of them have taken
    /// `turn_limit`. Each turn has one refusal at least, so that each gets further.
    pub(crate) fn begin_turn(&self, may_pass: bool, turn_limit: Duration) {
        let mut state = self.state.lock();
        (state.may_pass, state.turn_limit) = (may_pass, turn_limit);
        (state.refused_for, state.turn_is_over) = (Duration::ZERO, false);
    }

    /// A read ended only because refusals took too long. The next turn goes on there.
    pub(crate) fn turn_is_over(&self) -> bool {
        self.state.lock().turn_is_over
    }

    /// The time that refusals took in this turn.
    pub(crate) fn refused_for(&self) -> Duration {
        self.state.lock().refused_for
    }

    /// Whether further blocks may be passed.
    pub(crate) fn may_pass(&self) -> bool {
        self.state.lock().may_pass
    }

    fn is_known(&self, block: u64) -> bool {
        self.state.lock().known.contains_key(&block)
    }

    fn are_any_known(&self, blocks: Range<u64>) -> bool {
        self.state.lock().known.range(blocks).next().is_some()
    }

    fn was_refused_once(&self, block: u64) -> bool {
        self.state.lock().known.get(&block) == Some(&Refused::Once)
    }

    /// Makes a call and measures the time that a refusal takes.
    fn timed<A>(&self, call: impl FnOnce() -> io::Result<A>) -> io::Result<A> {
        let began = Instant::now();
        call().inspect_err(|_| self.state.lock().refused_for += began.elapsed())
    }

    /// Notes a block that was refused. The error is returned if the read has to end there.
    fn refuse(&self, block: u64, error: io::Error) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(refused) = state.known.get_mut(&block) {
            *refused = Refused::Again;
        } else {
            let before = state.known.range(..block).rev().zip(1..);
            let in_a_row = before.take_while(|((known, _), back)| **known + back == block);
            if !state.may_pass || in_a_row.count() >= REFUSED_LIMIT_BLOCKS {
                return Err(error);
            }
            state.known.insert(block, Refused::Once);
        }
        state.last_error = Some(copy_of(&error));
        state.turn_is_over = state.refused_for >= state.turn_limit;
        if state.turn_is_over { Err(error) } else { Ok(()) }
    }

    /// Forgets a block that could be read after all. The disk was away when it was refused, and
    /// perhaps when the others were.
    fn forget(&self, block: u64) {
        let mut state = self.state.lock();
        state.known.remove(&block);
        state.known.values_mut().for_each(|refused| *refused = Refused::Once);
    }

    fn last_error(&self) -> Option<io::Error> {
        self.state.lock().last_error.as_ref().map(copy_of)
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// A file that is read, and its bytes that the disk refused and that were passed.
pub(crate) struct Reads {
    file: Arc<dyn DiskFile>,
    bad: Arc<BadBlocks>,
    /// Why blocks were passed, if some were.
    pub(crate) last_error: Option<io::Error>,
}

/// Consecutive bytes of a file.
pub(crate) struct ReadBuffer {
    pub(crate) reads: Reads,
    read_ahead_bytes: usize,
    bytes: Vec<u8>,
    /// Position of `bytes[0]`.
    start: u64,
}

impl ReadBuffer {
    pub(crate) fn new(
        file: Arc<dyn DiskFile>,
        read_ahead_bytes: usize,
        bad: Arc<BadBlocks>,
    ) -> Self {
        let reads = Reads::new(file, bad);
        let read_ahead_bytes = read_ahead_bytes.max(BLOCK_LEN_BYTES as usize);
        ReadBuffer { reads, read_ahead_bytes, bytes: Vec::new(), start: 0 }
    }

    /// Frees the bytes that were read ahead, for instance if they may have changed in the file.
    pub(crate) fn free(&mut self) {
        self.bytes = Vec::new();
    }

    /// The buffered bytes from `position` on, without reading more.
    pub(crate) fn buffered_from(&self, position: u64) -> &[u8] {
        let index = position.checked_sub(self.start).map_or(usize::MAX, |index| index as usize);
        self.bytes.get(index..).unwrap_or_default()
    }

    /// At least `len` bytes from `position` on; fewer only at `end` or the end of the file.
    pub(crate) fn get(&mut self, position: u64, len: usize, end: u64) -> io::Result<&[u8]> {
        if self.buffered_from(position).len() < len {
            self.fill(position, len, end)?;
        }
        Ok(self.buffered_from(position))
    }

    /// A copy of exactly `len` bytes in memory of their own. None if the file ends before.
    pub(crate) fn copy(&mut self, at: u64, len: usize, end: u64) -> io::Result<Option<Bytes>> {
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
    pub(crate) fn new(file: Arc<dyn DiskFile>, bad: Arc<BadBlocks>) -> Self {
        Reads { file, bad, last_error: None }
    }

    /// Reads until the buffer is full or the file ends.
    pub(crate) fn read(&mut self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let end = position + buffer.len() as u64;
        let blocks = position / BLOCK_LEN_BYTES..end.div_ceil(BLOCK_LEN_BYTES);
        if !self.bad.are_any_known(blocks) {
            let read = self.bad.timed(|| read_full_at(&*self.file, buffer, position));
            if read.is_ok() || !self.bad.may_pass() {
                return read;
            }
        }
        self.read_by_block(buffer, position)
    }

    fn read_by_block(&mut self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let left = self.file.len_bytes()?.saturating_sub(position);
        let readable = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let number = |part: &Range<usize>| (position + part.start as u64) / BLOCK_LEN_BYTES;
        let (mut bad, mut has_come_back) = (Vec::new(), false);
        let mut done = 0;
        while done < readable {
            let block_left = BLOCK_LEN_BYTES - (position + done as u64) % BLOCK_LEN_BYTES;
            let part = done..readable.min(done + block_left as usize);
            done = part.end;
            if !self.bad.is_known(number(&part)) {
                match self.read_part(buffer, position, &part) {
                    Ok(()) => {
                        has_come_back |= !bad.is_empty();
                        continue;
                    }
                    Err(error) => self.bad.refuse(number(&part), error)?,
                }
            }
            bad.push(part);
        }
        // The whole disk may have been away when these blocks were read.
        while std::mem::take(&mut has_come_back) {
            let mut still_bad = Vec::new();
            for part in bad {
                if self.bad.was_refused_once(number(&part)) {
                    match self.read_part(buffer, position, &part) {
                        Ok(()) => {
                            self.bad.forget(number(&part));
                            has_come_back = true;
                            continue;
                        }
                        Err(error) => self.bad.refuse(number(&part), error)?,
                    }
                }
                still_bad.push(part);
            }
            bad = still_bad;
        }
        if !bad.is_empty() {
            self.last_error = self.bad.last_error();
        }
        bad.into_iter().for_each(|part| buffer[part].fill(0xff));
        Ok(readable)
    }

    fn read_part(&self, buffer: &mut [u8], position: u64, part: &Range<usize>) -> io::Result<()> {
        let position = position + part.start as u64;
        let read = || read_full_at(&*self.file, &mut buffer[part.clone()], position);
        self.bad.timed(read).map(drop)
    }
}
