//! Reads a delivery's dead letters, also while another process writes them.

use std::path::Path;
use std::sync::Arc;

use super::state_path;
use crate::cursor_file::CursorFile;
use crate::disk::Disk;
use crate::error::{FileError, Result};
use crate::format::{CursorState, Refusal};
use crate::record::StoredRecord;
use crate::segment::{Damage, SegmentChain};

/// Reads a delivery's letters, the oldest first, as they are when the reader is opened.
pub struct DeadLetterReader {
    pub(crate) state: CursorState,
    pub(crate) segments: SegmentChain,
}

impl DeadLetterReader {
    /// `directory` is the delivery's own, `from` the number of the first letter that is wanted.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, from: u64) -> Result<Self> {
        let state = match CursorFile::read(&*disk, &state_path(directory)) {
            // Without a state nothing counts as removed.
            Err(FileError::DamagedCursor { .. }) => CursorState::default(),
            Err(error) if error.is_not_found() => CursorState::default(),
            state => state?,
        };
        let segments = SegmentChain::open(disk, directory, from.max(state.floor))?;
        Ok(DeadLetterReader { state, segments })
    }

    /// The store's state: the delivery's name (empty if not known), the first letter that is left,
    /// the dropped letters.
    pub fn state(&self) -> &CursorState {
        &self.state
    }

    /// The next letter, with the metadata that it had in the log, and its refusal; None after the
    /// last one. Damaged letters are passed over and counted.
    pub fn next_letter(&mut self) -> Result<Option<(StoredRecord, Refusal)>> {
        while self.segments.next_frame()?.is_some() {
            let Some(stored) = self.segments.body()? else { continue };
            let Some((refusal, len)) = Refusal::decode(&stored.metadata) else { continue };
            let metadata = stored.metadata.slice(len..);
            return Ok(Some((StoredRecord { metadata, ..stored }, refusal)));
        }
        Ok(None)
    }

    /// Damage that was passed over so far.
    pub fn damage(&self) -> Damage {
        self.segments.damage()
    }
}
