//! The log of one signal: a memory tail, and segment files behind it if it has a directory.
//!
//! Here is the state under the log's lock, and what its threads share beside it. In the order in
//! which one reads them: `tail` (appending, leasing, resolving, evicting), `readers` (who come and
//! go, and figures), `segments` (which files there are, who needs them), `shed` (budgets and giving
//! up frames), `open` (finding what is on disk, starting the threads).
//!
//! Invariants
//! - A frame is stored once, whatever the number of readers; it is freed as soon as every reader
//!   that it was appended for has resolved it; a reader that lags pins only its unresolved frames.
//! - Offsets from `evicted_below` on are in memory or resolved everywhere; below it they are on
//!   disk or resolved everywhere. Offsets below `durable_below` are durable or resolved everywhere.
//!   `evicted_below <= durable_below <= head`: a frame that is not durable stays in memory whatever
//!   fails, and is written again.
//! - Frames become durable in the order of offsets.
//! - A segment is removed only when no reader has an unresolved frame in it (see [`segments`]).
//! - The log's lock is never kept during a system call, and no callback of a reader runs under it.

mod names;
mod open;
mod readers;
mod segments;
mod shed;
#[cfg(test)]
mod shed_tests;
mod tail;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::cursors::Cursor;
use crate::disk::{BadBlocks, CallKind, Calls};
use crate::error::{IoContext as _, Result};
use crate::format::FileKind;
use crate::recovery::OpenOptions;
use crate::segment::{
    ScanOptions, SegmentScan, SegmentWriter, SetAside, Unremoved, new_header, random_u64,
};
use crate::types::{Charge, CursorId, DiskTrouble, Holding, LogStats, MemoryUse, Offset};

use segments::Segments;
pub(crate) use segments::{Change, DiskFrame, Ids, Passed, Pin, Segment, Shed};
pub use shed::GivenUp;
use tail::Slots;

/// Closing waits this long for the last system calls of the threads.
const LAST_CALL: Duration = Duration::from_secs(2);

/// A disk that answers sooner is worth waiting for.
const HANGS_AFTER: Duration = Duration::from_secs(1);

/// Above this many files without durable frames that cannot be removed, no segment is begun.
const LEFT_MAX: usize = 4;

/// An append-only sequence of shared entries with one cursor a reader.
pub struct Log<T> {
    shared: Arc<Shared<T>>,
    instance: u128,
}

/// State that the log and its threads share.
pub(crate) struct Shared<T> {
    pub(crate) inner: Mutex<Inner<T>>,
    pub(crate) writer_wake: Condvar,
    pub(crate) read_ahead_wake: Condvar,
    /// The maintenance thread waits on it, and so does the caller that closes the log.
    pub(crate) maintenance_wake: Condvar,
}

pub(crate) struct Slot<T> {
    pub(crate) entry: Arc<T>,
    /// The readers that this entry was appended for.
    pub(crate) readers: Arc<[CursorId]>,
    unresolved: u32,
    /// XOR of the unresolved readers' ids; equals the id when one is left.
    unresolved_ids: usize,
    /// Some reader has taken it; best-effort readers do not count.
    pub(crate) is_taken: bool,
    pub(crate) is_durable: bool,
    pub(crate) charge: Charge,
    pub(crate) appended: Instant,
}

pub(crate) struct Inner<T> {
    pub(crate) slots: Slots<Slot<T>>,
    pub(crate) cursors: Vec<Option<Cursor<T>>>,
    /// Bytes of entries that are in memory and not resolved everywhere.
    stored_bytes: u64,
    /// Memory use of all logs that share this memory.
    pub(crate) memory: Arc<MemoryUse>,
    /// Offset at which the next search for entries that all their readers may give up starts.
    shed_from: u64,
    /// The part on disk, if there is one.
    pub(crate) store: Option<Store>,
}

