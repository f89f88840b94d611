//! Reads a delivery's dead letters, also while another process writes them.

use std::path::Path;
use std::sync::Arc;

use super::state_path;
use crate::cursor_file::{CursorFile, unescape};
use crate::disk::Disk;
use crate::error::{FileError, Result};
use crate::format::{CursorState, Refusal};
use crate::record::StoredRecord;
use crate::segment::{Damage, SegmentChain};

/// Reads a delivery's letters, the oldest first, as they are when the reader is opened.
pub struct DeadLetterReader {
    state: CursorState,
    /// The file with the state is gone, damaged or refused: what was removed may count as left.
    pub(crate) is_state_lost: bool,
    pub(crate) segments: SegmentChain,
    /// Whole frames without a refusal, which no replay can use.
    strange: Damage,
}

/// The name of the delivery with this folder, as far as the folder says it.
pub fn name_of_folder(folder: &str) -> String {
    unescape(folder).unwrap_or_else(|| folder.to_owned())
}

impl DeadLetterReader {
    /// `directory` is the delivery's own, `from` the number of the first letter that is wanted.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, from: u64) -> Result<Self> {
        let (state, is_state_lost) = match CursorFile::read(&*disk, &state_path(directory)) {
            Err(FileError::DamagedCursor { .. }) => (CursorState::default(), true),
            Err(error) if error.is_not_found() => (CursorState::default(), true),
            state => (state?, false),
        };
        Self::with_state(disk, directory, from, state, is_state_lost)
    }

    /// As [`DeadLetterReader::open`], but goes on without the state, or with the slot of it that can
    /// be read, if the disk refuses it: removed letters may count as left. Its error is kept.
    pub(crate) fn open_in_part(
        disk: Arc<dyn Disk>,
        directory: &Path,
        refused: &mut Vec<FileError>,
    ) -> Result<Self> {
        let path = state_path(directory);
        match CursorFile::read_in_part(&*disk, &path) {
            Ok((state, Some(error))) => {
                refused.push(error);
                Self::with_state(disk, directory, 0, state, true)
            }
            Err(error @ FileError::Io { .. }) if !error.is_not_found() => {
                refused.push(error);
                Self::with_state(disk, directory, 0, CursorState::default(), true)
            }
            _ => Self::open(disk, directory, 0),
        }
    }

    fn with_state(
        disk: Arc<dyn Disk>,
        directory: &Path,
        from: u64,
        state: CursorState,
        is_state_lost: bool,
    ) -> Result<Self> {
        let segments = SegmentChain::open(disk, directory, from.max(state.floor))?;
        Ok(DeadLetterReader { state, is_state_lost, segments, strange: Damage::default() })
    }

    /// The name of the delivery: that of the folder stands for it if the state is lost.
    pub fn delivery(&self, folder: &str) -> String {
        match self.state.name.as_str() {
            "" => name_of_folder(folder),
            name => name.to_owned(),
        }
    }

    /// The store's state: the first letter that is left, the dropped letters.
    pub fn state(&self) -> &CursorState {
        &self.state
    }

    /// The next letter, with the metadata that it had in the log, and its refusal; None after the
    /// last one. Damaged letters are passed over and counted.
    pub fn next_letter(&mut self) -> Result<Option<(StoredRecord, Refusal)>> {
        while let Some(located) = self.segments.next_frame()? {
            let Some(stored) = self.segments.body()? else { continue };
            let Some((refusal, len)) = Refusal::decode(&stored.metadata) else {
                let bytes = located.header.frame_len_bytes();
                self.strange.add(Damage { frames: 1, regions: 0, bytes });
                continue;
            };
            let metadata = stored.metadata.slice(len..);
            return Ok(Some((StoredRecord { metadata, ..stored }, refusal)));
        }
        Ok(None)
    }

    /// As [`DeadLetterReader::next_letter`], but goes on behind a segment, or the rest of one, that
    /// cannot be read. Its error is kept.
    pub(crate) fn next_readable(
        &mut self,
        unreadable: &mut Vec<FileError>,
    ) -> Result<Option<StoredRecord>> {
        use FileError::{Io, NewerVersion, NoSegment};
        loop {
            match self.next_letter() {
                Err(error @ (Io { .. } | NewerVersion { .. } | NoSegment { .. })) => {
                    self.segments.skip_segment();
                    unreadable.push(error);
                }
                letter => return Ok(letter?.map(|(letter, _)| letter)),
            }
        }
    }

    /// Damage that was passed over so far.
    pub fn damage(&self) -> Damage {
        let mut damage = self.segments.damage();
        damage.add(self.strange);
        damage
    }
}
