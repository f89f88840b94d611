//! Budgets: what waits for a reader, and which of it goes when that is too much.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::shed::{GivenUp, Goal};
use super::{Inner, Log};
use crate::cursor::Cursor;
use crate::format::Holding;
use crate::gauges::ReaderGauges;
use crate::types::{CursorId, Offset};

/// So often the lock is held to shed for one reader, before others have their turn.
const WALKS_AT_ONCE: u32 = 64;

impl<T> Log<T> {
    /// Changes a reader's budgets (reload). What exceeds the new ones is dealt with at the next append or read.
    pub fn set_limits(&self, id: CursorId, limit_bytes: u64, lease_limit_bytes: u64) {
        let mut inner = self.shared.inner.lock();
        let cursor = inner.cursor_mut(id);
        cursor.limit_bytes = limit_bytes;
        cursor.lease_limit_bytes = lease_limit_bytes;
    }

    /// Figures of a reader that are read without the log's lock, and what it may give up, which is
    /// said there. By default everything.
    pub fn gauges(&self, id: CursorId) -> Arc<ReaderGauges> {
        self.shared.inner.lock().cursor(id).gauges.clone()
    }

    /// True if more waits for the reader than its budget allows, a single frame excepted.
    pub fn is_over_budget(&self, id: CursorId) -> bool {
        let inner = self.shared.inner.lock();
        // A reload may have removed it since the caller looked up its name.
        inner.cursors[id.0].as_ref().is_some_and(|cursor| {
            let held = cursor.held();
            held.frames > 1 && held.bytes > cursor.limit_bytes
        })
    }

    /// Gives up the oldest entries that the reader has not leased, as far as it may, until it holds
    /// at most its budget, or the newest entry alone is left of them; returns what they were
    /// charged, and those that were in memory. Where entries on disk have to go the reader thread
    /// does it, wakes the reader, and tells [`Log::take_dropped`].
    pub fn drop_oldest_unread(&self, id: CursorId) -> (Holding, Vec<GivenUp<T>>) {
        let mut dropped = Holding::default();
        let mut given_up = Vec::new();
        {
            let mut inner = self.shared.inner.lock();
            let Some(start) = inner.cursors[id.0].as_ref().map(|cursor| cursor.next) else { return Default::default() };
            inner.drop_ahead(id, &mut dropped);
            let is_on_disk = inner.is_over_limit(id) && inner.cursor(id).next < inner.evicted_below();
            let cursor = inner.cursor_mut(id);
            let end = cursor.next;
            cursor.note_gap(start, end, dropped, unix_now_ns());
            cursor.publish();
            if is_on_disk {
                cursor.ahead.drops = true;
                self.wake_reader(&mut inner);
                return (dropped, given_up);
            }
        }
        self.shed(id, Goal::WithinBudget, &mut given_up);
        given_up.iter().for_each(|given_up| dropped.add_charge(given_up.charge));
        (dropped, given_up)
    }

    /// Gives up the oldest entries that the reader has not leased and that are not durable, as far
    /// as it may, until at most `keep_bytes` of them are left: for a reader that rather loses
    /// frames than lets senders wait for a slow disk.
    pub fn drop_unwritten(&self, id: CursorId, keep_bytes: u64) -> Vec<GivenUp<T>> {
        let mut given_up = Vec::new();
        self.shed(id, Goal::Unwritten { bytes: keep_bytes }, &mut given_up);
        given_up
    }

    /// Walks until the goal is reached, or for a bounded time: where much may not go, the next call
    /// goes on behind it.
    fn shed(&self, id: CursorId, goal: Goal, given_up: &mut Vec<GivenUp<T>>) {
        let mut walks = 0;
        // The second round, from the front, finds what had to stay before and may go now.
        for _ in 0..2 {
            while !self.shared.inner.lock().shed_reader(id, goal, given_up) {
                walks += 1;
                if walks >= WALKS_AT_ONCE {
                    return;
                }
            }
        }
    }

    /// What the reader thread dropped for the reader since this was last asked.
    pub fn take_dropped(&self, id: CursorId) -> Holding {
        let mut inner = self.shared.inner.lock();
        inner.cursors[id.0].as_mut().map(|cursor| std::mem::take(&mut cursor.dropped_unseen)).unwrap_or_default()
    }
}

impl<T> Inner<T> {
    pub(crate) fn is_over_limit(&self, id: CursorId) -> bool {
        let cursor = self.cursor(id);
        cursor.held().bytes > cursor.limit_bytes
    }

    /// A frame that is on disk only is given up: the reader is over its budget, or the frame's
    /// segment is wanted.
    pub(crate) fn wants_dropped(&self, id: CursorId, offset: Offset) -> bool {
        wants_dropped(self.cursor(id), offset)
    }

    /// Drops from what was read ahead from disk, and passes what is known to hold nothing.
    pub(crate) fn drop_ahead(&mut self, id: CursorId, dropped: &mut Holding) {
        let evicted_below = self.evicted_below();
        while self.cursor(id).next < evicted_below && self.wants_dropped(id, self.cursor(id).next) {
            let head = self.slots.head();
            let cursor = self.cursor_mut(id);
            let Some(&(offset, _, lease)) = cursor.ahead.entries.front() else {
                let until = cursor.ahead.until.min(evicted_below);
                cursor.pass_to(until);
                break;
            };
            if offset + 1 >= head || !wants_dropped(cursor, offset) {
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
}

fn wants_dropped<T>(cursor: &Cursor<T>, offset: Offset) -> bool {
    cursor.held().bytes > cursor.limit_bytes || offset < cursor.ahead.drop_below
}

/// Nanoseconds since 1970 by the wall clock. 0 if that is before.
pub(crate) fn unix_now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
