//! What a log says about itself.

use std::sync::Arc;
use std::time::Duration;

use super::budget::unix_now_ns;
use super::shed::LOOKED_AT_ONCE;
use super::{Inner, Log, Slot};
use crate::cursor::Cursor;
use crate::format::DroppedRange;
use crate::types::{CursorId, DiskTrouble, Holding, LogStats, Offset, Orphan};

impl<T> Log<T> {
    /// What waits for the reader, leased or not.
    pub fn held(&self, id: CursorId) -> Holding {
        self.look_at(id, Cursor::held)
    }

    /// What the reader has leased.
    pub fn leased(&self, id: CursorId) -> Holding {
        self.look_at(id, |cursor| cursor.leased)
    }

    /// Entries in memory that the reader has not resolved, leased or not: some from an offset on,
    /// each with its offset. None at the end.
    pub fn unresolved_in_memory(&self, id: CursorId, from: Offset) -> Vec<(Offset, Arc<T>)> {
        let inner = self.shared.inner.lock();
        let Some(cursor) = inner.cursors[id.0].as_ref() else { return Vec::new() };
        let mut offset = inner.slots.next_live(cursor.floor.max(from));
        let mut found = Vec::new();
        while offset < inner.slots.head() && found.len() < LOOKED_AT_ONCE {
            match inner.slots.get(offset) {
                Some(slot) if slot.is_for(id) && !cursor.is_resolved(offset) => {
                    found.push((offset, slot.entry.clone()));
                }
                _ => {}
            }
            offset = inner.slots.next_live(offset + 1);
        }
        found
    }

    /// Age of the oldest entry that the reader has not resolved, as far as it is known.
    pub fn oldest_age(&self, id: CursorId) -> Option<Duration> {
        let inner = self.shared.inner.lock();
        inner.cursors[id.0].as_ref().and_then(|_| inner.oldest_age(id))
    }

    /// All that policies ever dropped of the reader's frames, also before a restart.
    pub fn dropped_total(&self, id: CursorId) -> Holding {
        self.look_at(id, |cursor| cursor.dropped)
    }

    /// The latest places where policies dropped frames, oldest first.
    pub fn gaps(&self, id: CursorId) -> Vec<DroppedRange> {
        self.look_at(id, |cursor| cursor.dropped_ranges.iter().copied().collect())
    }

    /// What is known of a reader; nothing of one that has gone since the caller learned of it.
    fn look_at<A: Default>(&self, id: CursorId, ask: impl FnOnce(&Cursor<T>) -> A) -> A {
        self.shared.inner.lock().cursors[id.0].as_ref().map(ask).unwrap_or_default()
    }

    /// Bytes of all entries in memory that are not resolved everywhere.
    pub fn stored_bytes(&self) -> u64 {
        self.shared.inner.lock().stored_bytes
    }

    /// Those of them that are not durable yet.
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
        let cursors = inner.cursors.iter().enumerate();
        cursors
            .filter_map(|(index, cursor)| {
                Some((CursorId(index), cursor.as_ref().filter(|cursor| !cursor.is_subscribed)?))
            })
            .filter(|(id, cursor)| cursor.held().frames > 0 || inner.waits_for(*id))
            .map(|(id, cursor)| Orphan {
                name: cursor.name.clone(),
                held: cursor.held(),
                oldest_age: inner.oldest_age(id),
                dropped: cursor.dropped,
            })
            .collect()
    }

    /// What is wrong with the disk: with frames first, then with reads and cursors.
    pub fn trouble(&self) -> Option<DiskTrouble> {
        self.shared.inner.lock().store.as_ref().and_then(|store| {
            [&store.trouble, &store.read_trouble, &store.cursor_trouble]
                .into_iter()
                .find_map(|trouble| trouble.clone())
        })
    }

    pub fn stats(&self) -> LogStats {
        let inner = self.shared.inner.lock();
        inner.store.as_ref().map_or_else(LogStats::default, |store| {
            let (segments, disk_bytes) = store.segments.size();
            LogStats { segments, disk_bytes, ..store.stats }
        })
    }
}

impl<T> Inner<T> {
    fn oldest_age(&self, id: CursorId) -> Option<Duration> {
        let cursor = self.cursor(id);
        let leased = cursor.disk_leases.values().next().map(|lease| lease.received_unix_ns);
        let on_disk = leased.into_iter().chain(cursor.oldest_on_disk_unix_ns).min();
        if let Some(received_unix_ns) = on_disk {
            return Some(Duration::from_nanos(unix_now_ns().saturating_sub(received_unix_ns)));
        }
        self.oldest_in_memory(id).map(|slot| slot.appended.elapsed())
    }

    /// The oldest slot in memory that the reader has not resolved.
    pub(super) fn oldest_in_memory(&self, id: CursorId) -> Option<&Slot<T>> {
        let cursor = self.cursor(id);
        let mut offset = self.slots.next_live(cursor.floor);
        while offset < self.slots.head() {
            match self.slots.get(offset) {
                Some(slot) if slot.is_for(id) && !cursor.is_resolved(offset) => return Some(slot),
                _ => offset = self.slots.next_live(offset + 1),
            }
        }
        None
    }
}
