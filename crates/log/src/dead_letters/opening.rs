//! Opening a store: its state, and the letters of earlier runs.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::{DeadLetters, Stored, directory_of, state_path};
use crate::cursor_file::{CursorFile, UNREAD_OFFSETS};
use crate::disk::{Access, Disk, create_if_missing};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{CursorState, FRAME_PREFIX_LEN_BYTES, Footer};
use crate::segment::{
    ReaderOptions, SegmentName, SegmentReader, cut_unused, list_segments, random_u64,
};

/// Problems that were found when a store was opened.
#[derive(Debug, Default)]
pub struct FoundLetters {
    /// Which letters were removed, and how many were dropped, is not known: all letters that are
    /// there count as left.
    pub is_state_lost: bool,
    /// Segments of which no letter could be read. They are kept until they are the oldest when room
    /// is needed, and their letters are not counted.
    pub unreadable: Vec<FileError>,
}

impl DeadLetters {
    /// Opens the store of a delivery below a log's directory, or creates it. It takes at most
    /// `limit_bytes` of disk: the next append removes the oldest letters beyond that.
    pub fn open(
        disk: Arc<dyn Disk>,
        log_directory: &Path,
        delivery: &str,
        limit_bytes: u64,
    ) -> Result<Self> {
        let directory = directory_of(log_directory, delivery);
        create_directory(&*disk, log_directory, &directory)?;
        let segments = list_segments(&*disk, &directory)?;
        let (state_file, state, is_lost) = open_state(&*disk, &directory, delivery)?;
        let found =
            FoundLetters { is_state_lost: is_lost && !segments.is_empty(), unreadable: Vec::new() };
        let mut letters = DeadLetters {
            head: state.head.max(state.floor),
            disk,
            directory,
            limit_bytes,
            stored: VecDeque::new(),
            writer: None,
            state_file,
            state,
            uncounted: 0,
            found,
        };
        let mut segments = segments.into_iter().peekable();
        while let Some((name, len_bytes)) = segments.next() {
            let stored = match letters.look_into(name) {
                // It stays until it is the oldest when room is needed.
                Err(error @ (FileError::Io { .. } | FileError::NoSegment { .. })) => {
                    let most = len_bytes / FRAME_PREFIX_LEN_BYTES as u64;
                    let next = segments.peek().map(|(next, _)| next.first_offset);
                    let end = next.unwrap_or(name.first_offset + most);
                    letters.found.unreadable.push(error);
                    let totals = Footer::default();
                    Some(Stored { name, len_bytes, totals, end, is_unreadable: true })
                }
                looked => looked?,
            };
            letters.head = letters.head.max(stored.as_ref().map_or(0, |stored| stored.end));
            letters.stored.extend(stored);
        }
        // If a segment cannot be removed, this is tried again when room is needed.
        let _ = letters.remove_resolved();
        Ok(letters)
    }

    /// For a disk that has refused a slot of the state for long: makes the other slot count.
    /// Removed letters may come back, and no number is given twice.
    pub fn mend_state(disk: &dyn Disk, log_directory: &Path, delivery: &str) -> Result<()> {
        let path = state_path(&directory_of(log_directory, delivery));
        let (mut file, mut state, refused) = CursorFile::open_in_part(disk, &path)?;
        state.head = state.head.max(state.floor).saturating_add(UNREAD_OFFSETS);
        if refused.is_some() { file.store(disk, &state) } else { Ok(()) }
    }

    /// Totals of a segment of an earlier run, whose unused space is cut off. None if the segment
    /// does not count.
    fn look_into(&self, name: SegmentName) -> Result<Option<Stored>> {
        let path = self.directory.join(name.to_string());
        let file = self.disk.open(&path, Access::ReadWrite).at(&path, "cannot open")?;
        let mut reader = match SegmentReader::open(file.clone(), &path, ReaderOptions::default()) {
            Err(FileError::Unfinished { .. }) => {
                self.disk.remove_file(&path).at(&path, "cannot remove")?;
                return Ok(None);
            }
            reader => reader?,
        };
        let (mut totals, mut len_bytes) = (Footer::default(), reader.info().len_bytes);
        if let Some(footer) = reader.info().footer {
            totals = footer;
        } else {
            len_bytes = reader.position();
            while let Some(located) = reader.next_frame()? {
                totals.count(located.header.offset, located.header.charge);
                len_bytes = located.end();
            }
            if totals.frames == 0 && reader.damage().is_none() {
                // A failed write may leave such a file.
                self.disk.remove_file(&path).at(&path, "cannot remove")?;
                return Ok(None);
            }
            len_bytes = cut_unused(&*file, len_bytes).at(&path, "cannot truncate")?;
        }
        let end = if totals.frames > 0 { totals.last_offset + 1 } else { name.first_offset };
        Ok(Some(Stored { name, len_bytes, totals, end, is_unreadable: false }))
    }
}

/// The store's state, and whether it is a new one.
fn open_state(
    disk: &dyn Disk,
    directory: &Path,
    delivery: &str,
) -> Result<(CursorFile, CursorState, bool)> {
    let path = state_path(directory);
    match CursorFile::open(disk, &path) {
        // Damage costs no letter: some that were removed come back.
        Err(FileError::DamagedCursor { .. }) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
        Ok((file, state)) => {
            // The process that created it may have been killed before it synced the directory.
            disk.sync_directory(directory).at(directory, "cannot sync the directory")?;
            return Ok((file, state, false));
        }
    }
    let log_id = u128::from(random_u64());
    let state = CursorState { id: 1, name: delivery.to_owned(), log_id, ..CursorState::default() };
    Ok((CursorFile::create(disk, &path, &state)?, state, true))
}

/// Creates a store's directory, durably, within a log's directory that is there.
fn create_directory(disk: &dyn Disk, log_directory: &Path, directory: &Path) -> Result<()> {
    let above = directory.parent().unwrap_or(log_directory);
    for (missing, within) in [(above, log_directory), (directory, above)] {
        create_if_missing(disk, missing).at(missing, "cannot create")?;
        disk.sync_directory(within).at(within, "cannot sync the directory")?;
    }
    Ok(())
}
