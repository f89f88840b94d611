//! Readers that come and go, and figures of the log and of its readers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::shed::LOOKED_AT_ONCE;
use super::tail::As;
use super::{Inner, Log};
use crate::cursors::{Cursor, file_name};
use crate::format::DroppedRange;
use crate::segment::Unremoved;
use crate::types::{
    CursorId, DiskTrouble, Holding, Keep, LogStats, Offset, Orphan, Sheds, Subscription,
    unix_now_ns,
};

impl<T> Log<T> {
    /// Adds a reader. If its name has left a backlog behind, it goes on there and gives up nothing
    /// before [`crate::ReaderGauges::allow`]. Otherwise it starts at the head and may give up
    /// everything.
    pub fn subscribe(&self, subscription: Subscription) -> CursorId {
        let mut inner = self.shared.inner.lock();
        let orphan = inner.find_orphan(&subscription.name);
        let orphan = orphan.filter(|&id| !inner.cursor(id).is_lost);
        let id = orphan.unwrap_or_else(|| inner.add_cursor(subscription.name));
        let cursor = inner.cursor_mut(id);
        if orphan.is_none() {
            cursor.gauges.allow(Sheds::Everything);
        }
        cursor.is_subscribed = true;
        cursor.gauges.limit_bytes.set(subscription.limit_bytes);
        cursor.lease_limit_bytes = subscription.lease_limit_bytes;
        cursor.is_best_effort = subscription.is_best_effort;
        cursor.wake = subscription.wake;
        cursor.publish();
        id
    }

    /// Removes a reader. Returns the frames that it gives up. If its backlog is kept, its cursor
    /// stays as long as segments may name it: other readers may give up the frames that it took.
    pub fn unsubscribe(&self, id: CursorId, keep: Keep) -> Holding {
        let mut inner = self.shared.inner.lock();
        if keep == Keep::Backlog && inner.store.is_some() {
            inner.rewind(id);
            let head = inner.slots.head();
            let cursor = inner.cursor_mut(id);
            cursor.is_subscribed = false;
            cursor.left_at = head;
            // The backlog stays until a reader of this name takes it over or an operator drops it.
            cursor.gauges.allow(Sheds::Nothing);
            cursor.wake = std::sync::Arc::new(|| {});
            cursor.ahead.is_awaited = false;
            cursor.gauges.limit_bytes.set(u64::MAX);
            if inner.is_needed(id) {
                self.shared.read_ahead_wake.notify_one();
                return Holding::default();
            }
            // Its file has counts that go on if it comes back. Maintenance removes it.
            if inner.cursor(id).has_file {
                return Holding::default();
            }
        }
        inner.remove_cursor(id)
    }

    /// Gives up the backlog of a reader without a subscriber. None if there is no such reader.
    pub fn forget(&self, name: &str) -> Option<Holding> {
        let mut inner = self.shared.inner.lock();
        let id = inner.find_orphan(name)?;
        Some(inner.remove_cursor(id))
    }

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

    /// Names of readers, and the frames that each of them waits for and that the start found in no
    /// file, until they count as lost.
    pub fn missing(&self) -> Vec<(String, u64)> {
        let inner = self.shared.inner.lock();
        let cursors = inner.cursors.iter().flatten().filter(|cursor| cursor.missing_frames > 0);
        cursors.map(|cursor| (cursor.name.clone(), cursor.missing_frames)).collect()
    }

    /// Files that were set aside because readers passed something in them.
    pub fn set_aside(&self) -> Vec<PathBuf> {
        let inner = self.shared.inner.lock();
        let files = inner.store.iter().flat_map(|store| &store.set_aside);
        files.map(|file| file.path.clone()).collect()
    }

    /// Changes that other processes made to files that were being written, since the last call.
    pub fn take_disturbances(&self) -> Vec<String> {
        let mut inner = self.shared.inner.lock();
        let store = inner.store.as_mut();
        store.map_or_else(Vec::new, |store| std::mem::take(&mut store.disturbances))
    }

    /// Unneeded files that the disk refuses to remove.
    pub fn unremoved(&self) -> Vec<Unremoved> {
        let inner = self.shared.inner.lock();
        inner.store.as_ref().map_or_else(Vec::new, |store| store.unremoved.clone())
    }

