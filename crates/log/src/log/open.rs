//! Opening a log: finds the cursors and the segments on disk, looks into the newest segments only,
//! and starts the threads.
//!
//! Invariants
//! - Nothing is changed before everything could be read.
//! - The head is above every offset that a file names: a new frame must not pass for one that was
//!   resolved.
//! - Where two segments overlap, the frames of the later one count: the earlier one failed, or is
//!   being replaced.

mod identity;
mod segments;
mod show;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Devices, Home, Log, Slots, Store};
use crate::cursors::{
    CURSOR_EXTENSION, CURSORS_DIRECTORY, Cursor, CursorFile, CursorFiles, FoundCursors,
    TEMPORARY_EXTENSION, UNREAD_OFFSETS, is_unknown, read_list,
};
use crate::disk::{Disk, WatchedDisk, create_directories};
use crate::error::{FileError, IoContext as _, Result};
use crate::maintenance::Maintenance;
use crate::missing::missing_at_start;
use crate::read_ahead::ReadAhead;
use crate::recovery::{Leftovers, OpenOptions, Patience, Recovered};
use crate::segment::{list_if_there, list_segments, random_u64};
use crate::types::{CursorId, Offset, Record};
use crate::writer::Writer;

const REWRITE_DIRECTORY: &str = "rewrite";

impl<T: Record> Log<T> {
    /// Opens or creates the log of a directory. Its readers are orphans until they subscribe.
    pub fn open(mut options: OpenOptions) -> Result<(Log<T>, Recovered)> {
        let (watched, calls) = WatchedDisk::watching(options.disk);
        options.disk = Arc::new(watched.clone());
        let patience = Patience::of(options.read_patience);
        let mut home = prepare(options, patience)?;
        let recovery = Recovery::find(&home, patience)?;
        let log_id = recovery.log_id.unwrap_or_else(|| recovery.id_without_a_known_one());
        let Recovery { cursors, listed, store, leftovers, found, head, .. } = recovery;
        home.log_id = log_id;
        if let Some(companion) = &home.options.companion {
            let Home { options, .. } = &home;
            let (disk, segments) = (&*options.disk, &store.segments);
            let of_readers = cursors.iter().map(|(_, cursor)| cursor);
            show::show_found(&**companion, of_readers, disk, &options.directory, segments, head);
        }
        let (mut files, mut readers) = (HashMap::new(), Vec::new());
        for (index, (file, mut cursor)) in cursors.into_iter().enumerate() {
            cursor.left_at = head;
            cursor.missing_frames = found.missing.of(&cursor.name);
            files.insert(CursorId(index), file);
            cursor.publish();
            readers.push(Some(cursor));
        }
        let lost = found.lost_cursors.iter().cloned();
        readers.extend(lost.clone().map(|name| Some(Cursor::of_lost(name))));
        let files = CursorFiles::found(files, lost.collect(), listed);
        let store = Store {
            durable_below: head,
            evicted_below: head,
            due_below: head,
            memory_limit_bytes: home.options.memory_limit_bytes,
            read_ahead_bytes: home.options.read_ahead_bytes,
            flush_after: home.options.flush_after,
            calls: Some(calls),
            // Half of the range is left for further ids.
            newest_persistent_id: random_u64() as u32 / 2,
            ..store
        };
        let memory = home.options.memory.clone();
        let log = Log::of(Slots::starting_at(head), readers, memory, Some(store));
        log.start_threads(home, Arc::new(watched.of_writer()), files, leftovers)?;
        Ok((log, found))
    }

    fn start_threads(
        &self,
        home: Home,
        writers_disk: Arc<dyn Disk>,
        files: CursorFiles,
        leftovers: Leftovers,
    ) -> Result<()> {
        let files = Arc::new(Mutex::new(files));
        let mut of_writer = home.clone();
        of_writer.options.disk = writers_disk;
        let writer = Writer::new(self.shared.clone(), of_writer, files.clone());
        let maintenance = Maintenance::new(self.shared.clone(), home.clone(), files, leftovers);
        let read_ahead = ReadAhead::new(self.shared.clone(), home.clone());
        self.start(&home, "write", move || writer.run())?;
        self.start(&home, "maint", move || maintenance.run())?;
        self.start(&home, "read", move || read_ahead.run())
    }

