//! The memory tail: its slots, appending entries, leasing them to readers, resolving them, and
//! evicting those that are on disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::{Change, Inner, Log, Slot};
use crate::cursors::DiskLease;
use crate::types::{Appended, Charge, CursorId, Holding, Next, Offset, unix_now_ns};

/// At most this many entries are evicted under one lock.
const EVICTED_AT_ONCE: usize = 256;
/// Slots are freed in chunks of this many.
const CHUNK: u64 = 128;

/// Slots of neighbouring offsets.
struct Chunk<S> {
    slots: Vec<Option<S>>,
    live: usize,
}

/// Slots from the oldest live one to the head. A chunk is freed when everything in it is resolved,
/// wherever it lies, and costs a pointer then: one frame that waits for minutes pins its chunk and
/// not all later ones.
pub(crate) struct Slots<S> {
    /// Offset of the first slot of the first chunk; a multiple of `CHUNK`.
    base: u64,
    head: u64,
    chunks: VecDeque<Option<Box<Chunk<S>>>>,
}

impl<S> Slots<S> {
    /// Without any slot. The first one gets the offset `head`.
    pub(crate) fn starting_at(head: u64) -> Self {
        let base = head / CHUNK * CHUNK;
        let mut slots = Slots { base, head: base, chunks: VecDeque::new() };
        while slots.head < head {
            slots.push(None);
        }
        slots
    }

    /// The offset that the next slot gets.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Adds a slot at the head; None for a frame that is resolved from the start.
    pub(crate) fn push(&mut self, slot: Option<S>) -> u64 {
        if self.head.is_multiple_of(CHUNK) {
            self.chunks.push_back(Some(Box::new(Chunk {
                slots: Vec::with_capacity(CHUNK as usize),
                live: 0,
            })));
        }
        let offset = self.head;
        self.head += 1;
        if let Some(Some(chunk)) = self.chunks.back_mut() {
            chunk.live += usize::from(slot.is_some());
            chunk.slots.push(slot);
        }
        self.let_go(offset);
        offset
    }

