//! The writer thread: makes due frames durable, with all other unwritten frames in one sync (group
//! commit).
//!
//! Invariants
//! - A frame is written as soon as it is due ([`crate::OpenOptions::flush_after`]), with every
//!   unresolved frame that was appended before it. While readers resolve frames before they are
//!   due, nothing is written, and the thread wakes up only as often as frames come due.
//! - A frame is called durable after the sync of its segment, whose directory entry is durable, and
//!   after all its readers have durable cursor files, which the list on disk names: without one, a
//!   restart would not know that the frame is for a reader. The names that were found at the start
//!   may not be durable: a process may have ended before it synced the directory.

mod commit;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::error::{FileError, Result};
use crate::home::Home;
use crate::log::store::Ends;
use crate::log::{Inner, Shared};
use crate::maintenance::restore_directory;
use crate::record::Record;
use crate::segment::SegmentWriter;
use crate::types::CursorId;
use commit::Batch;

/// Waits before a disk that failed is tried again, doubled up to `RETRY_MAX`. While only space is
/// missing the wait stays at `RETRY_MIN`: space may be given up at any time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// An unneeded segment is given up after this many maintenance intervals without a write.
const IDLE_INTERVALS: u32 = 10;

pub(crate) struct Writer<T> {
    shared: Arc<Shared<T>>,
    home: Home,
    /// The names of directories, and of cursor files that were found, may not be durable.
    has_unsynced_names: bool,
    /// All cursor files have durable names, and the list on disk has them.
    has_durable_names: bool,
    /// Not even the shortest segment had space.
    has_no_space: bool,
    segment: Option<SegmentWriter>,
    committed: Instant,
    retry_after: Duration,
}

enum Work {
    Commit,
    /// Nothing was written for a while and no reader needs the open segment.
    GiveUpSegment,
    /// Everything is written and the log closes.
    Close,
    End,
}

