//! The directory of a store: made at the start, and made anew after it was removed.

use std::path::Path;

use super::{DeadLetters, letters_left, state_path};
use crate::cursors::CursorFile;
use crate::disk::{Disk, create_if_missing, sync_above};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::CursorState;
use crate::segment::{list_segments, random_u64};

/// Letters that another process removed or moved away while the store was in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoneLetters {
    /// Files in which letters were left.
    pub files: u64,
    /// Letters in them, as far as they could be read.
    pub letters: u64,
}

impl DeadLetters {
    /// Letters that were gone when the directory was made anew, since the last call.
    pub fn take_gone(&mut self) -> GoneLetters {
        std::mem::take(&mut self.gone)
    }

    /// Makes the directory anew and forgets the files that are not in it. Does nothing about the
    /// log's directory, which the log makes anew with its own files, and nothing on another file
    /// system than before: a mount may be missing.
    pub(super) fn restore_directory(&mut self) -> Result<()> {
        let (disk, log_directory) = (&*self.disk, &self.log_directory);
        if disk.device(log_directory).at(log_directory, "cannot examine")? != self.device {
            return Err(FileError::OtherFileSystem { path: log_directory.clone() });
        }
        create_directory(disk, log_directory, &self.directory)?;
        sync_above(disk, log_directory).at(log_directory, "cannot sync the directories above")?;
        let there = list_segments(disk, &self.directory)?;
        self.state.head = self.head;
        self.state_file = CursorFile::create(disk, &state_path(&self.directory), &self.state)?;
        let (floor, gone) = (self.state.floor, &mut self.gone);
        self.stored.retain(|segment| {
            let is_there = there.iter().any(|(name, _)| *name == segment.name);
            let letters = letters_left(segment.totals, floor);
            let is_needed = segment.end > floor && (letters > 0 || segment.has_more);
            if !is_there && is_needed {
                gone.files += 1;
                gone.letters += letters;
            }
            is_there
        });
        self.is_disturbed = false;
        Ok(())
    }
}

/// The store's state, and whether it is a new one.
pub(super) fn open_state(
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
pub(super) fn create_directory(
    disk: &dyn Disk,
    log_directory: &Path,
    directory: &Path,
) -> Result<()> {
    let above = directory.parent().unwrap_or(log_directory);
    for (missing, within) in [(above, log_directory), (directory, above)] {
        create_if_missing(disk, missing).at(missing, "cannot create")?;
        disk.sync_directory(within).at(within, "cannot sync the directory")?;
    }
    Ok(())
}