    pub(crate) fn get(&self, offset: u64) -> Option<&S> {
        let chunk = self.chunks.get(self.index(offset)?)?.as_ref()?;
        chunk.slots.get((offset % CHUNK) as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, offset: u64) -> Option<&mut S> {
        let index = self.index(offset)?;
        let chunk = self.chunks.get_mut(index)?.as_mut()?;
        chunk.slots.get_mut((offset % CHUNK) as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, offset: u64) -> Option<S> {
        let index = self.index(offset)?;
        let chunk = self.chunks.get_mut(index)?.as_mut()?;
        let slot = chunk.slots.get_mut((offset % CHUNK) as usize)?.take()?;
        chunk.live -= 1;
        self.let_go(offset);
        Some(slot)
    }

    /// The first offset from `offset` on that may have a slot: skips freed chunks.
    pub(crate) fn next_live(&self, offset: u64) -> u64 {
        let mut offset = offset.max(self.base);
        let is_gone = |offset| self.index(offset).is_some_and(|index| self.chunks[index].is_none());
        while offset < self.head && is_gone(offset) {
            offset = (offset / CHUNK + 1) * CHUNK;
        }
        offset.min(self.head)
    }

    /// The slots from an offset on, each with its offset.
    pub(crate) fn live_from(&self, offset: u64) -> impl Iterator<Item = (u64, &S)> {
        let mut next = offset;
        std::iter::from_fn(move || {
            loop {
                let offset = self.next_live(next);
                if offset >= self.head {
                    return None;
                }
                next = offset + 1;
                if let Some(slot) = self.get(offset) {
                    return Some((offset, slot));
                }
            }
        })
    }

    fn index(&self, offset: u64) -> Option<usize> {
        let distance = offset.checked_sub(self.base)?;
        usize::try_from(distance / CHUNK).ok()
    }

    /// Frees the chunk of an offset if nothing in it is left, and freed chunks at the tail.
    fn let_go(&mut self, offset: u64) {
        let Some(index) = self.index(offset) else { return };
        let is_done = |chunk: &Option<Box<Chunk<S>>>| {
            chunk.as_ref().is_none_or(|chunk| chunk.live == 0 && chunk.slots.len() as u64 == CHUNK)
        };
        if self.chunks.get(index).is_some_and(is_done) {
            self.chunks[index] = None;
        }
        while self.chunks.front().is_some_and(Option::is_none) {
            self.chunks.pop_front();
            self.base += CHUNK;
        }
    }
}

/// Why a reader resolves an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    Taken,
    /// The reader's filters let nothing of it pass.
    Unwanted,
    GivenUp,
}

/// An entry that a reader has just resolved.
pub(super) struct Resolved<T> {
    /// None if it is on disk only.
    pub(crate) entry: Option<Arc<T>>,
    pub(crate) charge: Charge,
    /// The last reader gave it up; no reader has taken it, and it is not durable.
    pub(crate) is_lost: bool,
}

impl<T> Log<T> {
    /// Appends an entry for the given readers. Without readers the entry is resolved at once and
    /// not kept. Says whether more waits for some reader now than its budget allows.
    pub fn append(&self, entry: Arc<T>, charge: Charge, readers: &Arc<[CursorId]>) -> Appended {
        let appended = Instant::now();
        let mut inner = self.shared.inner.lock();
        let inner = &mut *inner;
        let head = inner.slots.head();
        let (mut unresolved, mut unresolved_ids) = (0, 0);
        let (mut over_budget, mut lags, mut gone) = (false, false, Vec::new());
        for &reader in readers.iter() {
            let mut cursor = inner.cursors[reader.0].as_mut();
            if let Some(cursor) = cursor.as_mut().filter(|it| it.is_subscribed) {
                cursor.unread.add(charge);
                cursor.unwritten.add(charge);
                unresolved += 1;
                unresolved_ids ^= reader.0;
                lags |= cursor.lags;
                over_budget |= cursor.is_over_limit();
                cursor.publish();
            } else {
                // It has unsubscribed: the caller uses an older list of readers.
                if let Some(cursor) = cursor {
                    cursor.resolve(head);
                }
                gone.push(reader);
            }
        }
        let is_kept = unresolved > 0;
        let offset = inner.slots.push(is_kept.then(|| Slot {
            entry,
            readers: readers.clone(),
            unresolved,
            unresolved_ids,
            is_taken: false,
            is_durable: false,
            charge,
            appended,
        }));
        if is_kept {
            inner.stored_bytes += charge.bytes;
            inner.memory.stored_bytes.add(charge.bytes);
            if unresolved == 1 {
                inner.note_alone(unresolved_ids, charge.bytes, true);
            }
            if let Some(store) = &mut inner.store {
                store.unwritten_bytes += charge.bytes;
                inner.memory.unwritten_bytes.add(charge.bytes);
                if lags
                    || store.flush_after.is_zero()
                    || inner.memory.stored_bytes.get() > store.memory_limit_bytes
                {
                    store.due_below = offset + 1;
                }
                // After an error of the disk the writer wakes up by itself.
                if store.trouble.is_none() && (store.writer_is_idle || store.due_below > offset) {
                    store.writer_is_idle = false;
                    self.shared.writer_wake.notify_one();
                }
            }
        }
        Appended { offset, gone, over_budget }
    }

    /// The offset that the next entry gets.
    pub fn head(&self) -> Offset {
        self.shared.inner.lock().slots.head()
    }

    /// Leases the next entry for a reader until it is resolved. Never waits for the disk.
    pub fn read(&self, id: CursorId) -> Next<T> {
        let mut inner = self.shared.inner.lock();
        let next = self.read_next(&mut inner, id);
        inner.cursor(id).publish();
        next
    }

    fn read_next(&self, inner: &mut Inner<T>, id: CursorId) -> Next<T> {
        let cursor = inner.cursor(id);
        if cursor.leased.frames > 0 && cursor.leased.bytes >= cursor.lease_limit_bytes {
            return Next::Full;
        }
        if inner.cursor(id).next < inner.evicted_below() {
            inner.cursor_mut(id).ahead.is_active = true;
            if let Some((offset, entry)) = inner.take_ahead(id) {
                if inner.wants_ahead(id) {
                    self.shared.read_ahead_wake.notify_one();
                }
                return Next::Entry(offset, entry);
            }
            if inner.cursor(id).next < inner.evicted_below() {
                inner.cursor_mut(id).ahead.is_awaited = true;
                self.shared.read_ahead_wake.notify_one();
                return Next::Loading;
            }
        }
        inner.read_memory(id).map_or(Next::Empty, |(offset, entry)| Next::Entry(offset, entry))
    }

