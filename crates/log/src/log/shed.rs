//! Budgets: how much may wait for a reader, and giving up frames when it is too much: for one
//! reader, or for all readers that still pin them.
//!
//! The caller sets which frames a reader may give up ([`crate::Sheds`]); the walks here find them,
//! the oldest first. Each walk looks at a bounded number of slots under the lock; the next one
//! starts where it ended. So shedding costs an append about as much as the append itself, however
//! many frames have to stay in between and however many readers give up together.

use std::sync::Arc;

use super::tail::{As, Resolved};
use super::{Change, Inner, Log, Slot};
use crate::cursors::Cursor;
use crate::types::{Charge, CursorId, Holding, Offset, ReaderGauges, Sheds};

/// Walks of one call for a reader, each under a lock of its own.
const WALKS_AT_ONCE: u32 = 64;

/// Slots, and readers of slots, that are looked at under one lock.
pub(super) const LOOKED_AT_ONCE: usize = 512;

/// An entry that a reader has given up.
#[derive(Debug)]
pub struct GivenUp<T> {
    pub entry: Arc<T>,
    pub charge: Charge,
    pub reader: CursorId,
    /// No reader has taken it, no reader waits for it, and it is not durable.
    pub is_lost: bool,
}

/// When a walk over one reader's frames may end. A frame that may be given up for one goal may have
/// to stay for another.
#[derive(Clone, Copy, Debug)]
enum Goal {
    /// At most this many bytes wait for the reader.
    Held,
    /// This many bytes that only this reader pinned are free.
    Freed,
    /// At most this many bytes of the reader's backlog are not durable.
    Unwritten,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// The goal is reached.
    Reached,
    /// Only the newest frame is left, which always stays.
    AtEnd,
    /// The walk has looked at as many slots as it may.
    GoesOn,
}

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
    /// memory. The read-ahead thread drops those on disk, then wakes it: see [`Log::take_dropped`].
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
            self.shared.read_ahead_wake.notify_one();
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

    /// Frames that the read-ahead thread dropped for the reader since the last call.
    pub fn take_dropped(&self, id: CursorId) -> Holding {
        let mut inner = self.shared.inner.lock();
        let cursor = inner.cursors[id.0].as_mut();
        cursor.map(|cursor| std::mem::take(&mut cursor.dropped_unseen)).unwrap_or_default()
    }

    /// Gives up entries that only this reader still pins, until about `bytes` of memory are free.
    /// Leased ones stay. Bounded: if it frees less than was asked for, the next call goes on.
    pub fn shed_alone(&self, id: CursorId, bytes: u64) -> Vec<GivenUp<T>> {
        let mut given_up = Vec::new();
        self.shared.inner.lock().shed_reader(id, Goal::Freed, bytes, &mut given_up);
        given_up
    }

    /// Gives up entries all of whose readers may give them up, for all of them at once, until about
    /// `bytes` of memory are free. Leased ones stay. Bounded in the same way.
    pub fn shed_together(&self, bytes: u64) -> Vec<GivenUp<T>> {
        self.shared.inner.lock().shed_together(bytes)
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
        cursor.remove_unread(offset, charge);
        cursor.note_untaken(offset, offset + 1);
        self.note_on_disk(Change::Dropped, id, offset, charge);
    }

    /// One bounded walk over the unread frames of a reader.
    fn shed_reader(
        &mut self,
        id: CursorId,
        goal: Goal,
        bytes: u64,
        given_up: &mut Vec<GivenUp<T>>,
    ) -> Walk {
        let Some(cursor) = &self.cursors[id.0] else { return Walk::Reached };
        let below = self.slots.head().saturating_sub(1);
        let durable_below = self.store.as_ref().map_or(0, |store| store.durable_below);
        let is_unwritten = matches!(goal, Goal::Unwritten);
        let least = if is_unwritten { durable_below } else { self.evicted_below() };
        let mut offset = cursor.next.max(cursor.shed_from[goal as usize]).max(least);
        // Frames that were dropped since the last frame that was kept.
        let (mut start, mut dropped) = (offset, Holding::default());
        // No frame has been kept so far: the reader need not look at the offsets that were walked.
        let mut passes = offset == cursor.next;
        let mut freed_bytes = 0;
        let mut walk = Walk::GoesOn;
        for _ in 0..LOOKED_AT_ONCE {
            let cursor = self.cursor(id);
            let is_reached = match goal {
                Goal::Held => cursor.held().bytes <= bytes,
                Goal::Freed => freed_bytes >= bytes,
                Goal::Unwritten => cursor.unwritten.bytes <= bytes,
            };
            if is_reached {
                walk = Walk::Reached;
                break;
            }
            offset = self.slots.next_live(offset);
            if offset >= below {
                walk = Walk::AtEnd;
                break;
            }
            match self.may_go(id, offset, goal) {
                None => {}
                Some(false) => {
                    let dropped = std::mem::take(&mut dropped);
                    self.cursor_mut(id).note_dropped_range(start, offset, dropped);
                    start = offset + 1;
                    passes = false;
                }
                Some(true) => {
                    if let Some(one) = self.give_up_one(id, offset) {
                        dropped.add(one.charge);
                        freed_bytes += one.charge.bytes;
                        given_up.push(one);
                    }
                }
            }
            offset += 1;
            if passes {
                self.cursor_mut(id).pass_to(offset);
            }
        }
        let cursor = self.cursor_mut(id);
        cursor.note_dropped_range(start, offset, dropped);
        cursor.shed_from[goal as usize] = if walk == Walk::AtEnd { 0 } else { offset };
        cursor.publish();
        walk
    }

    /// Whether the reader gives an entry up for the goal. None if it does not wait for the entry.
    fn may_go(&self, id: CursorId, offset: Offset, goal: Goal) -> Option<bool> {
        let (cursor, slot) = (self.cursor(id), self.slots.get(offset)?);
        let is_useful = match goal {
            Goal::Held => true,
            Goal::Freed => slot.unresolved == 1,
            Goal::Unwritten => !slot.is_durable,
        };
        let waits = slot.is_for(id) && !cursor.is_resolved(offset);
        waits.then(|| is_useful && may_give_up(cursor, slot))
    }

    fn shed_together(&mut self, bytes: u64) -> Vec<GivenUp<T>> {
        let mut given_up = Vec::new();
        let below = self.slots.head().saturating_sub(1);
        let (mut looked_at, mut freed_bytes, mut has_wrapped) = (0, 0, false);
        let mut offset = self.shed_from;
        while looked_at < LOOKED_AT_ONCE && freed_bytes < bytes {
            offset = self.slots.next_live(offset);
            if offset >= below {
                if std::mem::replace(&mut has_wrapped, true) {
                    break;
                }
                offset = 0;
                continue;
            }
            looked_at += 1;
            if let Some(slot) = self.slots.get(offset) {
                let (readers, charge) = (slot.readers.clone(), slot.charge);
                looked_at += readers.len();
                if self.all_may_give_up(slot, offset) {
                    freed_bytes += charge.bytes;
                    given_up.extend(readers.iter().filter_map(|&id| self.give_up_of(id, offset)));
                }
            }
            offset += 1;
        }
        self.shed_from = offset;
        given_up
    }

    /// Whether every reader of a slot has resolved it or may give it up and has not leased it.
    pub(super) fn all_may_give_up(&self, slot: &Slot<T>, offset: Offset) -> bool {
        let may = |cursor: &Cursor<T>| {
            offset >= cursor.next && cursor.gauges.is_beyond_reserve() && may_give_up(cursor, slot)
        };
        if slot.unresolved == 1 {
            return self.cursors[slot.unresolved_ids].as_ref().is_some_and(may);
        }
        let cursors = slot.readers.iter().filter_map(|id| self.cursors[id.0].as_ref());
        cursors.filter(|cursor| !cursor.is_resolved(offset)).all(may)
    }

    /// Gives up an unread entry for a reader, if the reader has not resolved it.
    pub(super) fn give_up_of(&mut self, id: CursorId, offset: Offset) -> Option<GivenUp<T>> {
        let waits = |cursor: &&Cursor<T>| !cursor.is_resolved(offset);
        let stood = self.cursors[id.0].as_ref().filter(waits)?.next;
        let is_first = self.first_unread_offset(id) == Some(offset);
        let given_up = self.give_up_one(id, offset)?;
        let cursor = self.cursor_mut(id);
        if is_first {
            cursor.pass_to(offset + 1);
        }
        let start = if is_first { stood } else { offset };
        let dropped = Holding::from_iter([given_up.charge]);
        cursor.note_dropped_range(start, offset + 1, dropped);
        Some(given_up)
    }

    fn give_up_one(&mut self, id: CursorId, offset: Offset) -> Option<GivenUp<T>> {
        let Resolved { entry, charge, is_lost } = self.resolve(id, offset, As::GivenUp)?;
        Some(GivenUp { entry: entry?, charge, reader: id, is_lost })
    }

    /// The first unread frame of a reader that has come to memory. Moves the cursor up to it.
    pub(crate) fn first_unread_offset(&mut self, id: CursorId) -> Option<Offset> {
        if self.cursor(id).next < self.evicted_below() {
            return None;
        }
        let offset = self.first_unresolved(id, self.cursor(id).next)?;
        self.cursor_mut(id).pass_to(offset);
        Some(offset)
    }
}

fn may_give_up<T>(cursor: &Cursor<T>, slot: &Slot<T>) -> bool {
    cursor.gauges.may_shed().allows(|| slot.is_taken)
}