    pub fn stats(&self) -> LogStats {
        let inner = self.shared.inner.lock();
        inner.store.as_ref().map_or_else(LogStats::default, |store| {
            let (segments, disk_bytes) = store.segments.size();
            let set_aside_files = store.set_aside.len() as u64;
            let set_aside_bytes = store.set_aside.iter().map(|file| file.len_bytes).sum();
            let unremoved_files = store.unremoved.len() as u64;
            let unremoved_bytes: u64 = store.unremoved.iter().map(|file| file.len_bytes).sum();
            let disk_bytes = disk_bytes + set_aside_bytes + unremoved_bytes;
            let stats = LogStats { segments, disk_bytes, unremoved_files, ..store.stats };
            let mut stats = LogStats { set_aside_files, set_aside_bytes, ..stats };
            for cursor in inner.cursors.iter().flatten() {
                stats.lost.add(cursor.lost);
                stats.missing_frames += cursor.missing_frames;
                stats.lost_cursors += u64::from(cursor.is_lost);
            }
            stats
        })
    }
}

impl<T> Inner<T> {
    fn find_orphan(&self, name: &str) -> Option<CursorId> {
        let is_it = |cursor: &Option<Cursor<T>>| {
            cursor.as_ref().is_some_and(|cursor| !cursor.is_subscribed && cursor.name == name)
        };
        // Readers of a log in memory may have no name.
        self.store.as_ref()?;
        self.cursors.iter().position(is_it).map(CursorId)
    }

    fn add_cursor(&mut self, name: String) -> CursorId {
        let is_used = |id| self.cursors.iter().flatten().any(|cursor| cursor.persistent_id == id);
        let persistent_id = self.store.as_mut().map_or(0, |store| {
            store.newest_persistent_id += 1;
            while is_used(store.newest_persistent_id) {
                store.newest_persistent_id += 1;
            }
            store.newest_persistent_id
        });
        self.cursors.push(Some(Cursor::at(self.slots.head(), name, persistent_id)));
        CursorId(self.cursors.len() - 1)
    }

    /// True if the reader may have unresolved frames. Counts may be too low after a crash.
    pub(crate) fn waits_for(&self, id: CursorId) -> bool {
        let mut segments = self.store.iter().flat_map(|store| store.segments.by_first.values());
        segments.any(|segment| segment.is_pinned_by(id))
            || self.first_unresolved(id, self.cursor(id).floor).is_some()
    }

    /// Whether a reader without a subscriber may have unresolved frames, or segments may name it,
    /// also those that were set aside.
    fn is_needed(&self, id: CursorId) -> bool {
        let cursor = self.cursor(id);
        let first = self.store.as_ref().and_then(|store| store.segments.by_first.keys().next());
        cursor.is_lost
            || !cursor.passed.is_empty()
            || (cursor.has_file && first.is_some_and(|&first| first < cursor.left_at))
            || self.waits_for(id)
    }

    /// Removes readers that have no subscriber and are not needed any more.
    pub(crate) fn forget_unneeded(&mut self) {
        for id in (0..self.cursors.len()).map(CursorId) {
            let has_left = self.cursors[id.0].as_ref().is_some_and(|cursor| !cursor.is_subscribed);
            if has_left && !self.is_needed(id) {
                self.remove_cursor(id);
            }
        }
    }

    /// Removes a reader and its file. All its unresolved frames count as resolved.
    fn remove_cursor(&mut self, id: CursorId) -> Holding {
        let held = self.cursor(id).held();
        let mut offset = self.cursor(id).floor.max(self.evicted_below());
        while let Some(unresolved) = self.first_unresolved(id, offset) {
            self.resolve(id, unresolved, As::GivenUp);
            offset = unresolved + 1;
        }
        let cursor = self.cursors[id.0].take().expect("a reader is not used after it unsubscribed");
        if let Some(store) = &mut self.store {
            store.segments.forget_reader(id);
            store.stats.lost.add(cursor.lost);
            if cursor.has_file {
                let file_name = if cursor.is_lost { cursor.name } else { file_name(&cursor.name) };
                store.gone_readers.push((id, file_name));
            }
        }
        held
    }

    fn oldest_age(&self, id: CursorId, cursor: &Cursor<T>) -> Option<Duration> {
        if let Some(received_unix_ns) = cursor.oldest_on_disk_unix_ns() {
            return Some(Duration::from_nanos(unix_now_ns().saturating_sub(received_unix_ns)));
        }
        let oldest = self.unresolved_slots(id, cursor.floor).next();
        oldest.map(|(_, slot)| slot.appended.elapsed())
    }
}