    fn start(&self, home: &Home, does: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        // Thread names are cut at 15 bytes.
        let thread = std::thread::Builder::new().name(format!("log-{does}-{}", home.options.name));
        let shared = self.shared.clone();
        shared.with_store(|store| store.threads += 1);
        let run = move || {
            // The state that a panic leaves is not relied on: nothing is made durable any more.
            if std::panic::catch_unwind(AssertUnwindSafe(run)).is_err() {
                shared.note_panic();
            }
            shared.note_thread_end();
        };
        let started = thread.spawn(run).at(&home.options.directory, "cannot start a thread");
        started.map(drop).inspect_err(|_| self.shared.note_thread_end())
    }
}

/// Creates the directories of a log that are missing. The log's id is not known yet.
fn prepare(options: OpenOptions, patience: Patience) -> Result<Home> {
    let (disk, directory) = (&*options.disk, &options.directory);
    let cursors_directory = directory.join(CURSORS_DIRECTORY);
    patience.ask(|| {
        create_directories(disk, &cursors_directory).at(&cursors_directory, "cannot create")
    })?;
    let device = |path: &Path| patience.ask(|| disk.device(path).at(path, "cannot examine"));
    let own = device(directory)?;
    let above = device(directory.parent().unwrap_or(Path::new(".")))?;
    let rewrite_directory = directory.join(REWRITE_DIRECTORY);
    let devices = Devices { own, above };
    Ok(Home { options, cursors_directory, rewrite_directory, log_id: 0, devices })
}

/// Everything that was found on disk.
struct Recovery<'a, T> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    patience: Patience,
    log_id: Option<u128>,
    cursors: Vec<(CursorFile, Cursor<T>)>,
    /// Files that are to be set aside, and the names that they get: cursor files of which nothing
    /// can be read, and misnamed segments.
    renames: Vec<(PathBuf, String)>,
    /// The list of cursor files, if it is known.
    listed: Option<BTreeSet<String>>,
    /// Its segments, what was set aside, and troubles so far.
    store: Store,
    leftovers: Leftovers,
    found: Recovered,
    head: Offset,
    /// The cursor files count the backlog below this offset; above it, the scan counts.
    counted_from: Offset,
}

impl<'a, T: Record> Recovery<'a, T> {
    fn find(home: &'a Home, patience: Patience) -> Result<Self> {
        let mut recovery = Recovery {
            disk: &*home.options.disk,
            directory: &home.options.directory,
            patience,
            log_id: None,
            cursors: Vec::new(),
            renames: Vec::new(),
            listed: None,
            store: Store::default(),
            leftovers: Leftovers::default(),
            found: Recovered::default(),
            head: 0,
            counted_from: Offset::MAX,
        };
        recovery.read_cursors(&home.cursors_directory)?;
        recovery.found.missing = missing_at_start(recovery.disk, recovery.directory);
        recovery.read_segments()?;
        recovery.forget_unknown_without_segments();
        recovery.pass_what_is_set_aside();
        recovery.rename()?;
        recovery.find_unfinished(&home.rewrite_directory);
        Ok(recovery)
    }

    fn read_cursors(&mut self, directory: &Path) -> Result<()> {
        self.listed = match self.patience.ask(|| read_list(self.disk, self.directory)) {
            Err(FileError::DamagedList { path }) => {
                self.found.damaged_list = Some(path);
                None
            }
            listed => listed?,
        };
        let list = || self.disk.list(directory).at(directory, "cannot list");
        let mut entries = self.patience.ask(list)?;
        entries.retain(|entry| !entry.is_directory);
        let mut damaged = Vec::new();
        for entry in &entries {
            let path = directory.join(&entry.name);
            if entry.name.ends_with(TEMPORARY_EXTENSION) {
                self.leftovers.files.push(path);
            } else if entry.name.ends_with(CURSOR_EXTENSION) && self.read_cursor(&path)? {
                damaged.push(entry.name.clone());
            }
        }
        let segments = self.patience.ask(|| list_segments(self.disk, self.directory))?;
        let found = FoundCursors {
            entries: &entries,
            listed: self.listed.as_ref(),
            has_segments: !segments.is_empty(),
        };
        let (lost, damaged) = found.lost(damaged);
        self.renames =
            damaged.into_iter().map(|(name, aside)| (directory.join(name), aside)).collect();
        self.found.cursors = self.cursors.len() as u64;
        self.found.lost_cursors = lost.into_iter().collect();
        Ok(())
    }