/// The state of the part on disk. Guarded by the log's lock.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) segments: Segments,
    pub(crate) set_aside: Vec<SetAside>,
    pub(crate) unremoved: Vec<Unremoved>,
    /// Changes that other processes made to files in use, until they are asked for.
    pub(crate) disturbances: Vec<String>,
    /// Files that failed writes left and that could not be removed. Maintenance takes them.
    pub(crate) left_files: Vec<PathBuf>,
    /// Files that were left so and are still there.
    pub(crate) left_there: BTreeSet<PathBuf>,
    /// Everything below is durable or resolved everywhere.
    pub(crate) durable_below: Offset,
    /// Everything below is on disk only, or resolved everywhere.
    pub(crate) evicted_below: Offset,
    /// Everything below is to be written now.
    pub(crate) due_below: Offset,
    pub(crate) unwritten_bytes: u64,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) read_ahead_bytes: u64,
    /// A frame that is not resolved everywhere is due after this time.
    pub(crate) flush_after: Duration,
    /// The writer thread waits for the next frame, due or not.
    pub(crate) writer_is_idle: bool,
    /// Threads that run. Closing the log waits for them.
    threads: u32,
    pub(crate) writer_has_ended: bool,
    pub(crate) ends: Ends,
    /// Segments were given up for their space: maintenance removes them soon.
    pub(crate) has_shed: bool,
    /// Calls that the disk has not answered.
    calls: Option<Arc<Calls>>,
    /// The directory was removed, and is not yet made anew with all cursor files.
    pub(crate) directory_is_lost: bool,
    /// Why frames cannot be written, if they cannot.
    pub(crate) trouble: Option<DiskTrouble>,
    /// Why cursors cannot be written, if they cannot.
    pub(crate) cursor_trouble: Option<DiskTrouble>,
    /// Why segments cannot be read, if they cannot.
    pub(crate) read_trouble: Option<DiskTrouble>,
    /// Without what the segments, the cursors and the files that were set aside say by themselves.
    pub(crate) stats: LogStats,
    /// Removed readers whose files are to be removed, with the file names.
    pub(crate) gone_readers: Vec<(CursorId, String)>,
    /// Counted from a random number at each start: segments may name readers of which nothing else
    /// is left, and a new reader must not get the id of one of them.
    newest_persistent_id: u32,
}

/// Whether the log is closing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ends {
    #[default]
    No,
    /// Unresolved frames are written, then the cursors. Maintenance acts last.
    Closing,
    /// Nothing more is written.
    Now,
}

impl<T> Default for Log<T> {
    /// A log in memory.
    fn default() -> Self {
        Log::in_memory(Arc::default())
    }
}

impl<T> Log<T> {
    /// A log in memory that shares its memory with other logs.
    pub fn in_memory(memory: Arc<MemoryUse>) -> Self {
        Log::of(Slots::starting_at(0), Vec::new(), memory, None)
    }

    fn of(
        slots: Slots<Slot<T>>,
        cursors: Vec<Option<Cursor<T>>>,
        memory: Arc<MemoryUse>,
        store: Option<Store>,
    ) -> Self {
        let inner = Inner { slots, cursors, stored_bytes: 0, memory, shed_from: 0, store };
        let shared = Shared {
            inner: Mutex::new(inner),
            writer_wake: Condvar::new(),
            read_ahead_wake: Condvar::new(),
            maintenance_wake: Condvar::new(),
        };
        let [high, low] = [(); 2].map(|()| u128::from(random_u64()));
        Log { shared: Arc::new(shared), instance: high << 64 | low }
    }

    /// A random id of this log in this process: after a crash, offsets that no file names are given
    /// again.
    pub fn instance(&self) -> u128 {
        self.instance
    }

    /// Changes when frames are written, how much memory frames on disk may use, and how much is
    /// read ahead (reload).
    pub fn set_disk_limits(&self, flush_after: Duration, memory_bytes: u64, read_ahead_bytes: u64) {
        if let Some(store) = &mut self.shared.inner.lock().store {
            store.flush_after = flush_after;
            store.memory_limit_bytes = memory_bytes;
            store.read_ahead_bytes = read_ahead_bytes;
            self.shared.writer_wake.notify_one();
        }
    }

