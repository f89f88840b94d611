//! The memory tail of a log.
//!
//! Invariants: a frame is stored once, whatever the number of readers; it is let go as soon as every reader that it was
//! appended for has resolved it; a reader that lags pins only the frames that it has not resolved.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::cursor::{Cursor, Dropped};
use crate::slots::Slots;

/// Position in a log: the number of frames ever appended before.
pub type Offset = u64;

/// Index of a reader, given by [`Log::subscribe`] and never used again within the life of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CursorId(usize);

/// What an entry costs its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    pub bytes: u64,
    pub items: u64,
}

/// What [`Log::append`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub offset: Offset,
    pub over_budget: bool,
}

struct Slot<T> {
    entry: Arc<T>,
    /// The readers that this entry was appended for, sorted.
    readers: Arc<[CursorId]>,
    unresolved: usize,
    charge: Charge,
}

struct Inner<T> {
    slots: Slots<Slot<T>>,
    cursors: Vec<Option<Cursor>>,
    /// Bytes of entries that are not resolved everywhere: what the log holds in memory.
    stored_bytes: u64,
}

/// An append-only sequence of shared entries with one cursor a reader.
pub struct Log<T> {
    inner: Mutex<Inner<T>>,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Log { inner: Mutex::new(Inner { slots: Slots::default(), cursors: Vec::new(), stored_bytes: 0 }) }
    }
}

impl<T> Log<T> {
    /// Adds a reader that starts at the head: it sees what is appended from now on. `limit_bytes` is its budget.
    pub fn subscribe(&self, limit_bytes: u64) -> CursorId {
        let mut inner = self.inner.lock();
        let head = inner.slots.head();
        inner.cursors.push(Some(Cursor::at(head, limit_bytes)));
        CursorId(inner.cursors.len() - 1)
    }

    /// Changes a reader's budget (reload). What exceeds the new one is dealt with at the next append.
    pub fn set_limit(&self, id: CursorId, limit_bytes: u64) {
        self.inner.lock().cursor_mut(id).limit_bytes = limit_bytes;
    }

    /// Gives back all leases: whatever the reader has not resolved is read again, in order. For a reader that starts anew.
    pub fn rewind(&self, id: CursorId) {
        let mut inner = self.inner.lock();
        let cursor = inner.cursor_mut(id);
        cursor.next = cursor.floor;
        cursor.unread_bytes = cursor.held_bytes;
    }

    /// True if `bytes` more would exceed the reader's budget. Never while nothing waits for the reader: a frame larger than
    /// the whole budget would otherwise find no way through at all.
    pub fn would_exceed(&self, id: CursorId, bytes: u64) -> bool {
        self.look(id, |cursor| cursor.held_frames > 0 && cursor.held_bytes + bytes > cursor.limit_bytes)
    }

    /// True if more waits for the reader than its budget allows, a single frame excepted.
    pub fn is_over_budget(&self, id: CursorId) -> bool {
        self.look(id, |cursor| cursor.held_frames > 1 && cursor.held_bytes > cursor.limit_bytes)
    }

    /// True if more than `bytes` wait for the reader to come to them.
    pub fn is_behind(&self, id: CursorId, bytes: u64) -> bool {
        self.look(id, |cursor| cursor.unread_bytes > bytes)
    }

    /// Asks about a reader. False if a reload has removed it since the caller looked up its name.
    fn look(&self, id: CursorId, ask: impl FnOnce(&Cursor) -> bool) -> bool {
        self.inner.lock().cursors[id.0].as_ref().is_some_and(ask)
    }

    /// Removes a reader; what only it had not resolved is let go. Returns what it still held.
    pub fn unsubscribe(&self, id: CursorId) -> Dropped {
        let mut inner = self.inner.lock();
        let mut dropped = Dropped::default();
        let mut offset = inner.cursor(id).floor;
        while offset < inner.slots.head() {
            if let Some((_, charge)) = inner.resolve(id, offset) {
                dropped.add(charge);
            }
            offset = inner.slots.next_live(offset + 1);
        }
        inner.cursors[id.0] = None;
        dropped
    }

    /// Appends an entry for the given readers. Without readers the entry is resolved at once and not kept.
    /// Says whether some reader now holds more than its budget.
    pub fn append(&self, entry: Arc<T>, charge: Charge, readers: &Arc<[CursorId]>) -> Appended {
        let mut inner = self.inner.lock();
        let mut unresolved = 0;
        let mut over_budget = false;
        for &reader in readers.iter() {
            if let Some(cursor) = inner.cursors[reader.0].as_mut() {
                cursor.held_bytes += charge.bytes;
                cursor.unread_bytes += charge.bytes;
                cursor.held_items += charge.items;
                cursor.held_frames += 1;
                unresolved += 1;
                over_budget |= cursor.held_bytes > cursor.limit_bytes;
            }
        }
        let slot = (unresolved > 0).then(|| Slot { entry, readers: readers.clone(), unresolved, charge });
        if slot.is_some() {
            inner.stored_bytes += charge.bytes;
        }
        let offset = inner.slots.push(slot);
        Appended { offset, over_budget }
    }

