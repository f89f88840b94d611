//! State of the part of a log that is on disk.

use std::sync::Arc;
use std::time::Duration;

use super::segments::Segments;
use super::{Inner, Log, Shared};
use crate::disk::{CallKind, Calls};
use crate::segment::SetAside;
use crate::types::{CursorId, DiskTrouble, LogStats, Offset};

/// A disk that answers sooner is worth waiting for.
const HANGS_AFTER: Duration = Duration::from_secs(1);

/// Guarded by the log's lock.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) segments: Segments,
    pub(crate) set_aside: Vec<SetAside>,
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
    pub(crate) threads: u32,
    pub(crate) writer_has_ended: bool,
    pub(crate) ends: Ends,
    /// Segments were given up for their space: maintenance removes them soon.
    pub(crate) has_shed: bool,
    /// Calls that the disk has not answered.
    pub(crate) calls: Option<Arc<Calls>>,
    /// The directory was removed, and is not yet made anew with all files of readers.
    pub(crate) directory_is_lost: bool,
    /// Why frames cannot be written, if they cannot.
    pub(crate) trouble: Option<DiskTrouble>,
    /// Why cursors cannot be written, if they cannot.
    pub(crate) cursor_trouble: Option<DiskTrouble>,
    /// Why segments cannot be read, if they cannot.
    pub(crate) read_trouble: Option<DiskTrouble>,
    pub(crate) stats: LogStats,
    /// Removed readers whose files are to be removed, with the file names.
    pub(crate) gone_readers: Vec<(CursorId, String)>,
    /// Counted from a random number at each start: segments may name readers of which nothing else
    /// is left, and a new reader must not get the id of one of them.
    pub(crate) newest_persistent_id: u32,
}

impl Store {
    /// The trouble of a disk that gives neither an answer nor an error.
    pub(crate) fn hang(&self) -> Option<DiskTrouble> {
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

impl<T> Inner<T> {
    /// For the threads, which only a log on disk has.
    pub(crate) fn on_disk(&mut self) -> &mut Store {
        self.store.as_mut().expect("a log with threads is on disk")
    }
}

impl<T> Shared<T> {
    pub(crate) fn with_store<A>(&self, act: impl FnOnce(&mut Store) -> A) -> A {
        act(self.inner.lock().on_disk())
    }
}

impl<T> Log<T> {
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
}
