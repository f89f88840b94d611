//! What is known of the part of a log that is on disk.

use std::time::Duration;

use super::segments::Segments;
use super::{Inner, Log, Shared};
use crate::types::{CursorId, DiskTrouble, LogStats, Offset};

/// Guarded by the log's lock.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) segments: Segments,
    /// Everything below is durable or resolved everywhere.
    pub(crate) durable_below: Offset,
    /// Everything below is on disk only, or resolved everywhere.
    pub(crate) evicted_below: Offset,
    /// Everything below is to be written now.
    pub(crate) due_below: Offset,
    pub(crate) unwritten_bytes: u64,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) read_ahead_bytes: u64,
    /// How long a frame may wait for its readers before it is due.
    pub(crate) flush_after: Duration,
    /// The writer thread waits for the next frame, be it due or not.
    pub(crate) writer_is_idle: bool,
    /// Those that run and are waited for at the end.
    pub(crate) threads: u32,
    pub(crate) writer_has_ended: bool,
    pub(crate) ends: Ends,
    /// Segments were given up for their space: they are removed before long.
    pub(crate) has_shed: bool,
    /// Why frames cannot be written.
    pub(crate) trouble: Option<DiskTrouble>,
    /// Why cursors cannot be written.
    pub(crate) cursor_trouble: Option<DiskTrouble>,
    /// Why segments cannot be read.
    pub(crate) read_trouble: Option<DiskTrouble>,
    pub(crate) stats: LogStats,
    /// Readers whose files are to be removed, with their names.
    pub(crate) gone_readers: Vec<(CursorId, String)>,
    /// They begin anywhere at each start: segments may name readers of which nothing is left, and
    /// a new one must not pass for one of those.
    pub(crate) newest_persistent_id: u32,
}

/// Whether the log is coming to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ends {
    #[default]
    No,
    /// What is unresolved is written, then the cursors. Maintenance is the last to do something.
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
    /// Changes when frames are written, what is kept in memory of frames on disk, and what is read
    /// ahead (reload).
    pub fn set_disk_limits(&self, flush_after: Duration, memory_bytes: u64, read_ahead_bytes: u64) {
        if let Some(store) = &mut self.shared.inner.lock().store {
            store.flush_after = flush_after;
            store.memory_limit_bytes = memory_bytes;
            store.read_ahead_bytes = read_ahead_bytes;
            self.shared.writer_wake.notify_one();
        }
    }
}