    /// Leases the next entry for a reader; it stays leased until it is resolved.
    pub fn read(&self, id: CursorId) -> Option<(Offset, Arc<T>)> {
        let mut inner = self.inner.lock();
        let base = inner.slots.base();
        inner.cursor_mut(id).lift_to(base);
        let mut offset = inner.cursor(id).next;
        let mut found = None;
        while found.is_none() {
            let live = inner.slots.next_live(offset);
            inner.cursor_mut(id).resolve_run(offset, live);
            offset = live;
            if offset >= inner.slots.head() {
                break;
            }
            match inner.slots.get(offset) {
                Some(slot) if slot.is_for(id) && !inner.cursor(id).is_resolved(offset) => {
                    let bytes = slot.charge.bytes;
                    found = Some((offset, slot.entry.clone()));
                    inner.cursor_mut(id).unread_bytes -= bytes;
                }
                // Not for this reader, or resolved already: nothing to wait for.
                _ => {
                    inner.cursor_mut(id).resolve(offset);
                }
            }
            offset += 1;
        }
        inner.cursor_mut(id).next = offset;
        found
    }

    /// Marks an entry as resolved for a reader. Returns the entry the first time, None when it was resolved before.
    pub fn resolve(&self, id: CursorId, offset: Offset) -> Option<Arc<T>> {
        self.inner.lock().resolve(id, offset).map(|(entry, _)| entry)
    }

    /// Resolves the oldest entries that the reader has not leased until it holds at most its budget, or the newest entry
    /// alone is left of them; returns them with what they were charged.
    pub fn drop_oldest_unread(&self, id: CursorId) -> (Dropped, Vec<Arc<T>>) {
        let mut inner = self.inner.lock();
        let limit_bytes = inner.cursor(id).limit_bytes;
        let mut dropped = Dropped::default();
        let mut entries = Vec::new();
        while inner.cursor(id).held_bytes > limit_bytes {
            let base = inner.slots.base();
            inner.cursor_mut(id).lift_to(base);
            let next = inner.cursor(id).next;
            let offset = inner.slots.next_live(next);
            inner.cursor_mut(id).resolve_run(next, offset);
            // The newest entry stays even if it alone exceeds the budget: it may be what the backend is about to take.
            if offset + 1 >= inner.slots.head() {
                inner.cursor_mut(id).next = offset;
                break;
            }
            inner.cursor_mut(id).next = offset + 1;
            if let Some((entry, charge)) = inner.resolve(id, offset) {
                inner.cursor_mut(id).unread_bytes -= charge.bytes;
                dropped.add(charge);
                entries.push(entry);
            }
        }
        (dropped, entries)
    }

    /// Bytes that wait for the reader.
    pub fn held_bytes(&self, id: CursorId) -> u64 {
        self.inner.lock().cursor(id).held_bytes
    }

    /// Bytes, items and frames that wait for the reader.
    pub fn held(&self, id: CursorId) -> Dropped {
        let inner = self.inner.lock();
        let cursor = inner.cursor(id);
        Dropped { frames: cursor.held_frames, items: cursor.held_items, bytes: cursor.held_bytes }
    }

    /// The oldest entry that the reader has not resolved.
    pub fn oldest(&self, id: CursorId) -> Option<Arc<T>> {
        let inner = self.inner.lock();
        let cursor = inner.cursor(id);
        let mut offset = inner.slots.next_live(cursor.floor);
        while offset < inner.slots.head() {
            match inner.slots.get(offset) {
                Some(slot) if slot.is_for(id) && !cursor.is_resolved(offset) => return Some(slot.entry.clone()),
                _ => offset = inner.slots.next_live(offset + 1),
            }
        }
        None
    }

    /// Bytes of all entries that are not resolved everywhere.
    pub fn stored_bytes(&self) -> u64 {
        self.inner.lock().stored_bytes
    }

    /// Number of slots that are held, resolved ones beside live ones included.
    pub fn slots(&self) -> usize {
        self.inner.lock().slots.held()
    }
}

impl<T> Slot<T> {
    fn is_for(&self, id: CursorId) -> bool {
        self.readers.contains(&id)
    }
}

impl<T> Inner<T> {
    fn cursor(&self, id: CursorId) -> &Cursor {
        self.cursors[id.0].as_ref().expect("a reader is not used after it unsubscribed")
    }