    /// Resolves an entry that a reader has taken. False if it was resolved before.
    pub fn resolve(&self, id: CursorId, offset: Offset) -> bool {
        self.resolve_as(id, offset, As::Taken).is_some()
    }

    /// Resolves an entry of which the reader's filters let nothing pass. That is no reason for
    /// other readers to give it up ([`crate::Sheds::Taken`]).
    pub fn resolve_unwanted(&self, id: CursorId, offset: Offset) -> bool {
        self.resolve_as(id, offset, As::Unwanted).is_some()
    }

    /// Resolves an entry that the reader gives up. True if it is lost: no other reader has taken
    /// it and it is not durable. None if it was resolved before.
    pub fn give_up(&self, id: CursorId, offset: Offset) -> Option<bool> {
        let mut inner = self.shared.inner.lock();
        let resolved = inner.resolve(id, offset, As::GivenUp)?;
        let dropped = Holding::from_iter([resolved.charge]);
        inner.cursor_mut(id).note_dropped_range(offset, offset + 1, dropped);
        // The entry is freed after the lock.
        drop(inner);
        Some(resolved.is_lost)
    }

    /// The caller frees the entry, after the lock.
    fn resolve_as(&self, id: CursorId, offset: Offset, how: As) -> Option<Resolved<T>> {
        self.shared.inner.lock().resolve(id, offset, how)
    }

    /// Whether the reader may give up an entry, leased or not.
    pub fn may_give_up(&self, id: CursorId, offset: Offset) -> bool {
        let inner = self.shared.inner.lock();
        let Some(cursor) = inner.cursors[id.0].as_ref() else { return false };
        // Memory does not know which readers took an entry that is on disk only.
        let is_taken = || inner.slots.get(offset).is_some_and(|slot| slot.is_taken);
        cursor.gauges.may_shed().allows(is_taken)
    }

