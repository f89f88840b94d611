//! The log of one signal: a memory tail, and segment files behind it if it has a directory.
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

mod append;
mod budget;
mod closing;
mod evict;
mod readers;
mod reading;
pub(crate) mod segments;
mod shed;
pub(crate) mod shed_segments;
#[cfg(test)]
mod shed_tests;
mod status;
pub(crate) mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::cursor::Cursor;
use crate::gauges::MemoryUse;
use crate::slots::Slots;
use crate::types::{Charge, CursorId};
pub use shed::GivenUp;
use store::Store;

/// An append-only sequence of shared entries with one cursor a reader.
pub struct Log<T> {
    pub(crate) shared: Arc<Shared<T>>,
}

/// State that the log and its threads share.
pub(crate) struct Shared<T> {
    pub(crate) inner: Mutex<Inner<T>>,
    pub(crate) writer_wake: Condvar,
    pub(crate) reader_wake: Condvar,
    /// The maintenance thread waits on it, and so does the caller that closes the log.
    pub(crate) maintenance_wake: Condvar,
}

pub(crate) struct Slot<T> {
    pub(crate) entry: Arc<T>,
    /// The readers that this entry was appended for.
    pub(crate) readers: Arc<[CursorId]>,
    pub(crate) unresolved: u32,
    /// Exclusive or of the ids of the readers that have not resolved it: of the last one, its id.
    pub(crate) unresolved_ids: usize,
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
    pub(crate) stored_bytes: u64,
    /// Memory use of all logs that share this memory.
    pub(crate) memory: Arc<MemoryUse>,
    /// Offset at which the next search for entries that all their readers may give up starts.
    pub(crate) shed_from: u64,
    /// The part on disk, if there is one.
    pub(crate) store: Option<Store>,
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

    pub(crate) fn of(
        slots: Slots<Slot<T>>,
        cursors: Vec<Option<Cursor<T>>>,
        memory: Arc<MemoryUse>,
        store: Option<Store>,
    ) -> Self {
        let inner = Inner { slots, cursors, stored_bytes: 0, memory, shed_from: 0, store };
        let shared = Shared {
            inner: Mutex::new(inner),
            writer_wake: Condvar::new(),
            reader_wake: Condvar::new(),
            maintenance_wake: Condvar::new(),
        };
        Log { shared: Arc::new(shared) }
    }
}

impl<T> Slot<T> {
    pub(crate) fn is_for(&self, id: CursorId) -> bool {
        self.readers.contains(&id)
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
    pub(crate) fn note_alone(&self, unresolved_ids: usize, bytes: u64, is_alone: bool) {
        if let Some(cursor) = self.cursors.get(unresolved_ids).and_then(Option::as_ref) {
            let alone_bytes = &cursor.gauges.alone_bytes;
            if is_alone { alone_bytes.add(bytes) } else { alone_bytes.remove(bytes) }
        }
    }

    pub(crate) fn note_let_go(&mut self, bytes: u64) {
        self.stored_bytes -= bytes;
        self.memory.stored_bytes.remove(bytes);
    }

    /// Offsets below are not in memory.
    pub(crate) fn evicted_below(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.evicted_below)
    }
}