    fn cursor_mut(&mut self, id: CursorId) -> &mut Cursor {
        self.cursors[id.0].as_mut().expect("a reader is not used after it unsubscribed")
    }

    fn resolve(&mut self, id: CursorId, offset: Offset) -> Option<(Arc<T>, Charge)> {
        if !self.cursor_mut(id).resolve(offset) {
            return None;
        }
        let slot = self.slots.get_mut(offset).filter(|slot| slot.is_for(id))?;
        let charge = slot.charge;
        slot.unresolved -= 1;
        let entry = slot.entry.clone();
        if slot.unresolved == 0 {
            self.slots.remove(offset);
            self.stored_bytes -= charge.bytes;
        }
        let cursor = self.cursor_mut(id);
        cursor.held_bytes -= charge.bytes;
        cursor.held_items -= charge.items;
        cursor.held_frames -= 1;
        Some((entry, charge))
    }
}

impl Dropped {
    fn add(&mut self, charge: Charge) {
        self.frames += 1;
        self.items += charge.items;
        self.bytes += charge.bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const ONE: Charge = Charge { bytes: 10, items: 1 };

    fn readers(ids: &[CursorId]) -> Arc<[CursorId]> {
        ids.into()
    }

    #[test]
    fn a_frame_is_stored_once_and_let_go_when_the_last_reader_has_resolved_it() {
        let log = Log::default();
        let (a, b) = (log.subscribe(u64::MAX), log.subscribe(u64::MAX));
        let entry = Arc::new("frame");
        log.append(entry.clone(), ONE, &readers(&[a, b]));
        assert_eq!((log.stored_bytes(), log.held_bytes(a), log.held_bytes(b)), (10, 10, 10));
        let (offset, _) = log.read(a).unwrap();
        log.resolve(a, offset);
        assert_eq!((log.stored_bytes(), log.held_bytes(a), log.held_bytes(b)), (10, 0, 10));
        let (offset, _) = log.read(b).unwrap();
        log.resolve(b, offset);
        assert_eq!((log.stored_bytes(), Arc::strong_count(&entry)), (0, 1));
    }

    #[test]
    fn a_waiting_frame_pins_neither_its_neighbours_nor_their_memory() {
        let log = Log::default();
        let a = log.subscribe(u64::MAX);
        let only_a = readers(&[a]);
        for index in 0..1000 {
            log.append(Arc::new(index), ONE, &only_a);
        }
        let offsets: Vec<_> = std::iter::from_fn(|| log.read(a)).map(|(offset, _)| offset).collect();
        for &offset in &offsets[1..] {
            assert!(log.resolve(a, offset).is_some());
            assert!(log.resolve(a, offset).is_none(), "resolved only once");
        }
        assert_eq!((log.stored_bytes(), log.held(a).frames), (10, 1));
        assert!(log.slots() < 300, "{} slots held for one frame", log.slots());
        log.resolve(a, offsets[0]);
        assert_eq!(log.stored_bytes(), 0);
    }

    #[test]
    fn dropping_the_oldest_takes_what_is_not_leased_and_only_from_its_own_reader() {
        let log = Log::default();
        let (slow, quick) = (log.subscribe(30), log.subscribe(u64::MAX));
        let both = readers(&[slow, quick]);
        for index in 0..10 {
            log.append(Arc::new(index), ONE, &both);
        }
        let (leased, _) = log.read(slow).unwrap();
        let (dropped, entries) = log.drop_oldest_unread(slow);
        assert_eq!((dropped.frames, entries.len(), log.held_bytes(slow)), (7, 7, 30));
        assert_eq!(*entries[0], 1, "the leased frame 0 stays");
        assert_eq!(log.held_bytes(quick), 100);
        assert_eq!(*log.read(slow).unwrap().1, 8);
        assert!(log.resolve(slow, leased).is_some());
    }

    #[test]
    fn a_reader_that_was_idle_while_others_went_on_does_not_gather_ranges() {
        let log = Log::default();
        let (idle, busy) = (log.subscribe(u64::MAX), log.subscribe(u64::MAX));
        for index in 0..100 {
            log.append(Arc::new(index), ONE, &readers(&[busy]));
            let (offset, _) = log.read(busy).unwrap();
            log.resolve(busy, offset);
        }
        log.append(Arc::new(100), ONE, &readers(&[idle]));
        let (offset, entry) = log.read(idle).unwrap();
        assert_eq!((*entry, offset), (100, 100));
        log.resolve(idle, offset);
        assert!(log.inner.lock().cursor(idle).resolved.is_empty());
    }

    #[test]
    fn a_frame_larger_than_the_whole_budget_gets_through() {
        let log = Log::default();
        let reader = log.subscribe(25);
        assert!(!log.would_exceed(reader, 1000));
        let large = Charge { bytes: 1000, items: 1 };
        assert!(log.append(Arc::new(0), large, &readers(&[reader])).over_budget);
        assert_eq!(log.drop_oldest_unread(reader).0.frames, 0, "there is nothing older to drop");
        log.append(Arc::new(1), ONE, &readers(&[reader]));
        let (dropped, _) = log.drop_oldest_unread(reader);
        assert_eq!((dropped.frames, log.held_bytes(reader)), (1, 10), "now it is the oldest");
    }

    #[test]
    fn an_append_says_when_a_budget_is_exceeded_and_a_rewound_reader_sees_again_what_it_had_not_resolved() {
        let log = Log::default();
        let reader = log.subscribe(25);
        let only = readers(&[reader]);
        assert!(!log.append(Arc::new(0), ONE, &only).over_budget);
        assert!(!log.append(Arc::new(1), ONE, &only).over_budget);
        assert!(log.would_exceed(reader, 10));
        assert!(log.append(Arc::new(2), ONE, &only).over_budget);
        let read: Vec<_> = std::iter::from_fn(|| log.read(reader)).map(|(offset, _)| offset).collect();
        log.resolve(reader, read[1]);
        log.rewind(reader);
        let again: Vec<_> = std::iter::from_fn(|| log.read(reader)).map(|(_, entry)| *entry).collect();
        assert_eq!(again, [0, 2]);
    }

    #[test]
    fn a_reader_that_leaves_lets_go_of_what_only_it_held() {
        let log = Log::default();
        let (stays, leaves) = (log.subscribe(u64::MAX), log.subscribe(u64::MAX));
        log.append(Arc::new(0), ONE, &readers(&[stays, leaves]));
        log.append(Arc::new(1), ONE, &readers(&[leaves]));
        assert_eq!(log.unsubscribe(leaves).frames, 2);
        assert_eq!(log.stored_bytes(), 10, "the frame that the other reader still wants");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(u8),
        Read(usize),
        Resolve(usize, usize),
        Drop(usize, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1u8..8).prop_map(Step::Append),
            3 => (0usize..3).prop_map(Step::Read),
            3 => (0usize..3, any::<usize>()).prop_map(|(reader, pick)| Step::Resolve(reader, pick)),
            1 => (0usize..3, 0u64..100).prop_map(|(reader, limit)| Step::Drop(reader, limit)),
        ]
    }

