//! The cursor files of a log, and the list of them, which tells a lost one from one that was
//! removed on purpose.
//!
//! Invariants
//! - A file is listed before a frame of its reader is called durable. It is taken from the list
//!   before it is removed.
//! - The list stands beside the segments: it does not go with the folder of cursors. What a lost
//!   cursor needs is listed under the name for files that were set aside, until it is forgotten.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use super::Cursor;
use super::file::{CursorFile, file_name, is_cursor, replace_file};
use crate::disk::{
    Access, DirectoryEntry, Disk, create_if_missing, read_full_at, remove_if_there, sync_above,
    write_all_at,
};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{BlockError, CursorState, decode_list, encode_list};
use crate::log::{Home, Inner, Shared};
use crate::segment::{free_name, name_before};
use crate::types::{CursorId, Offset};

const LIST_NAME: &str = "cursors.list";
/// Stands for all readers if neither a list nor a cursor file is left.
const UNKNOWN: &str = "unknown.cursor";

/// The cursor files of a log that is open.
pub(crate) struct CursorFiles {
    by_reader: HashMap<CursorId, CursorFile>,
    /// Names of lost cursors that are not forgotten.
    lost: BTreeSet<String>,
    /// The list on disk, if it is known.
    listed: Option<BTreeSet<String>>,
    /// The names of directories, and of cursor files that were found, may not be durable: a process
    /// may have ended before it synced the directory.
    has_unsynced_names: bool,
}

impl CursorFiles {
    /// The files that were found at the start.
    pub(crate) fn found(
        by_reader: HashMap<CursorId, CursorFile>,
        lost: BTreeSet<String>,
        listed: Option<BTreeSet<String>>,
    ) -> Self {
        CursorFiles { by_reader, lost, listed, has_unsynced_names: true }
    }

    /// Creates the files of new readers. Then the names of all cursor files are durable, and the
    /// list on disk has them.
    pub(crate) fn create<T>(
        &mut self,
        newcomers: &[CursorId],
        shared: &Shared<T>,
        home: &Home,
    ) -> Result<()> {
        let (disk, directory) = (&*home.options.disk, &home.options.directory);
        self.remove_gone(shared, home);
        if !self.lost.is_empty() {
            // A new file must not pass for a lost one of its name.
            self.list_all(disk, directory)?;
        }
        for &id in newcomers {
            let state = shared.inner.lock().cursor_state(id, home.log_id);
            // A reader that has been removed meanwhile needs no file.
            let Some(state) = state else { continue };
            let file_name = file_name(&state.name);
            let path = home.cursors_directory.join(&file_name);
            self.by_reader.insert(id, CursorFile::create(disk, &path, &state)?);
            let mut inner = shared.inner.lock();
            inner.on_disk().stats.cursor_writes += 1;
            match inner.cursors[id.0].as_mut() {
                Some(cursor) => cursor.has_file = true,
                None => inner.on_disk().gone_readers.push((id, file_name)),
            }
        }
        if self.has_unsynced_names {
            for own in [&home.cursors_directory, directory] {
                disk.sync_directory(own).at(own, "cannot sync the directory")?;
            }
            sync_above(disk, directory).at(directory, "cannot sync the directories above")?;
            self.has_unsynced_names = false;
        }
        self.list_all(disk, directory)
    }