    /// Writes unresolved frames, then the cursors, and ends the threads, in little more than
    /// `timeout`. Returns the frames that were not written: in memory, all that are unresolved.
    /// Readers should have gone or been rewound. Frames appended afterwards stay in memory.
    pub fn close(&self, timeout: Duration) -> Holding {
        let deadline = Instant::now() + timeout;
        let mut inner = self.shared.inner.lock();
        if let Some(store) = &mut inner.store
            && store.ends == Ends::No
        {
            store.ends = Ends::Closing;
            self.shared.wake_all();
            let goes_on = |inner: &mut Inner<T>| inner.on_disk().ends == Ends::Closing;
            self.shared.maintenance_wake.wait_while_until(&mut inner, goes_on, deadline);
        }
        self.end_threads(&mut inner);
        inner.unwritten()
    }

    /// A thread that gets no answer from the disk is left behind, as [`Log::trouble`] then says.
    fn end_threads(&self, inner: &mut MutexGuard<'_, Inner<T>>) {
        let Some(store) = &mut inner.store else { return };
        store.ends = Ends::Now;
        self.shared.wake_all();
        let runs = |inner: &mut Inner<T>| inner.on_disk().threads > 0;
        self.shared.maintenance_wake.wait_while_for(inner, runs, LAST_CALL);
        let store = inner.on_disk();
        let left_behind = std::mem::take(&mut store.threads);
        if left_behind > 0 {
            let reason = format!("threads that got no answer from it: {left_behind}, left behind");
            store.trouble = Some(DiskTrouble::of_writing(reason));
        }
    }
}

impl<T> Drop for Log<T> {
    /// Without [`Log::close`] before: as if the process had been killed.
    fn drop(&mut self) {
        self.end_threads(&mut self.shared.inner.lock());
    }
}

impl<T> Slot<T> {
    fn is_for(&self, id: CursorId) -> bool {
        self.readers.contains(&id)
    }
}

impl<T> Shared<T> {
    pub(crate) fn with_store<A>(&self, act: impl FnOnce(&mut Store) -> A) -> A {
        act(self.inner.lock().on_disk())
    }

    fn wake_all(&self) {
        self.writer_wake.notify_all();
        self.read_ahead_wake.notify_all();
        self.maintenance_wake.notify_all();
    }
}

impl<T> Inner<T> {
    pub(crate) fn cursor(&self, id: CursorId) -> &Cursor<T> {
        self.cursors[id.0].as_ref().expect("a reader is not used after it unsubscribed")
    }

    pub(crate) fn cursor_mut(&mut self, id: CursorId) -> &mut Cursor<T> {
        self.cursors[id.0].as_mut().expect("a reader is not used after it unsubscribed")
    }

    /// Adds to or removes from the gauge of the only reader that has not resolved a slot.
    fn note_alone(&self, unresolved_ids: usize, bytes: u64, is_alone: bool) {
        if let Some(cursor) = self.cursors.get(unresolved_ids).and_then(Option::as_ref) {
            let alone_bytes = &cursor.gauges.alone_bytes;
            if is_alone { alone_bytes.add(bytes) } else { alone_bytes.remove(bytes) }
        }
    }

    fn note_let_go(&mut self, bytes: u64) {
        self.stored_bytes -= bytes;
        self.memory.stored_bytes.remove(bytes);
    }

    /// Offsets below are not in memory.
    pub(crate) fn evicted_below(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.evicted_below)
    }

    /// For the threads, which only a log on disk has.
    pub(crate) fn on_disk(&mut self) -> &mut Store {
        self.store.as_mut().expect("a log with threads is on disk")
    }

    /// Frames that are neither durable nor resolved everywhere.
    fn unwritten(&self) -> Holding {
        let durable_below = self.store.as_ref().map_or(0, |store| store.durable_below);
        let live = self.slots.live_from(durable_below).filter(|(_, slot)| !slot.is_durable);
        live.map(|(_, slot)| slot.charge).collect()
    }
}

impl Store {
    /// Leaves a file without durable frames to the maintenance.
    pub(crate) fn leave(&mut self, path: PathBuf) {
        self.left_there.insert(path.clone());
        self.left_files.push(path);
    }