impl<T: Record> Writer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, home: Home) -> Self {
        Writer {
            shared,
            home,
            has_unsynced_names: true,
            has_durable_names: false,
            has_no_space: false,
            segment: None,
            committed: Instant::now(),
            retry_after: RETRY_MIN,
        }
    }

    pub(crate) fn run(mut self) {
        loop {
            match self.wait_for_work() {
                Work::Commit => self.write(),
                Work::GiveUpSegment => self.give_up_segment(),
                Work::Close => break self.close_segment(),
                Work::End => break,
            }
        }
        self.shared.with_store(|store| store.writer_has_ended = true);
        self.shared.maintenance_wake.notify_all();
    }

    fn wait_for_work(&mut self) -> Work {
        let shared = self.shared.clone();
        let mut inner = shared.inner.lock();
        loop {
            self.let_go(&mut inner);
            let now = Instant::now();
            inner.pass_resolved();
            inner.note_lags(now);
            let due_at = inner.due_at();
            let idle_at = self.committed + self.home.options.keep_interval * IDLE_INTERVALS;
            let idle_at = self.segment.is_some().then_some(idle_at);
            let Inner { store: Some(store), slots, .. } = &mut *inner else { return Work::End };
            match store.ends {
                Ends::Now => return Work::End,
                Ends::Closing if store.durable_below == slots.head() => return Work::Close,
                Ends::Closing => return Work::Commit,
                Ends::No => {}
            }
            if due_at.is_some_and(|at| at <= now) || store.trouble.is_some() {
                return Work::Commit;
            }
            if idle_at.is_some_and(|at| at <= now) {
                self.committed = now;
                if self.open_segment_is_unpinned(&mut inner) {
                    return Work::GiveUpSegment;
                }
                continue;
            }
            store.writer_is_idle = due_at.is_none();
            match due_at.into_iter().chain(idle_at).min() {
                Some(at) => {
                    shared.writer_wake.wait_until(&mut inner, at);
                }
                None => shared.writer_wake.wait(&mut inner),
            }
            inner.on_disk().writer_is_idle = false;
        }
    }

    /// Evicts frames from memory that need not be there, and frees them without the lock.
    fn let_go(&self, inner: &mut MutexGuard<'_, Inner<T>>) {
        loop {
            let evicted = inner.evict();
            if evicted.is_empty() {
                return;
            }
            MutexGuard::unlocked(inner, || drop(evicted));
        }
    }

    fn open_segment_is_unpinned(&self, inner: &mut Inner<T>) -> bool {
        inner.update_pins();
        let open = inner.on_disk().segments.by_first.values().find(|segment| segment.is_open);
        open.is_none_or(|segment| !segment.is_pinned())
    }

    fn write(&mut self) {
        let is_lost = self.shared.with_store(|store| store.directory_is_lost);
        let restored = if is_lost { restore_directory(&self.shared, &self.home) } else { Ok(()) };
        let result = restored.and_then(|()| match Batch::collect(&self.shared) {
            Some(batch) => self.commit(&batch),
            None => self.probe(),
        });
        match result {
            Ok(()) => {
                self.committed = Instant::now();
                self.retry_after = RETRY_MIN;
                self.shared.with_store(|store| store.trouble = None);
            }
            Err(error) => {
                if error.is_gone() {
                    self.shared.with_store(|store| store.directory_is_lost = true);
                }
                self.wait_to_try_again(&error);
            }
        }
    }

    /// After trouble, when no frame is left to write: a new segment shows whether the disk works.
    fn probe(&mut self) -> Result<()> {
        // No frame below this offset will be written any more.
        let (has_trouble, first) =
            self.shared.with_store(|store| (store.trouble.is_some(), store.durable_below));
        if has_trouble { self.open_segment_for(first, 0).map(drop) } else { Ok(()) }
    }

    fn wait_to_try_again(&mut self, error: &FileError) {
        let until = Instant::now() + self.retry_after;
        let longest = if error.is_out_of_space() { RETRY_MIN } else { RETRY_MAX };
        self.retry_after = (self.retry_after * 2).min(longest);
        let mut inner = self.shared.inner.lock();
        let store = inner.on_disk();
        store.trouble = Some(error.trouble(true));
        store.stats.failures += 1;
        let goes_on = |inner: &mut Inner<T>| inner.on_disk().ends != Ends::Now;
        self.shared.writer_wake.wait_while_until(&mut inner, goes_on, until);
    }
}

impl<T> Inner<T> {
    /// Raises `durable_below` over frames that are durable or resolved everywhere.
    fn pass_resolved(&mut self) {
        let Some(store) = &mut self.store else { return };
        let mut live = self.slots.live_from(store.durable_below);
        let unwritten = live.find(|(_, slot)| !slot.is_durable);
        store.durable_below = unwritten.map_or(self.slots.head(), |(offset, _)| offset);
    }

    /// Time at which something has to be written. Call [`Inner::pass_resolved`] before.
    fn due_at(&self) -> Option<Instant> {
        let store = self.store.as_ref()?;
        let oldest = self.slots.get(store.durable_below)?;
        let is_due = store.durable_below < store.due_below
            || self.memory.stored_bytes.get() > store.memory_limit_bytes;
        Some(if is_due { oldest.appended } else { oldest.appended + store.flush_after })
    }

    /// Marks the readers that have left a frame unread for longer than a frame may wait for them.
    fn note_lags(&mut self, now: Instant) {
        let Some(after) = self.store.as_ref().map(|store| store.flush_after) else { return };
        for id in (0..self.cursors.len()).map(CursorId) {
            let Some(cursor) = &self.cursors[id.0] else { continue };
            let lags = cursor.unread.frames > 0 && self.has_unread_for(id, now, after);
            self.cursor_mut(id).lags = lags;
        }
    }

    fn has_unread_for(&mut self, id: CursorId, now: Instant, age: Duration) -> bool {
        if self.cursor(id).next < self.evicted_below() {
            return true;
        }
        let slot = self.first_unread_offset(id).and_then(|offset| self.slots.get(offset));
        slot.is_some_and(|slot| slot.appended + age <= now)
    }
}
