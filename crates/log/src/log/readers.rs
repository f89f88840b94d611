//! Readers that come and go.

use super::reading::As;
use super::{Inner, Log};
use crate::cursor::Cursor;
use crate::cursor_file::file_name;
use crate::gauges::Sheds;
use crate::types::{CursorId, Holding, Keep, Subscription};

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
                self.shared.reader_wake.notify_one();
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
            if cursor.has_file {
                let file_name = if cursor.is_lost { cursor.name } else { file_name(&cursor.name) };
                store.gone_readers.push((id, file_name));
            }
        }
        held
    }
}