    /// Files without a frame, which a failed write may leave, are of no reader.
    fn forget_unknown_without_segments(&mut self) {
        if self.store.segments.by_first.is_empty() {
            self.found.lost_cursors.retain(|name| !is_unknown(name));
        }
    }

    /// Sets files aside.
    fn rename(&self) -> Result<()> {
        for (path, aside) in &self.renames {
            self.patience.ask(|| match self.disk.rename(path, &path.with_file_name(aside)) {
                // An earlier try renamed it and was answered with an error.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                renamed => renamed.at(path, "cannot set aside"),
            })?;
        }
        Ok(())
    }

    /// True if nothing in the file can be read, although the disk does not refuse to.
    fn read_cursor(&mut self, path: &Path) -> Result<bool> {
        let opened = self.patience.ask(|| CursorFile::open(self.disk, path));
        let opened = match opened {
            Err(FileError::Io { .. }) => CursorFile::open_in_part(self.disk, path),
            opened => opened.map(|(file, state)| (file, state, None)),
        };
        let (file, state, refused) = match opened {
            Err(FileError::DamagedCursor { .. }) => return Ok(true),
            opened => opened?,
        };
        self.check_log_id(path, state.log_id)?;
        let last_end = state.resolved.last().map_or(0, |&(_, end)| end);
        let mut head = last_end.max(state.floor).max(state.head);
        let mut cursor = Cursor::from_state(state);
        if let Some(refused) = refused {
            self.store.cursor_trouble = Some(refused.trouble(false));
            self.found.cursors_refused.push(path.to_owned());
            head = head.saturating_add(UNREAD_OFFSETS);
            // The next write replaces the file, and with it the refused slot.
            cursor.is_changed = true;
        }
        self.head = self.head.max(head);
        self.cursors.push((file, cursor));
        Ok(false)
    }

    /// The offsets in the newest file that was set aside are not given again: readers may know of
    /// none of them.
    fn go_on_behind_set_aside(&mut self) {
        let newest = self.store.set_aside.last().map(|file| file.name.first_offset);
        let Some(newest) = newest else { return };
        if self.store.segments.by_first.keys().next_back().is_none_or(|&first| first <= newest) {
            self.head = self.head.max(newest.saturating_add(UNREAD_OFFSETS));
        }
    }

    /// Between a file that was set aside and the next one, readers pass what they have not
    /// resolved, as they did when they came to it. Only a file that was put back is read again.
    fn pass_what_is_set_aside(&mut self) {
        let aside: BTreeSet<Offset> =
            self.store.set_aside.iter().map(|file| file.name.first_offset).collect();
        let mut firsts: BTreeSet<Offset> = self.store.segments.by_first.keys().copied().collect();
        firsts.extend(&aside);
        for first in
            aside.into_iter().filter(|first| !self.store.segments.by_first.contains_key(first))
        {
            let until = firsts.range(first + 1..).next().copied().unwrap_or(self.head);
            self.cursors.iter_mut().for_each(|(_, cursor)| cursor.pass_unresolved(first, until));
        }
    }

    /// Finds segments that an earlier process had not finished rewriting. Best effort.
    fn find_unfinished(&mut self, directory: &Path) {
        let left = list_if_there(self.disk, directory).unwrap_or_default();
        self.leftovers.files.extend(left.into_iter().map(|left| directory.join(left.name)));
    }

    /// Frames below were durable, by the readers' files.
    fn durable_below(&self) -> Offset {
        self.cursors.iter().map(|(_, cursor)| cursor.stored_below).max().unwrap_or(0)
    }
}
