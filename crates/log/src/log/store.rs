//! What is known of the part of a log that is on disk.

use std::time::Duration;

use super::Log;
use super::segments::Segments;
use crate::options::FlushPolicy;
use crate::types::{CursorId, DiskTrouble, LogStats, Offset};

/// What the writer thread waits for, which says who has to wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterWaits {
    /// It is at work, or will look by itself soon enough.
    No,
    /// Until the oldest frame is due: woken only by one that is due at once.
    ForDue,
    /// There is no frame: woken by the next one.
    ForAppend,
    /// The disk failed: woken only by the end.
    ToTryAgain,
}

/// Guarded by the log's lock.
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
    pub(crate) flush: FlushPolicy,
    pub(crate) writer_waits: WriterWaits,
    /// The reader thread has nothing to do until it is woken.
    pub(crate) reader_waits: bool,
    pub(crate) writer_has_ended: bool,
    pub(crate) maintenance_has_ended: bool,
    pub(crate) ends: Ends,
    /// Why frames cannot be written.
    pub(crate) trouble: Option<DiskTrouble>,
    /// Why cursors cannot be written.
    pub(crate) cursor_trouble: Option<DiskTrouble>,
    /// Why segments cannot be read.
    pub(crate) read_trouble: Option<DiskTrouble>,
    pub(crate) stats: LogStats,
    /// Readers whose files are to be removed, with their names.
    pub(crate) gone_readers: Vec<(CursorId, String)>,
    /// Higher than that of any reader, also of those that are gone.
    pub(crate) highest_persistent_id: u32,
}

/// Whether the log is coming to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    No,
    /// What is unresolved is written, then the cursors.
    Closing,
    /// Nothing more is written.
    Now,
}

impl Store {
    pub(crate) fn next_persistent_id(&mut self) -> u32 {
        self.highest_persistent_id += 1;
        self.highest_persistent_id
    }

    pub(crate) fn flushes_at_once(&self) -> bool {
        self.flush == FlushPolicy::AtOnce
    }

    /// How long a frame may wait for its readers before it is due.
    pub(crate) fn flush_after(&self) -> Option<Duration> {
        match self.flush {
            FlushPolicy::OnDemand { after } => Some(after),
            FlushPolicy::AtOnce => Some(Duration::ZERO),
            FlushPolicy::Never => None,
        }
    }
}

impl<T> Log<T> {
    /// Changes when frames are written (reload).
    pub fn set_flush_policy(&self, flush: FlushPolicy) {
        self.change_store(|store| store.flush = flush);
    }

    /// Changes what is kept in memory of frames on disk, and what is read ahead.
    pub fn set_memory_limits(&self, limit_bytes: u64, read_ahead_bytes: u64) {
        self.change_store(|store| {
            store.memory_limit_bytes = limit_bytes;
            store.read_ahead_bytes = read_ahead_bytes;
        });
    }

    fn change_store(&self, change: impl FnOnce(&mut Store)) {
        let mut inner = self.shared.inner.lock();
        if let Some(store) = &mut inner.store {
            change(store);
            self.shared.writer_wake.notify_one();
        }
    }
}
