//! Figures of a log and of its readers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::shed::LOOKED_AT_ONCE;
use super::{Inner, Log, Slot};
use crate::cursor::Cursor;
use crate::format::DroppedRange;
use crate::types::{CursorId, DiskTrouble, Holding, LogStats, Offset, Orphan, unix_now_ns};

impl<T> Log<T> {
    /// Frames that wait for the reader, leased or not.
    pub fn held(&self, id: CursorId) -> Holding {
        self.of_cursor(id, Cursor::held)
    }

    /// Frames that the reader has leased.
    pub fn leased(&self, id: CursorId) -> Holding {
        self.of_cursor(id, |cursor| cursor.leased)
    }

    /// Entries in memory that the reader has not resolved, leased or not, with their offsets: a
    /// bounded number of them from an offset on. Empty at the end.
    pub fn unresolved_in_memory(&self, id: CursorId, from: Offset) -> Vec<(Offset, Arc<T>)> {
        let inner = self.shared.inner.lock();
        let Some(cursor) = &inner.cursors[id.0] else { return Vec::new() };
        let unresolved = inner.unresolved_slots(id, cursor.floor.max(from)).take(LOOKED_AT_ONCE);
        unresolved.map(|(offset, slot)| (offset, slot.entry.clone())).collect()
    }

    /// Age of the oldest entry that the reader has not resolved, as far as it is known.
    pub fn oldest_age(&self, id: CursorId) -> Option<Duration> {
        let inner = self.shared.inner.lock();
        inner.oldest_age(id, inner.cursors[id.0].as_ref()?)
    }

    /// All frames of the reader that policies ever dropped, also before a restart.
    pub fn dropped_total(&self, id: CursorId) -> Holding {
        self.of_cursor(id, |cursor| cursor.dropped)
    }

    /// Frames that waited for the reader on disk, and that could not be read or were not there,
    /// since the log was opened. They are known once the reader has come to the end.
    pub fn lost_total(&self, id: CursorId) -> Holding {
        self.of_cursor(id, |cursor| cursor.lost)
    }

    /// The latest ranges in which policies dropped frames, oldest first.
    pub fn dropped_ranges(&self, id: CursorId) -> Vec<DroppedRange> {
        self.of_cursor(id, |cursor| cursor.dropped_ranges.iter().copied().collect())
    }

    /// A figure of a reader; its default for a reader that has gone meanwhile.
    fn of_cursor<A: Default>(&self, id: CursorId, ask: impl FnOnce(&Cursor<T>) -> A) -> A {
        self.shared.inner.lock().cursors[id.0].as_ref().map(ask).unwrap_or_default()
    }

    /// Bytes of all entries in memory that are not resolved everywhere.
    pub fn stored_bytes(&self) -> u64 {
        self.shared.inner.lock().stored_bytes
    }

    /// Bytes of the entries in memory that are not durable yet.
    pub fn unwritten_bytes(&self) -> u64 {
        let inner = self.shared.inner.lock();
        inner.store.as_ref().map_or(inner.stored_bytes, |store| store.unwritten_bytes)
    }

    /// True if there are segment files behind the memory tail.
    pub fn is_on_disk(&self) -> bool {
        self.shared.inner.lock().store.is_some()
    }

    /// Readers without a subscriber for which something is kept, or may be.
    pub fn orphans(&self) -> Vec<Orphan> {
        let inner = self.shared.inner.lock();
        let orphan = |(index, cursor): (usize, &Option<Cursor<T>>)| {
            let (id, cursor) = (CursorId(index), cursor.as_ref().filter(|it| !it.is_subscribed)?);
            let waits = cursor.held().frames > 0 || inner.waits_for(id);
            waits.then(|| Orphan {
                name: cursor.name.clone(),
                is_lost: cursor.is_lost,
                held: cursor.held(),
                oldest_age: inner.oldest_age(id, cursor),
                dropped: cursor.dropped,
            })
        };
        inner.cursors.iter().enumerate().filter_map(orphan).collect()
    }

    /// The first trouble with the disk: with writing frames, else no answer at all, else with
    /// reading, else with cursors.
    pub fn trouble(&self) -> Option<DiskTrouble> {
        let inner = self.shared.inner.lock();
        let store = inner.store.as_ref()?;
        let of_answers = || store.read_trouble.as_ref().or(store.cursor_trouble.as_ref()).cloned();
        store.trouble.clone().or_else(|| store.hang()).or_else(of_answers)
    }

    /// Files that were set aside because readers passed something in them.
    pub fn set_aside(&self) -> Vec<PathBuf> {
        let inner = self.shared.inner.lock();
        let files = inner.store.iter().flat_map(|store| &store.set_aside);
        files.map(|file| file.path.clone()).collect()
    }

    pub fn stats(&self) -> LogStats {
        let inner = self.shared.inner.lock();
        inner.store.as_ref().map_or_else(LogStats::default, |store| {
            let (segments, disk_bytes) = store.segments.size();
            let set_aside_files = store.set_aside.len() as u64;
            let set_aside_bytes = store.set_aside.iter().map(|file| file.len_bytes).sum();
            let disk_bytes = disk_bytes + set_aside_bytes;
            let lost = inner.cursors.iter().flatten().filter(|cursor| cursor.is_lost);
            let lost_cursors = lost.count() as u64;
            LogStats {
                segments,
                disk_bytes,
                set_aside_files,
                set_aside_bytes,
                lost_cursors,
                ..store.stats
            }
        })
    }
}

impl<T> Inner<T> {
    fn oldest_age(&self, id: CursorId, cursor: &Cursor<T>) -> Option<Duration> {
        if let Some(received_unix_ns) = cursor.oldest_on_disk_unix_ns() {
            return Some(Duration::from_nanos(unix_now_ns().saturating_sub(received_unix_ns)));
        }
        let oldest = self.unresolved_slots(id, cursor.floor).next();
        oldest.map(|(_, slot)| slot.appended.elapsed())
    }

    /// The slots in memory, from an offset on, that a reader has not resolved.
    pub(super) fn unresolved_slots(
        &self,
        id: CursorId,
        from: Offset,
    ) -> impl Iterator<Item = (Offset, &Slot<T>)> {
        let cursor = self.cursor(id);
        let waits = move |offset, slot: &Slot<T>| slot.is_for(id) && !cursor.is_resolved(offset);
        self.slots.live_from(from).filter(move |&(offset, slot)| waits(offset, slot))
    }

    pub(super) fn first_unresolved(&self, id: CursorId, from: Offset) -> Option<Offset> {
        self.unresolved_slots(id, from).next().map(|(offset, _)| offset)
    }
}
