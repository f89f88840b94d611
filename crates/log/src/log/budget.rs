//! Budgets: how much may wait for a reader, and which frames are dropped when it is too much.

use std::sync::Arc;

use super::segments::Change;
use super::shed::{GivenUp, Goal, Walk};
use super::{Inner, Log};
use crate::gauges::{ReaderGauges, Sheds};
use crate::types::{Charge, CursorId, Holding, Offset};

/// Walks of one call for a reader, each under a lock of its own.
const WALKS_AT_ONCE: u32 = 64;

impl<T> Log<T> {
    /// Changes a reader's budgets (reload), as of the next append or read.
    pub fn set_limits(&self, id: CursorId, limit_bytes: u64, lease_limit_bytes: u64) {
        let mut inner = self.shared.inner.lock();
        let cursor = inner.cursor_mut(id);
        cursor.gauges.limit_bytes.set(limit_bytes);
        cursor.lease_limit_bytes = lease_limit_bytes;
    }

    /// A reader's figures and its permission to shed, to be read without the log's lock.
    pub fn gauges(&self, id: CursorId) -> Arc<ReaderGauges> {
        self.shared.inner.lock().cursor(id).gauges.clone()
    }

    /// Gives up the oldest entries that the reader has not leased, as far as it may, until its
    /// backlog fits its budget or only the newest is left. Returns their charge, and those in
    /// memory. The reader thread drops those on disk, then wakes it: see [`Log::take_dropped`].
    pub fn drop_oldest_unread(&self, id: CursorId) -> (Holding, Vec<GivenUp<T>>) {
        let mut inner = self.shared.inner.lock();
        let Some(cursor) = inner.cursors[id.0].as_ref() else { return Default::default() };
        // The other readers of an entry that was read ahead are not known.
        let mut dropped = match cursor.gauges.may_shed() {
            Sheds::Everything => inner.drop_ahead(id),
            Sheds::Taken | Sheds::Nothing => Holding::default(),
        };
        let evicted_below = inner.evicted_below();
        let cursor = inner.cursor_mut(id);
        if cursor.is_over_limit() && cursor.next.max(cursor.ahead.dropped_until) < evicted_below {
            cursor.ahead.drops = true;
            self.shared.reader_wake.notify_one();
            return (dropped, Vec::new());
        }
        // Frames that had to stay on disk may go the next time.
        cursor.ahead.dropped_until = 0;
        let limit_bytes = cursor.gauges.limit_bytes.get();
        drop(inner);
        let given_up = self.shed(id, Goal::Held, limit_bytes);
        given_up.iter().for_each(|given_up| dropped.add(given_up.charge));
        (dropped, given_up)
    }

    /// Gives up the oldest entries that are neither leased nor durable, as far as the reader may,
    /// until at most `keep_bytes` of charge of them are left: for a reader that prefers to lose
    /// frames to making senders wait for a slow disk.
    pub fn drop_unwritten(&self, id: CursorId, keep_bytes: u64) -> Vec<GivenUp<T>> {
        self.shed(id, Goal::Unwritten, keep_bytes)
    }

    /// Walks until the goal is reached, or for a bounded time: the next call goes on.
    fn shed(&self, id: CursorId, goal: Goal, bytes: u64) -> Vec<GivenUp<T>> {
        let mut given_up = Vec::new();
        // The second round, from the front, finds entries that had to stay before and may go now.
        let mut rounds = 0;
        for _ in 0..WALKS_AT_ONCE {
            match self.shared.inner.lock().shed_reader(id, goal, bytes, &mut given_up) {
                Walk::Reached => break,
                Walk::AtEnd if rounds == 1 => break,
                Walk::AtEnd => rounds += 1,
                Walk::GoesOn => {}
            }
        }
        given_up
    }

    /// Frames that the reader thread dropped for the reader since the last call.
    pub fn take_dropped(&self, id: CursorId) -> Holding {
        let mut inner = self.shared.inner.lock();
        let cursor = inner.cursors[id.0].as_mut();
        cursor.map(|cursor| std::mem::take(&mut cursor.dropped_unseen)).unwrap_or_default()
    }
}

impl<T> Inner<T> {
    /// Drops entries that were read ahead until the budget is met; passes offsets without frames.
    pub(crate) fn drop_ahead(&mut self, id: CursorId) -> Holding {
        let (head, evicted_below) = (self.slots.head(), self.evicted_below());
        let mut dropped = Holding::default();
        let start = self.cursor(id).next;
        loop {
            let cursor = self.cursor_mut(id);
            if cursor.next >= evicted_below || !cursor.is_over_limit() {
                break;
            }
            let Some(&(offset, _, lease)) = cursor.ahead.entries.front() else {
                let until = cursor.ahead.until.min(evicted_below);
                cursor.pass_to(until);
                break;
            };
            // The newest frame of the log stays.
            if offset + 1 >= head {
                break;
            }
            cursor.ahead.entries.pop_front();
            cursor.ahead.bytes -= lease.charge.bytes;
            if offset >= cursor.next && !cursor.is_resolved(offset) {
                self.drop_on_disk(id, offset, lease.charge);
                dropped.add(lease.charge);
            }
            self.cursor_mut(id).pass_to(offset + 1);
        }
        let cursor = self.cursor_mut(id);
        cursor.note_dropped_range(start, cursor.next, dropped);
        cursor.publish();
        dropped
    }

    /// Records that an unread entry on disk is given up.
    pub(crate) fn drop_on_disk(&mut self, id: CursorId, offset: Offset, charge: Charge) {
        let cursor = self.cursor_mut(id);
        cursor.resolve(offset);
        cursor.note_untaken(offset, offset + 1);
        cursor.unread.remove(charge);
        if let Some(store) = &mut self.store {
            store.segments.note(Change::Dropped, id, offset, charge);
        }
    }
}