    /// Gives back all leases: entries that are not resolved are read again, in order.
    pub fn rewind(&self, id: CursorId) {
        self.shared.inner.lock().rewind(id);
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
                    cursor.unread.remove(charge);
                    cursor.leased.add(charge);
                }
                // Not for this reader, or resolved already: it is passed.
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
            cursor.write_off_passed();
        }
        if offset >= head && cursor.unread.frames > 0 {
            // Nothing is left to read: what waited on disk besides is not there any more.
            cursor.lost.add(std::mem::take(&mut cursor.unread));
            cursor.missing_frames = 0;
            cursor.is_changed = true;
        }
        found
    }

    /// The next entry that was read ahead. Passes offsets without a frame for this reader.
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
            cursor.remove_unread(offset, lease.charge);
            cursor.leased.add(lease.charge);
            cursor.disk_leases.insert(offset, lease);
            self.note_on_disk(Change::Leased, id, offset, lease.charge);
            return Some((offset, entry));
        }
        let until = cursor.ahead.until.min(evicted_below);
        cursor.pass_to(until);
        None
    }

    /// True if the read-ahead thread should read on for this cursor.
    pub(crate) fn wants_ahead(&self, id: CursorId) -> bool {
        let Some(store) = &self.store else { return false };
        let cursor = self.cursor(id);
        let held_bytes = cursor.leased.bytes.saturating_add(cursor.ahead.bytes);
        let may_hold_bytes = cursor.lease_limit_bytes.saturating_add(store.read_ahead_bytes);
        // A frame that exceeds the limit is read when the reader has no other frame.
        let is_alone = cursor.leased.frames == 0 && cursor.ahead.entries.is_empty();
        cursor.ahead.until.max(cursor.next) < store.evicted_below
            && cursor.ahead.bytes <= store.read_ahead_bytes / 2
            && (held_bytes < may_hold_bytes || is_alone)
    }

    /// Resolves an entry, leased or not. None if it was resolved, or is on disk and not leased.
    pub(super) fn resolve(&mut self, id: CursorId, offset: Offset, how: As) -> Option<Resolved<T>> {
        if offset < self.evicted_below() {
            let charge = self.resolve_on_disk(id, offset, how)?;
            return Some(Resolved { entry: None, charge, is_lost: false });
        }
        let may_go_to_disk = self.store.is_some();
        let cursor = self.cursor_mut(id);
        let (was_leased, is_best_effort) = (offset < cursor.next, cursor.is_best_effort);
        if !cursor.resolve(offset) {
            return None;
        }
        if how != As::Taken && may_go_to_disk {
            cursor.note_untaken(offset, offset + 1);
        }
        let slot = self.slots.get_mut(offset).filter(|slot| slot.is_for(id))?;
        let (charge, is_durable) = (slot.charge, slot.is_durable);
        slot.unresolved -= 1;
        slot.unresolved_ids ^= id.0;
        slot.is_taken |= how == As::Taken && !is_best_effort;
        let (last_id, entry) = (slot.unresolved_ids, slot.entry.clone());
        let (is_gone, is_alone) = (slot.unresolved == 0, slot.unresolved == 1);
        let is_lost = is_gone && !slot.is_taken && !is_durable && how == As::GivenUp;
        if is_gone {
            self.slots.remove(offset);
            self.note_let_go(charge.bytes);
            self.note_alone(id.0, charge.bytes, false);
        } else if is_alone {
            self.note_alone(last_id, charge.bytes, true);
        }
        if let Some(store) = &mut self.store {
            if is_durable {
                store.segments.note(Change::Resolved, id, offset, charge);
            } else if is_gone {
                store.unwritten_bytes -= charge.bytes;
                self.memory.unwritten_bytes.remove(charge.bytes);
            }
        }
        let cursor = self.cursor_mut(id);
        if !is_durable {
            cursor.unwritten.remove(charge);
        }
        let holding = if was_leased { &mut cursor.leased } else { &mut cursor.unread };
        holding.remove(charge);
        cursor.publish();
        Some(Resolved { entry: Some(entry), charge, is_lost })
    }

    fn resolve_on_disk(&mut self, id: CursorId, offset: Offset, how: As) -> Option<Charge> {
        let cursor = self.cursor_mut(id);
        let lease = cursor.disk_leases.remove(&offset)?;
        cursor.resolve(offset);
        if how != As::Taken {
            cursor.note_untaken(offset, offset + 1);
        }
        cursor.leased.remove(lease.charge);
        cursor.publish();
        self.note_on_disk(Change::Resolved, id, offset, lease.charge);
        Some(lease.charge)
    }

    pub(super) fn rewind(&mut self, id: CursorId) {
        let cursor = self.cursor_mut(id);
        cursor.next = cursor.floor;
        cursor.shed_from = Default::default();
        cursor.unread.add(std::mem::take(&mut cursor.leased));
        cursor.forget_ahead();
        cursor.publish();
        for (offset, lease) in std::mem::take(&mut cursor.disk_leases) {
            self.note_on_disk(Change::GivenBack, id, offset, lease.charge);
        }
    }

    /// Evicts durable entries, the oldest first, while memory is over its limit. Returns them, to
    /// be freed without the lock.
    pub(crate) fn evict(&mut self) -> Vec<Arc<T>> {
        let (now, now_unix_ns) = (Instant::now(), unix_now_ns());
        let mut evicted = Vec::new();
        while let Some(store) = &mut self.store
            && self.memory.stored_bytes.get() > store.memory_limit_bytes
            && evicted.len() < EVICTED_AT_ONCE
        {
            let offset = self.slots.next_live(store.evicted_below).min(store.durable_below);
            store.evicted_below = store.evicted_below.max(offset);
            if offset >= store.durable_below {
                break;
            }
            store.evicted_below = offset + 1;
            let Some(slot) = self.slots.remove(offset) else { continue };
            store.stats.frames_evicted += 1;
            self.note_let_go(slot.charge.bytes);
            if slot.unresolved == 1 {
                self.note_alone(slot.unresolved_ids, slot.charge.bytes, false);
            }
            let age_ns = now.saturating_duration_since(slot.appended).as_nanos() as u64;
            let received_unix_ns = now_unix_ns.saturating_sub(age_ns);
            for reader in slot.readers.iter() {
                let Some(cursor) = &mut self.cursors[reader.0] else { continue };
                if offset < cursor.next && !cursor.is_resolved(offset) {
                    let lease = DiskLease { charge: slot.charge, received_unix_ns };
                    cursor.disk_leases.insert(offset, lease);
                }
            }
            evicted.push(slot.entry);
        }
        evicted
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

#[cfg(test)]
mod tests;