    /// Writes the cursors that changed; when the log closes all of them, so that offsets go on.
    /// Then removes the files of removed readers.
    pub(crate) fn store<T>(&mut self, shared: &Shared<T>, home: &Home, at_the_end: bool) {
        let mut failure = None;
        for (&id, file) in &mut self.by_reader {
            let state = shared.inner.lock().take_changed(id, home.log_id, at_the_end);
            let Some(state) = state else { continue };
            let stored_below = state.head;
            let stored = file.store(&*home.options.disk, &state);
            let mut inner = shared.inner.lock();
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
        let is_lost = shared.with_store(|store| {
            store.directory_is_lost |= failure.as_ref().is_some_and(FileError::is_gone);
            store.directory_is_lost
        });
        if is_lost {
            failure = self.restore_directory(shared, home).err();
        }
        let failure = failure.map(|error| error.trouble(false));
        shared.with_store(|store| store.cursor_trouble = failure);
        self.remove_gone(shared, home);
    }

    /// Removes the files of removed readers. If one cannot be removed, this is tried again later.
    pub(crate) fn remove_gone<T>(&mut self, shared: &Shared<T>, home: &Home) {
        let (disk, directory) = (&*home.options.disk, &home.options.directory);
        let gone = shared.with_store(|store| std::mem::take(&mut store.gone_readers));
        if gone.is_empty() {
            return;
        }
        for (id, file_name) in &gone {
            self.by_reader.remove(id);
            self.lost.remove(file_name);
        }
        // A file that is gone counts as lost as long as it is listed.
        if self.list_all(disk, directory).is_err() {
            shared.with_store(|store| {
                store.stats.failures += 1;
                store.gone_readers.extend(gone);
            });
            return;
        }
        let (mut left, mut removed) = (Vec::new(), false);
        for (id, file_name) in gone {
            // A new reader of the same name has a file in its place.
            let mut names = self.by_reader.values().map(|file| file.path().file_name());
            if names.any(|name| name == Some(file_name.as_ref())) {
                continue;
            }
            match remove_if_there(disk, &home.cursors_directory.join(&file_name)) {
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

    /// Makes a log's directory anew after it was removed while the log was in use, with the files
    /// of all readers: frames in it are durable from then on. Does nothing about the directory
    /// above, and nothing on another file system than before: a mount may be missing.
    pub(crate) fn restore_directory<T>(&mut self, shared: &Shared<T>, home: &Home) -> Result<()> {
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
        // All that was in it has to be written again.
        self.listed = None;
        self.by_reader.values_mut().for_each(CursorFile::forget_written);
        for (&id, file) in &mut self.by_reader {
            let state = shared.inner.lock().cursor_state(id, home.log_id);
            state.map_or(Ok(()), |state| file.store(disk, &state))?;
        }
        self.list_all(disk, directory)?;
        shared.with_store(|store| store.directory_is_lost = false);
        Ok(())
    }

    /// Makes the list on disk name all files and all lost cursors, if it does not.
    fn list_all(&mut self, disk: &dyn Disk, log_directory: &Path) -> Result<()> {
        let names = self.by_reader.values().filter_map(|file| file.path().file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        let names = names.chain(self.lost.iter().cloned()).collect();
        if self.listed.as_ref() != Some(&names) {
            // After an error the file may be the old or the new one.
            self.listed = None;
            let path = log_directory.join(LIST_NAME);
            let text = encode_list(&names);
            replace_file(disk, &path, |file, temporary| {
                write_all_at(file, text.as_bytes(), 0).at(temporary, "cannot write")
            })?;
            self.listed = Some(names);
        }
        Ok(())
    }
}

impl<T> Inner<T> {
    /// The state of a reader for its file.
    fn cursor_state(&self, id: CursorId, log_id: u128) -> Option<CursorState> {
        let head = self.store.as_ref()?.durable_below;
        self.cursors[id.0].as_ref().map(|cursor| cursor.state(log_id, head))
    }

    /// The state of a reader if it is to be written, and marks it as written.
    fn take_changed(
        &mut self,
        id: CursorId,
        log_id: u128,
        at_the_end: bool,
    ) -> Option<CursorState> {
        self.lift_idle(id);
        let newest = self.on_disk().segments.first_of_newest();
        let cursor = self.cursors[id.0].as_ref()?;
        // An unchanged cursor is written only where segments begin, for a short next start: each
        // write is a sync, and syncs delay acknowledgements.
        let is_old = newest.is_some_and(|first: Offset| cursor.stored_below < first);
        if !cursor.is_changed && !is_old && !at_the_end {
            return None;
        }
        let state = self.cursor_state(id, log_id)?;
        self.cursor_mut(id).is_changed = false;
        Some(state)
    }

    /// Moves a reader without unresolved frames to the head, whether it has read or not.
    fn lift_idle(&mut self, id: CursorId) {
        let head = self.slots.head();
        let is_idle = |cursor: &Cursor<T>| cursor.held().frames == 0 && cursor.floor < head;
        if self.cursors[id.0].as_ref().is_some_and(is_idle) && !self.waits_for(id) {
            self.cursor_mut(id).pass_to(head);
        }
    }
}

/// Reads the list of a log. None if there is none: no release that has one ever wrote here.
pub(crate) fn read_list(disk: &dyn Disk, log_directory: &Path) -> Result<Option<BTreeSet<String>>> {
    let path = log_directory.join(LIST_NAME);
    let file = match disk.open(&path, Access::Read).at(&path, "cannot open") {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    let len_bytes = file.len_bytes().at(&path, "cannot read the length")?;
    let mut bytes = vec![0; len_bytes as usize];
    let len = read_full_at(&*file, &mut bytes, 0).at(&path, "cannot read")?;
    match decode_list(&bytes[..len]) {
        Ok(names) => Ok(Some(names)),
        Err(BlockError::NewerVersion { found }) => Err(FileError::NewerVersion { path, found }),
        Err(BlockError::Empty | BlockError::Damaged) => Err(FileError::DamagedList { path }),
    }
}

/// The cursor files that are there, and those that are listed.
pub(crate) struct FoundCursors<'a> {
    /// Of the folder of cursors.
    pub(crate) entries: &'a [DirectoryEntry],
    pub(crate) listed: Option<&'a BTreeSet<String>>,
    /// The log has a segment with a frame.
    pub(crate) has_segments: bool,
}

impl FoundCursors<'_> {
    /// The lost cursors of a log, by the names under which everything on disk is kept for them; and
    /// the names that the damaged ones among them get, which are to be set aside.
    pub(crate) fn lost(&self, damaged: Vec<String>) -> (BTreeSet<String>, Vec<(String, String)>) {
        let mut lost = self.missing();
        let mut asides = Vec::new();
        for name in damaged {
            let aside = free_name(&name, |aside| self.has(aside) || lost.contains(aside));
            lost.insert(aside.clone());
            asides.push((name, aside));
        }
        (lost, asides)
    }

    /// Those that were set aside or are gone.
    pub(crate) fn missing(&self) -> BTreeSet<String> {
        let names = || self.entries.iter().map(|entry| &entry.name);
        let is_set_aside = |name: &&String| name_before(name).is_some_and(is_cursor);
        let listed = || self.listed.into_iter().flatten();
        let mut lost: BTreeSet<_> = names().chain(listed()).filter(is_set_aside).cloned().collect();
        for name in listed().filter(|name| is_cursor(name) && !self.has(name)) {
            if !lost.iter().any(|lost| name_before(lost) == Some(name)) {
                lost.insert(free_name(name, |_| false));
            }
        }
        let is_empty = lost.is_empty() && !names().any(|name| is_cursor(name));
        if is_empty && self.listed.is_none() && self.has_segments {
            lost.insert(free_name(UNKNOWN, |_| false));
        }
        lost
    }

    fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name)
    }
}

/// Whether a lost cursor stands for all readers.
pub(crate) fn is_unknown(lost: &str) -> bool {
    name_before(lost) == Some(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_and_gone_is_lost() {
        let entry = |name: &&str| DirectoryEntry {
            name: (*name).to_owned(),
            is_directory: false,
            len_bytes: 1,
        };
        let lost_of = |there: &[&str], listed: Option<&[&str]>| {
            let entries: Vec<_> = there.iter().map(entry).collect();
            let listed: Option<BTreeSet<_>> =
                listed.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            let found =
                FoundCursors { entries: &entries, listed: listed.as_ref(), has_segments: true };
            found.missing().into_iter().collect::<Vec<_>>()
        };
        assert!(lost_of(&["a.cursor"], Some(&["a.cursor"])).is_empty());
        assert!(lost_of(&[], Some(&[])).is_empty());
        assert!(lost_of(&["a.cursor"], None).is_empty());
        let aside = "b.cursor.damaged-2";
        assert_eq!(lost_of(&["a.cursor"], Some(&["b.cursor"])), ["b.cursor.damaged"]);
        assert_eq!(lost_of(&[aside], Some(&["b.cursor"])), [aside], "one for both");
        assert_eq!(lost_of(&["b.cursor"], Some(&["b.cursor", aside])), [aside], "two of a name");
        assert_eq!(lost_of(&[aside], None), [aside]);
        assert_eq!(lost_of(&[], None), ["unknown.cursor.damaged"]);
        let new_log = FoundCursors { entries: &[], listed: None, has_segments: false };
        assert!(new_log.missing().is_empty());
    }
}
