//! The files of the readers.

use std::path::Path;

use super::Maintenance;
use crate::cursor::Cursor;
use crate::cursor_file::CursorFiles;
use crate::disk::{create_if_missing, remove_if_there, sync_above};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::CursorState;
use crate::home::Home;
use crate::log::{Inner, Shared};
use crate::types::{CursorId, Offset, unix_now_ns};

/// Removes the files of removed readers. If a file cannot be removed, this is tried again later.
pub(crate) fn remove_gone<T>(files: &mut CursorFiles, shared: &Shared<T>, home: &Home) {
    let (disk, options) = (&*home.options.disk, &home.options);
    let gone = shared.with_store(|store| std::mem::take(&mut store.gone_readers));
    if gone.is_empty() {
        return;
    }
    for (id, file_name) in &gone {
        files.by_reader.remove(id);
        files.lost.remove(file_name);
    }
    // A file that is gone counts as lost as long as it is listed.
    if files.list_all(disk, &options.directory).is_err() {
        shared.with_store(|store| {
            store.stats.failures += 1;
            store.gone_readers.extend(gone);
        });
        return;
    }
    let mut left = Vec::new();
    let mut removed = false;
    for (id, file_name) in gone {
        // A new reader of the same name has a file in its place.
        let mut names = files.by_reader.values().map(|file| file.path().file_name());
        if names.any(|name| name == Some(file_name.as_ref())) {
            continue;
        }
        let path = home.cursors_directory.join(&file_name);
        match remove_if_there(disk, &path) {
            Ok(was_there) => removed |= was_there,
            Err(_) => left.push((id, file_name)),
        }
    }
    if removed {
        // If this fails, the reader may come back as an orphan after a power cut.
        let _ = disk.sync_directory(&home.cursors_directory);
    }
    shared.with_store(|store| store.gone_readers.extend(left));
}

/// Makes a log's directory anew after it was removed while the log was in use, with the files of
/// all readers: frames in it are durable from then on. Does nothing about the directory above, and
/// nothing on another file system than before: a mount may be missing.
pub(crate) fn restore_directory<T>(shared: &Shared<T>, home: &Home) -> Result<()> {
    let (disk, directory) = (&*home.options.disk, &home.options.directory);
    let check = |path: &Path, device| match disk.device(path).at(path, "cannot examine")? {
        found if found == device => Ok(()),
        _ => Err(FileError::OtherFileSystem { path: path.to_owned() }),
    };
    check(directory.parent().unwrap_or(Path::new(".")), home.devices.above)?;
    for missing in [directory, &home.cursors_directory] {
        create_if_missing(disk, missing).at(missing, "cannot create")?;
    }
    check(directory, home.devices.own)?;
    sync_above(disk, directory).at(directory, "cannot sync the directories above")?;
    let mut files = home.cursor_files.lock();
    files.forget_written();
    for (id, file) in &mut files.by_reader {
        let state = cursor_state(&shared.inner.lock(), *id, home.log_id);
        state.map_or(Ok(()), |state| file.store(disk, &state))?;
    }
    files.list_all(disk, directory)?;
    shared.with_store(|store| store.directory_is_lost = false);
    Ok(())
}

impl<T> Maintenance<T> {
    /// Writes the cursors that changed; when the log closes all of them, so that offsets go on.
    pub(super) fn store_cursors(&self, at_the_end: bool) {
        let mut failure = None;
        let mut files = self.home.cursor_files.lock();
        let readers: Vec<CursorId> = files.by_reader.keys().copied().collect();
        for id in readers {
            let Some(state) = self.take_changed(id, at_the_end) else { continue };
            let Some(file) = files.by_reader.get_mut(&id) else { continue };
            let stored_below = state.head;
            let stored = file.store(&*self.home.options.disk, &state);
            let mut inner = self.shared.inner.lock();
            inner.on_disk().stats.cursor_writes += u64::from(stored.is_ok());
            inner.on_disk().stats.failures += u64::from(stored.is_err());
            let Some(cursor) = inner.cursors[id.0].as_mut() else { continue };
            match stored {
                Ok(()) => cursor.stored_below = stored_below,
                Err(error) => {
                    cursor.is_changed = true;
                    failure = Some(error);
                }
            }
        }
        drop(files);
        let is_lost = self.shared.with_store(|store| {
            store.directory_is_lost |= failure.as_ref().is_some_and(FileError::is_gone);
            store.directory_is_lost
        });
        if is_lost {
            failure = restore_directory(&self.shared, &self.home).err();
        }
        let failure = failure.map(|error| error.trouble(false));
        self.shared.with_store(|store| store.cursor_trouble = failure);
    }

    /// The state of a reader if it is to be written, and marks it as written.
    fn take_changed(&self, id: CursorId, at_the_end: bool) -> Option<CursorState> {
        let mut inner = self.shared.inner.lock();
        inner.lift_idle(id);
        let newest = inner.on_disk().segments.first_of_newest();
        let cursor = inner.cursors[id.0].as_ref()?;
        // An unchanged cursor is written only where segments begin, for a short next start: each
        // write is a sync, and syncs delay acknowledgements.
        let is_old = newest.is_some_and(|first: Offset| cursor.stored_below < first);
        if !cursor.is_changed && !is_old && !at_the_end {
            return None;
        }
        let state = cursor_state(&inner, id, self.home.log_id)?;
        inner.cursor_mut(id).is_changed = false;
        Some(state)
    }
}

impl<T> Inner<T> {
    /// Moves a reader without unresolved frames to the head, whether it has read or not.
    fn lift_idle(&mut self, id: CursorId) {
        let head = self.slots.head();
        let is_idle = |cursor: &Cursor<T>| cursor.held().frames == 0 && cursor.floor < head;
        if self.cursors[id.0].as_ref().is_some_and(is_idle) && !self.waits_for(id) {
            self.cursor_mut(id).pass_to(head);
        }
    }
}

/// A reader's state for its file. Frames in memory only are not counted: a crash loses them.
pub(crate) fn cursor_state<T>(inner: &Inner<T>, id: CursorId, log_id: u128) -> Option<CursorState> {
    let cursor = inner.cursors[id.0].as_ref()?;
    let mut held = cursor.held();
    held.remove(cursor.unwritten);
    let (floor, resolved) = cursor.stored_progress();
    let untaken = cursor.stored_untaken(floor, &resolved);
    Some(CursorState {
        id: cursor.persistent_id,
        name: cursor.name.clone(),
        log_id,
        floor,
        resolved,
        untaken,
        head: inner.store.as_ref()?.durable_below,
        held,
        dropped: cursor.dropped,
        dropped_ranges: cursor.dropped_ranges.iter().copied().collect(),
        written_unix_ns: unix_now_ns(),
    })
}
