//! Leasing entries to readers, and resolving them.

use std::sync::Arc;

use super::{Inner, Log};
use crate::cursor::DiskLease;
use crate::types::{Charge, CursorId, Next, Offset};

impl<T> Log<T> {
    /// Leases the next entry for a reader; it stays leased until it is resolved. Never waits for the disk.
    pub fn read(&self, id: CursorId) -> Next<T> {
        let mut inner = self.shared.inner.lock();
        if !inner.cursor(id).may_lease() {
            return Next::Full;
        }
        if inner.cursor(id).next < inner.evicted_below() {
            inner.cursor_mut(id).ahead.is_active = true;
            if let Some((offset, entry)) = inner.take_ahead(id) {
                if inner.wants_ahead(id) {
                    self.wake_reader(&mut inner);
                }
                return Next::Entry(offset, entry);
            }
            if inner.cursor(id).next < inner.evicted_below() {
                inner.cursor_mut(id).ahead.is_awaited = true;
                self.wake_reader(&mut inner);
                return Next::Loading;
            }
        }
        match inner.read_memory(id) {
            Some((offset, entry)) => Next::Entry(offset, entry),
            None => Next::Empty,
        }
    }

    /// Marks an entry as resolved for a reader. False if it was resolved before.
    pub fn resolve(&self, id: CursorId, offset: Offset) -> bool {
        // The entry is freed after the lock.
        let resolved = self.shared.inner.lock().resolve(id, offset);
        resolved.is_some()
    }

    /// Gives back all leases: whatever the reader has not resolved is read again, in order. For a reader that starts anew.
    pub fn rewind(&self, id: CursorId) {
        self.shared.inner.lock().rewind(id);
    }

    pub(super) fn wake_reader(&self, inner: &mut Inner<T>) {
        if let Some(store) = &mut inner.store
            && std::mem::take(&mut store.reader_waits)
        {
            self.shared.reader_wake.notify_one();
        }
    }
}

impl<T> Inner<T> {
    /// The next entry of the memory tail.
    fn read_memory(&mut self, id: CursorId) -> Option<(Offset, Arc<T>)> {
        let mut offset = self.cursor(id).next;
        let mut found = None;
        while found.is_none() {
            let live = self.slots.next_live(offset);
            self.cursor_mut(id).resolve_run(offset, live);
            offset = live;
            if offset >= self.slots.head() {
                break;
            }
            match self.slots.get(offset) {
                Some(slot) if slot.is_for(id) && !self.cursor(id).is_resolved(offset) => {
                    let charge = slot.charge;
                    found = Some((offset, slot.entry.clone()));
                    let cursor = self.cursor_mut(id);
                    cursor.unread.remove_charge(charge);
                    cursor.leased.add_charge(charge);
                }
                // Not for this reader, or resolved already: nothing to wait for.
                _ => {
                    self.cursor_mut(id).resolve(offset);
                }
            }
            offset += 1;
        }
        let head = self.slots.head();
        let cursor = self.cursor_mut(id);
        cursor.next = offset;
        if offset >= head {
            // Whatever was known of frames on disk, nothing is left to read.
            cursor.unread = Default::default();
            cursor.oldest_on_disk_unix_ns = None;
        }
        found
    }

    /// The next of the entries that were read ahead. Passes what is known to hold nothing for this reader.
    fn take_ahead(&mut self, id: CursorId) -> Option<(Offset, Arc<T>)> {
        let evicted_below = self.evicted_below();
        let cursor = self.cursor_mut(id);
        while let Some((offset, entry, lease)) = cursor.ahead.entries.pop_front() {
            cursor.ahead.bytes -= lease.charge.bytes;
            if offset < cursor.next || cursor.is_resolved(offset) {
                continue;
            }
            cursor.pass_to(offset);
            cursor.next = offset + 1;
            cursor.unread.remove_charge(lease.charge);
            cursor.oldest_on_disk_unix_ns = cursor.ahead.entries.front().map(|(_, _, lease)| lease.received_unix_ns);
            self.lease_on_disk(id, offset, lease);
            return Some((offset, entry));
        }
        let until = cursor.ahead.until.min(evicted_below);
        cursor.pass_to(until);
        None
    }

    /// True if the reader thread should read on for this cursor.
    pub(crate) fn wants_ahead(&self, id: CursorId) -> bool {
        let Some(store) = &self.store else { return false };
        let cursor = self.cursor(id);
        cursor.ahead.until.max(cursor.next) < store.evicted_below && cursor.ahead.bytes <= store.read_ahead_bytes / 2
    }

    fn lease_on_disk(&mut self, id: CursorId, offset: Offset, lease: DiskLease) {
        if let Some(store) = &mut self.store {
            store.segments.leased(id, offset, lease.charge);
        }
        let cursor = self.cursor_mut(id);
        cursor.leased.add_charge(lease.charge);
        cursor.disk_leases.insert(offset, lease);
    }

    /// Marks an entry as resolved for a reader, whether it has leased it or not. What it was charged and, if it was in memory, the
    /// entry; None if it was resolved before, or is on disk only and not leased.
    pub(crate) fn resolve(&mut self, id: CursorId, offset: Offset) -> Option<(Option<Arc<T>>, Charge)> {
        if offset < self.evicted_below() {
            return self.resolve_on_disk(id, offset).map(|charge| (None, charge));
        }
        let cursor = self.cursor_mut(id);
        let was_leased = offset < cursor.next;
        if !cursor.resolve(offset) {
            return None;
        }
        let slot = self.slots.get_mut(offset).filter(|slot| slot.is_for(id))?;
        let (charge, is_durable) = (slot.charge, slot.is_durable);
        slot.unresolved -= 1;
        let entry = slot.entry.clone();
        let is_gone = slot.unresolved == 0;
        if is_gone {
            self.slots.remove(offset);
            self.stored_bytes -= charge.bytes;
        }
        if let Some(store) = &mut self.store {
            if is_durable {
                store.segments.resolved(id, offset, charge);
            } else if is_gone {
                store.unwritten_bytes -= charge.bytes;
            }
        }
        let cursor = self.cursor_mut(id);
        if !is_durable {
            cursor.unwritten.remove_charge(charge);
        }
        let holding = if was_leased { &mut cursor.leased } else { &mut cursor.unread };
        holding.remove_charge(charge);
        Some((Some(entry), charge))
    }

    fn resolve_on_disk(&mut self, id: CursorId, offset: Offset) -> Option<Charge> {
        let cursor = self.cursor_mut(id);
        let lease = cursor.disk_leases.remove(&offset)?;
        cursor.resolve(offset);
        cursor.leased.remove_charge(lease.charge);
        if let Some(store) = &mut self.store {
            store.segments.resolved(id, offset, lease.charge);
        }
        Some(lease.charge)
    }

    pub(crate) fn rewind(&mut self, id: CursorId) {
        let cursor = self.cursors[id.0].as_mut().expect("a reader is not used after it unsubscribed");
        cursor.next = cursor.floor;
        cursor.unread.add(std::mem::take(&mut cursor.leased));
        cursor.oldest_on_disk_unix_ns =
            cursor.disk_leases.values().next().map(|lease| lease.received_unix_ns).or(cursor.oldest_on_disk_unix_ns);
        cursor.forget_ahead();
        for (offset, lease) in std::mem::take(&mut cursor.disk_leases) {
            if let Some(store) = &mut self.store {
                store.segments.given_back(id, offset, lease.charge);
            }
        }
    }
}