    proptest! {
        /// Whatever the order of appends, leases, resolutions and drops: each reader gets each of its frames once and
        /// in order, and the bytes held are those of the frames that are not resolved.
        #[test]
        fn behaves_as_one_queue_a_reader(steps in proptest::collection::vec(step(), 0..300)) {
            let log = Log::default();
            let ids = [log.subscribe(u64::MAX), log.subscribe(u64::MAX), log.subscribe(u64::MAX)];
            let mut queues = [const { VecDeque::<u64>::new() }; 3];
            let mut leased = [const { Vec::<(u64, u64)>::new() }; 3];
            let mut appended = 0u64;
            for step in steps {
                match step {
                    Step::Append(mask) => {
                        let chosen: Vec<_> = (0..3).filter(|index| mask & (1 << index) != 0).collect();
                        let readers: Arc<[CursorId]> = chosen.iter().map(|&index| ids[index]).collect();
                        log.append(Arc::new(appended), ONE, &readers);
                        for index in chosen {
                            queues[index].push_back(appended);
                        }
                        appended += 1;
                    }
                    Step::Read(index) => {
                        let read = log.read(ids[index]);
                        prop_assert_eq!(read.as_ref().map(|(_, entry)| **entry), queues[index].pop_front());
                        leased[index].extend(read.map(|(offset, entry)| (offset, *entry)));
                    }
                    Step::Resolve(index, pick) => {
                        if !leased[index].is_empty() {
                            let (offset, value) = { let at = pick % leased[index].len(); leased[index].swap_remove(at) };
                            prop_assert_eq!(log.resolve(ids[index], offset).map(|entry| *entry), Some(value));
                        }
                    }
                    Step::Drop(index, limit) => {
                        log.set_limit(ids[index], limit);
                        let (_, entries) = log.drop_oldest_unread(ids[index]);
                        for entry in entries {
                            prop_assert_eq!(Some(*entry), queues[index].pop_front());
                        }
                        let held = 10 * (queues[index].len() + leased[index].len()) as u64;
                        prop_assert!(held <= limit || queues[index].iter().all(|&left| left + 1 == appended));
                    }
                }
                for index in 0..3 {
                    let unread = 10 * queues[index].len() as u64;
                    prop_assert_eq!(log.held_bytes(ids[index]), unread + 10 * leased[index].len() as u64);
                    prop_assert_eq!(log.inner.lock().cursor(ids[index]).unread_bytes, unread);
                }
            }
        }
    }
}
