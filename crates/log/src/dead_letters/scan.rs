//! Reading letters: all of a store, also while another process writes them, and those of one
//! segment that a store finds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::state_path;
use crate::cursors::{CursorFile, unescape};
use crate::disk::Disk;
use crate::error::{FileError, Result};
use crate::format::{CursorState, FRAME_PREFIX_LEN_BYTES, Footer, Refusal};
use crate::recovery::{Body, Known, Patience, scan};
use crate::segment::{Damage, SegmentChain, SegmentScan};
use crate::types::StoredRecord;

/// A delivery's letters, the oldest first, as they are when this is opened. A process may be adding
/// and removing some.
pub struct DeadLetterScan {
    directory: PathBuf,
    state: CursorState,
    /// The file with the state is gone, damaged or refused: what was removed may count as left.
    pub is_state_lost: bool,
    segments: SegmentChain,
}

/// The name of the delivery with this folder, as far as the folder says it.
pub fn name_of_folder(folder: &str) -> String {
    unescape(folder).unwrap_or_else(|| folder.to_owned())
}

impl DeadLetterScan {
    /// `directory` is the delivery's own, `from` the number of the first letter that is wanted.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, from: u64) -> Result<Self> {
        let (state, is_state_lost) = match CursorFile::read(&*disk, &state_path(directory)) {
            Err(FileError::DamagedCursor { .. }) => (CursorState::default(), true),
            Err(error) if error.is_not_found() => (CursorState::default(), true),
            state => (state?, false),
        };
        Self::with_state(disk, directory, from, state, is_state_lost)
    }

    /// As [`DeadLetterScan::open`], but goes on without the state, or with the slot of it that can
    /// be read, if the disk refuses it: removed letters may count as left. Its error is kept.
    pub fn open_in_part(
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
        let directory = directory.to_owned();
        Ok(DeadLetterScan { directory, state, is_state_lost, segments })
    }

    /// The name of the delivery: that of the folder stands for it if the state is lost.
    pub fn delivery(&self, folder: &str) -> String {
        match self.state.name.as_str() {
            "" => name_of_folder(folder),
            name => name.to_owned(),
        }
    }

    /// Path of the file with the state.
    pub fn state_path(&self) -> PathBuf {
        state_path(&self.directory)
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
                // No replay can use it.
                self.segments.count_strange(&located.header);
                continue;
            };
            let metadata = stored.metadata.slice(len..);
            return Ok(Some((StoredRecord { metadata, ..stored }, refusal)));
        }
        Ok(None)
    }

    /// As [`DeadLetterScan::next_letter`], but goes on behind a segment, or the rest of one, that
    /// cannot be read. Its error is kept.
    pub fn next_readable(
        &mut self,
        unreadable: &mut Vec<FileError>,
    ) -> Result<Option<(StoredRecord, Refusal)>> {
        loop {
            match self.next_letter() {
                Err(error)
                    if error.is_of_whole_segment() || matches!(error, FileError::Io { .. }) =>
                {
                    self.segments.skip_segment();
                    unreadable.push(error);
                }
                letter => return letter,
            }
        }
    }

    /// The files in which damage was passed over so far.
    pub fn damaged(&self) -> Vec<(PathBuf, Damage)> {
        self.segments.damaged()
    }
}

/// Problems that were found when a store was opened.
#[derive(Debug, Default)]
pub struct FoundLetters {
    /// Which letters were removed, and how many were dropped, is not known: all letters that are
    /// there count as left.
    pub is_state_lost: bool,
    /// Segments that the disk refuses to read, or of which no letter can be read. They are kept
    /// until they are the oldest when room is needed. Letters that were not read are not counted.
    pub unreadable: Vec<FileError>,
    /// Segments with damage between or in their letters. They are kept in the same way, damage and
    /// all: if it is the end of the newest one, a crash may have left it of an append.
    pub damaged: Vec<(PathBuf, Damage)>,
}

/// The letters of a segment, and what else is in it.
#[derive(Default)]
pub(super) struct Walked {
    /// Of the letters at or above the floor that can be read.
    pub(super) totals: Footer,
    pub(super) damage: Damage,
    /// Headers that can be read.
    pub(super) seen: u64,
    /// No letter in the segment has a number from here on, whether it can be read or not.
    pub(super) next_number: u64,
    /// Position behind the last byte that is not unused.
    pub(super) end: u64,
}

impl Walked {
    pub(super) fn walk(&mut self, segment: &mut SegmentScan, floor: u64) -> Result<()> {
        // Nothing tells a letter that was torn from one that was damaged: all count as durable.
        let known = Known { last: None, durable_below: u64::MAX, reads_bodies: true };
        let scanned = scan(segment, Patience::none(), known, |_, header, body| {
            self.seen += 1;
            match body {
                Body::Whole(letter) if !is_letter(&letter) => self.damage.frames += 1,
                Body::Whole(_) if header.offset >= floor => {
                    self.totals.count(header.offset, header.charge);
                }
                _ => {}
            }
        })?;
        self.next_number = scanned.durable_last.map_or(0, |last| last + 1);
        self.end = scanned.durable_end.max(segment.damage_end());
        if self.end > scanned.durable_end {
            let most = (self.end - scanned.durable_end).div_ceil(FRAME_PREFIX_LEN_BYTES as u64);
            let first = segment.info().header.first_offset;
            self.next_number = self.next_number.max(first).saturating_add(most);
        }
        self.damage.add(segment.damage());
        Ok(())
    }
}

/// Whether a whole frame of a store has a refusal. Without one it cannot be replayed.
pub(crate) fn is_letter(stored: &StoredRecord) -> bool {
    Refusal::decode(&stored.metadata).is_some()
}
