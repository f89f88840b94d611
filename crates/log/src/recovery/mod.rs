//! Opening a log on disk: finds the readers and the segments, and looks into the newest segments
//! only.
//!
//! Invariants
//! - Nothing is changed before everything could be read. The clean-up afterwards can be repeated: a
//!   crash during recovery loses nothing.
//! - The head is above every offset that a file names: a new frame must not pass for one that was
//!   resolved.
//! - A file that the disk refuses to read does not count as damaged: none of it is removed or cut.
//! - A segment that ends without a footer is never appended to.
//! - Where two segments overlap, the frames of the later one count: the earlier one failed, or is
//!   being replaced.

mod scan;

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cursor::Cursor;
use crate::cursor_file::CursorFiles;
use crate::disk::{WatchedDisk, create_directories};
use crate::error::{IoContext as _, Result};
use crate::home::{Devices, Home};
use crate::inspect::CURSORS_DIRECTORY;
use crate::log::store::{Ends, Store};
use crate::log::{Log, Shared};
use crate::maintenance::{Leftovers, Maintenance};
use crate::options::{OpenOptions, Recovered};
use crate::reader::Reader;
use crate::record::Record;
use crate::segment::random_u64;
use crate::slots::Slots;
use crate::types::{CursorId, DiskTrouble};
use crate::writer::Writer;

use scan::Recovery;

const REWRITE_DIRECTORY: &str = "rewrite";

impl<T: Record> Log<T> {
    /// Opens or creates the log of a directory. Its readers are orphans until they subscribe.
    pub fn open(mut options: OpenOptions) -> Result<(Log<T>, Recovered)> {
        let (watched, calls) = WatchedDisk::watching(options.disk);
        options.disk = watched;
        let (disk, directory) = (&*options.disk, &options.directory);
        let cursors_directory = directory.join(CURSORS_DIRECTORY);
        let mut recovery = Recovery::new(disk, directory, options.read_patience);
        recovery.patiently(|| {
            create_directories(disk, &cursors_directory).at(&cursors_directory, "cannot create")
        })?;
        let device = |path: &Path| disk.device(path).at(path, "cannot examine");
        let devices = Devices {
            own: recovery.patiently(|| device(directory))?,
            above: recovery.patiently(|| device(directory.parent().unwrap_or(Path::new("."))))?,
        };
        recovery.read_cursors(&cursors_directory)?;
        recovery.read_segments()?;
        recovery.forget_unknown_without_segments();
        recovery.pass_what_is_set_aside();
        recovery.set_damaged_cursors_aside()?;
        let rewrite_directory = directory.join(REWRITE_DIRECTORY);
        recovery.find_unfinished(&rewrite_directory);
        // Zero stands for an unknown log.
        let new_id = || (u128::from(random_u64()) << 64 | u128::from(random_u64())).max(1);
        let log_id = recovery.log_id.unwrap_or_else(new_id);
        let Recovery { cursors, lost, listed, segments, set_aside, leftovers, .. } = recovery;
        let Recovery { found, cursor_trouble, head, stats, .. } = recovery;
        let lost_names = lost.iter().cloned().collect();
        let mut files = CursorFiles { lost: lost_names, listed, ..CursorFiles::default() };
        let mut readers = Vec::new();
        for (index, (file, mut cursor)) in cursors.into_iter().enumerate() {
            cursor.left_at = head;
            files.by_reader.insert(CursorId(index), file);
            cursor.publish();
            readers.push(Some(cursor));
        }
        readers.extend(lost.into_iter().map(|name| Some(Cursor::of_lost(name))));
        let store = Store {
            segments,
            durable_below: head,
            evicted_below: head,
            due_below: head,
            memory_limit_bytes: options.memory_limit_bytes,
            read_ahead_bytes: options.read_ahead_bytes,
            flush_after: options.flush_after,
            calls: Some(calls),
            cursor_trouble,
            set_aside,
            stats,
            // Half of the range is left for further ids.
            newest_persistent_id: random_u64() as u32 / 2,
            ..Store::default()
        };
        let cursor_files = Arc::new(Mutex::new(files));
        let home =
            Home { rewrite_directory, cursors_directory, cursor_files, options, log_id, devices };
        let memory = home.options.memory.clone();
        let log = Log::of(Slots::starting_at(head), readers, memory, Some(store));
        log.start_threads(home, leftovers)?;
        Ok((log, found))
    }

    fn start_threads(&self, home: Home, leftovers: Leftovers) -> Result<()> {
        let writer = Writer::new(self.shared.clone(), home.clone());
        let maintenance = Maintenance::new(self.shared.clone(), home.clone(), leftovers);
        let reader = Reader::new(self.shared.clone(), home.clone());
        self.start(&home, "write", move || writer.run())?;
        self.start(&home, "maint", move || maintenance.run())?;
        self.start(&home, "read", move || reader.run())
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

impl<T> Shared<T> {
    fn note_panic(&self) {
        self.with_store(|store| {
            let reason = "a thread of the log ended unexpectedly: only a restart helps".to_owned();
            store.trouble =
                Some(DiskTrouble { reason, stops_writing: true, ..DiskTrouble::default() });
            store.ends = Ends::Now;
            store.writer_has_ended = true;
        });
        self.wake_all();
    }

    fn note_thread_end(&self) {
        self.with_store(|store| store.threads = store.threads.saturating_sub(1));
        self.maintenance_wake.notify_all();
    }
}