    /// A disk that neither keeps nor removes what is written would be filled with files.
    pub(crate) fn refuse_to_fill_up(&self) -> Result<()> {
        let first = self.left_there.first().filter(|_| self.left_there.len() > LEFT_MAX);
        let Some(path) = first else { return Ok(()) };
        let error = io::Error::other("it has no durable frames, and others like it stay as well");
        Err(error).at(path, "cannot remove")
    }

    /// The trouble of a disk that gives neither an answer nor an error.
    fn hang(&self) -> Option<DiskTrouble> {
        let calls = self.calls.as_ref()?;
        let kinds = [(CallKind::Write, "a write", true), (CallKind::Read, "a read", false)];
        kinds.into_iter().find_map(|(kind, what, stops_writing)| {
            let without_answer = calls.longest(kind).filter(|it| *it >= HANGS_AFTER)?;
            let reason = format!("no answer to {what} for {} s", without_answer.as_secs());
            let trouble = DiskTrouble { reason, stops_writing, ..DiskTrouble::default() };
            Some(DiskTrouble { without_answer, ..trouble })
        })
    }
}

/// Paths, options and id of a log on disk, which its threads share beside the lock.
#[derive(Clone)]
pub(crate) struct Home {
    /// As they were at the start. The store has the current values of what a reload changes.
    pub(crate) options: OpenOptions,
    pub(crate) cursors_directory: PathBuf,
    /// Rewritten segments are created here before they replace old ones.
    pub(crate) rewrite_directory: PathBuf,
    pub(crate) log_id: u128,
    pub(crate) devices: Devices,
}

/// The file systems of a log's directory and of the one above it.
#[derive(Clone, Copy)]
pub(crate) struct Devices {
    pub(crate) own: u64,
    pub(crate) above: u64,
}

impl Home {
    pub(crate) fn create_segment(
        &self,
        directory: &Path,
        first_offset: Offset,
        len_bytes: u64,
        left: &mut Vec<PathBuf>,
    ) -> Result<SegmentWriter> {
        let header = new_header(FileKind::Log, self.log_id, first_offset, &self.options.name);
        SegmentWriter::create_or_leave(&*self.options.disk, directory, header, len_bytes, left)
    }

    /// False if the log's directory is not there or on another file system: a mount may be missing,
    /// and a file that is not found may be there all the same.
    pub(crate) fn is_there(&self) -> bool {
        let device = self.options.disk.device(&self.options.directory);
        device.is_ok_and(|device| device == self.devices.own)
    }

    /// Opens a segment up to the end of its durable frames.
    pub(crate) fn open(&self, segment: &Segment, options: ScanOptions) -> Result<SegmentScan> {
        let bad = BadBlocks::new(options.pass_unreadable);
        self.open_passing(segment, options.read_ahead_bytes, bad)
    }

    /// The same. Its reads pass these blocks and end with the turn.
    pub(crate) fn open_passing(
        &self,
        segment: &Segment,
        read_ahead_bytes: usize,
        bad: Arc<BadBlocks>,
    ) -> Result<SegmentScan> {
        let disk = &*self.options.disk;
        let mut scan = SegmentScan::open_passing(disk, &segment.path, read_ahead_bytes, bad)?;
        // If another file has taken its place, that file's own end counts.
        let is_known = segment.epoch.is_none_or(|epoch| epoch == scan.info().header.epoch);
        segment.end.filter(|_| is_known).into_iter().for_each(|end| scan.set_end(end));
        Ok(scan)
    }
}

impl<T> Shared<T> {
    pub(super) fn note_panic(&self) {
        self.with_store(|store| {
            let reason = "a thread of the log ended unexpectedly: only a restart helps".to_owned();
            store.trouble = Some(DiskTrouble::of_writing(reason));
            store.ends = Ends::Now;
            store.writer_has_ended = true;
        });
        self.wake_all();
    }

    pub(super) fn note_thread_end(&self) {
        self.with_store(|store| store.threads = store.threads.saturating_sub(1));
        self.maintenance_wake.notify_all();
    }
}
