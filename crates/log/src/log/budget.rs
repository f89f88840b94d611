//! Budgets: what waits for a reader, and which of it goes when that is too much.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Inner, Log};
use crate::cursor::Cursor;
use crate::format::Holding;
use crate::types::{CursorId, Offset};

impl<T> Log<T> {
    /// Changes a reader's budgets (reload). What exceeds the new ones is dealt with at the next append or read.
    pub fn set_limits(&self, id: CursorId, limit_bytes: u64, lease_limit_bytes: u64) {
        let mut inner = self.shared.inner.lock();
        let cursor = inner.cursor_mut(id);
        cursor.limit_bytes = limit_bytes;
        cursor.lease_limit_bytes = lease_limit_bytes;
    }

    /// True if `bytes` more would exceed the reader's budget. Never while nothing waits for the reader: a frame larger than
    /// the whole budget would otherwise find no way through at all.
    pub fn would_exceed(&self, id: CursorId, bytes: u64) -> bool {
        self.ask(id, |cursor| {
            let held = cursor.held();
            held.frames > 0 && held.bytes + bytes > cursor.limit_bytes
        })
    }

    /// True if more waits for the reader than its budget allows, a single frame excepted.
    pub fn is_over_budget(&self, id: CursorId) -> bool {
        self.ask(id, |cursor| {
            let held = cursor.held();
            held.frames > 1 && held.bytes > cursor.limit_bytes
        })
    }

    /// True if more than `bytes` wait for the reader to come to them.
    pub fn is_behind(&self, id: CursorId, bytes: u64) -> bool {
        self.ask(id, |cursor| cursor.unread.bytes > bytes)
    }

    /// Asks about a reader. False if a reload has removed it since the caller looked up its name.
    fn ask(&self, id: CursorId, question: impl FnOnce(&Cursor<T>) -> bool) -> bool {
        self.shared.inner.lock().cursors[id.0].as_ref().is_some_and(question)
    }

    /// Resolves the oldest entries that the reader has not leased until it holds at most its budget, or the newest entry
    /// alone is left of them; returns what they were charged, and those that were in memory. Where entries on disk have to go
    /// the reader thread does it, wakes the reader, and tells [`Log::take_dropped`].
    pub fn drop_oldest_unread(&self, id: CursorId) -> (Holding, Vec<Arc<T>>) {
        let mut inner = self.shared.inner.lock();
        if inner.cursors[id.0].is_none() {
            return Default::default();
        }
        let start = inner.cursor(id).next;
        let mut dropped = Holding::default();
        let mut entries = Vec::new();
        inner.drop_ahead(id, &mut dropped);
        if inner.is_over_limit(id) {
            if inner.cursor(id).next < inner.evicted_below() {
                inner.cursor_mut(id).ahead.drops = true;
                self.wake_reader(&mut inner);
            } else {
                inner.drop_memory(id, &mut dropped, &mut entries);
            }
        }
        let cursor = inner.cursor_mut(id);
        let end = cursor.next;
        cursor.note_gap(start, end, dropped, unix_now_ns());
        (dropped, entries)
    }

    /// Resolves the oldest entries that the reader has not leased and that are not durable until at most `keep_bytes` of them are
    /// left: for a reader that rather loses frames than lets senders wait for a slow disk.
    pub fn drop_unwritten(&self, id: CursorId, keep_bytes: u64) -> (Holding, Vec<Arc<T>>) {
        let mut inner = self.shared.inner.lock();
        let mut dropped = Holding::default();
        let mut entries = Vec::new();
        if inner.cursors[id.0].is_none() {
            return (dropped, entries);
        }
        let durable_below = inner.store.as_ref().map_or(0, |store| store.durable_below);
        let start = inner.cursor(id).next.max(durable_below);
        let mut offset = start;
        while inner.cursor(id).unwritten.bytes > keep_bytes && offset < inner.slots.head() {
            if let Some(end) = inner.cursor(id).resolved.end_of_run_at(offset) {
                offset = end;
                continue;
            }
            if inner.slots.get(offset).is_some_and(|slot| slot.is_for(id) && slot.is_durable) {
                offset += 1;
                continue;
            }
            if let Some((entry, charge)) = inner.resolve(id, offset) {
                dropped.add_charge(charge);
                entries.extend(entry);
            }
            offset += 1;
        }
        inner.cursor_mut(id).note_gap(start, offset, dropped, unix_now_ns());
        (dropped, entries)
    }

    /// What the reader thread dropped for the reader since this was last asked.
    pub fn take_dropped(&self, id: CursorId) -> Holding {
        std::mem::take(&mut self.shared.inner.lock().cursor_mut(id).dropped_unseen)
    }
}

impl<T> Inner<T> {
    pub(crate) fn is_over_limit(&self, id: CursorId) -> bool {
        let cursor = self.cursor(id);
        cursor.held().bytes > cursor.limit_bytes
    }

    /// Drops from what was read ahead from disk, and passes what is known to hold nothing.
    pub(crate) fn drop_ahead(&mut self, id: CursorId, dropped: &mut Holding) {
        let evicted_below = self.evicted_below();
        while self.cursor(id).next < evicted_below && self.is_over_limit(id) {
            let head = self.slots.head();
            let cursor = self.cursor_mut(id);
            let Some(&(offset, _, lease)) = cursor.ahead.entries.front() else {
                let until = cursor.ahead.until.min(evicted_below);
                cursor.pass_to(until);
                break;
            };
            if offset + 1 >= head {
                break;
            }
            cursor.ahead.entries.pop_front();
            cursor.ahead.bytes -= lease.charge.bytes;
            if offset >= cursor.next && !cursor.is_resolved(offset) {
                self.drop_on_disk(id, offset, lease.charge);
                dropped.add_charge(lease.charge);
            }
        }
    }

    /// Takes note that an unread entry on disk is given up, and goes on behind it.
    pub(crate) fn drop_on_disk(&mut self, id: CursorId, offset: Offset, charge: crate::types::Charge) {
        let cursor = self.cursor_mut(id);
        cursor.pass_to(offset + 1);
        cursor.unread.remove_charge(charge);
        if let Some(store) = &mut self.store {
            store.segments.dropped(id, offset, charge);
        }
    }

    fn drop_memory(&mut self, id: CursorId, dropped: &mut Holding, entries: &mut Vec<Arc<T>>) {
        while self.is_over_limit(id) {
            let next = self.cursor(id).next;
            let offset = self.slots.next_live(next);
            self.cursor_mut(id).pass_to(offset);
            // The newest entry stays even if it alone exceeds the budget: it may be what the backend is about to take.
            if offset + 1 >= self.slots.head() {
                break;
            }
            if let Some((entry, charge)) = self.resolve(id, offset) {
                dropped.add_charge(charge);
                entries.extend(entry);
            }
            self.cursor_mut(id).pass_to(offset + 1);
        }
    }
}

/// Nanoseconds since 1970 by the wall clock. 0 if that is before.
pub(crate) fn unix_now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
