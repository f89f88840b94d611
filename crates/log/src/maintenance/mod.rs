//! The maintenance thread: writes the cursors, removes segments that no reader needs and rewrites
//! those that few frames pin.
//!
//! While something is on disk it runs at each interval ([`crate::OpenOptions::keep_interval`]) and
//! soon after segments were given up. Safety does not need it: a cursor that was not written costs
//! repeated deliveries after a crash, a segment that was not removed costs space.
//!
//! Invariants
//! - Cursors are written, and those of removed readers are gone, before segments are removed:
//!   every frame that a stored cursor still needs is on disk.
//! - Only a segment in which no reader passed anything is removed. Any other is set aside.
//! - A rewritten segment has every frame of the old ones that some reader has not resolved. It
//!   replaces the first of them by a rename, when it is durable; the other old ones are removed
//!   after that, in order.

mod remove;
mod rewrite;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use remove::Run;

use crate::cursors::CursorFiles;
use crate::log::{Ends, Home, Segment, Shared};
use crate::recovery::Leftovers;
use crate::types::{Offset, Record};

/// Segments that were given up for their space are removed after this time, all at once.
const REMOVED_AFTER: Duration = Duration::from_millis(50);

pub(crate) struct Maintenance<T> {
    shared: Arc<Shared<T>>,
    home: Home,
    files: Arc<Mutex<CursorFiles>>,
    leftovers: Leftovers,
    unremoved: Vec<Run>,
    /// Files that are to be set aside.
    to_set_aside: Vec<Run>,
    /// No segment is rewritten before this time: a new file could not be created.
    rewrite_at: Instant,
    /// First offsets of segments that could not be rewritten. They are left out meanwhile.
    passed_by: HashSet<Offset>,
    /// `passed_by` is cleared at this time.
    retry_at: Instant,
}

impl<T: Record> Maintenance<T> {
    pub(crate) fn new(
        shared: Arc<Shared<T>>,
        home: Home,
        files: Arc<Mutex<CursorFiles>>,
        leftovers: Leftovers,
    ) -> Self {
        Maintenance {
            shared,
            home,
            files,
            leftovers,
            unremoved: Vec::new(),
            to_set_aside: Vec::new(),
            rewrite_at: Instant::now(),
            passed_by: HashSet::new(),
            retry_at: Instant::now(),
        }
    }

    pub(crate) fn run(mut self) {
        self.clean_up();
        while self.wait() {
            self.maintain(false);
        }
        if self.shared.with_store(|store| store.ends) == Ends::Closing {
            self.maintain(true);
        }
        self.shared.with_store(|store| store.ends = Ends::Now);
        self.shared.maintenance_wake.notify_all();
    }

    fn maintain(&mut self, at_the_end: bool) {
        if at_the_end {
            self.prove_names();
        }
        let unpinned = self.take_unpinned(at_the_end);
        self.files.lock().store(&self.shared, &self.home, at_the_end);
        let has_gone = !unpinned.is_empty();
        self.unremoved.extend(unpinned.into_iter().map(Run::of));
        self.remove_unneeded(at_the_end);
        if has_gone {
            // It closes them.
            self.shared.read_ahead_wake.notify_one();
        }
        // On a full disk there was no room for the list before.
        self.files.lock().remove_gone(&self.shared, &self.home);
        if !at_the_end {
            // Behind the cursors, which do not wait for a disk that refuses to read.
            self.prove_names();
        }
        if !at_the_end && Instant::now() >= self.rewrite_at {
            self.rewrite();
        }
    }

    /// Returns true when the interval is over, false when the log closes and the writer has ended.
    fn wait(&self) -> bool {
        let mut next = Instant::now() + self.home.options.keep_interval;
        let mut inner = self.shared.inner.lock();
        loop {
            let store = inner.on_disk();
            if store.ends == Ends::Now || (store.ends == Ends::Closing && store.writer_has_ended) {
                return false;
            }
            if std::mem::take(&mut store.has_shed) {
                next = next.min(Instant::now() + REMOVED_AFTER);
            }
            if !self.shared.maintenance_wake.wait_until(&mut inner, next).timed_out() {
                continue;
            }
            let store = inner.on_disk();
            let has_work = !store.segments.by_first.is_empty()
                || !store.gone_readers.is_empty()
                || store.cursor_trouble.is_some()
                || !store.left_files.is_empty()
                || !self.unremoved.is_empty()
                || !self.to_set_aside.is_empty();
            if has_work && store.ends == Ends::No {
                return true;
            }
            next = Instant::now() + self.home.options.keep_interval;
        }
    }

    /// Does the clean-up that recovery left. Files that are cut are synced before any cursor is
    /// stored: later starts do not scan them.
    fn clean_up(&mut self) {
        let disk = &*self.home.options.disk;
        let (cut, stayed) = std::mem::take(&mut self.leftovers).clean_up(disk);
        let segments = stayed.into_iter().filter(|path| self.is_segment(path)).map(Run::of);
        self.unremoved = segments.collect();
        self.note_unremoved();
        for (first, len_bytes) in cut {
            self.shared.with_store(|store| {
                let segment = store.segments.by_first.get_mut(&first);
                segment.map(|segment| segment.len_bytes = len_bytes)
            });
        }
    }

    /// Looks at the names behind the files that no reader needs.
    fn prove_names(&self) {
        let unpinned: Vec<Segment> = {
            let inner = &mut *self.shared.inner.lock();
            inner.update_pins();
            let segments = &inner.on_disk().segments;
            let is_asked = |it: &&Segment| {
                !it.is_open && !it.is_pinned() && segments.next_unproven(it.first).is_some()
            };
            segments.by_first.values().filter(is_asked).cloned().collect()
        };
        for segment in unpinned {
            self.shared.has_nothing_more(&*self.home.options.disk, &segment);
        }
    }

    /// Takes the segments that no reader needs any more from those of the log. Returns the paths of
    /// those that are to be removed.
    fn take_unpinned(&mut self, at_the_end: bool) -> Vec<PathBuf> {
        let inner = &mut *self.shared.inner.lock();
        inner.update_pins();
        let store = inner.on_disk();
        let segments = &store.segments;
        let goes = |segment: &&Segment| {
            let is_needed = segment.is_open || segment.is_pinned();
            !is_needed && segments.next_unproven(segment.first).is_none()
        };
        let unpinned: Vec<_> = segments.by_first.values().filter(goes).cloned().collect();
        for segment in &unpinned {
            store.segments.by_first.remove(&segment.first);
        }
        // A file that was set aside may be put back.
        let aside = store.set_aside.iter().map(|file| file.name.first_offset);
        let goes_aside = unpinned.iter().filter(|it| it.may_have_more()).map(|it| it.first);
        let waits_for_that = self.to_set_aside.iter().filter_map(Run::first_offset);
        let lowest = store.segments.by_first.keys().next().copied();
        let first = lowest.into_iter().chain(aside).chain(goes_aside).chain(waits_for_that).min();
        let first = first.unwrap_or(store.durable_below);
        let cursors = inner.cursors.iter_mut().flatten();
        cursors.for_each(|cursor| {
            cursor.untaken.forget_ended(first);
            cursor.written_off.forget_ended(first);
        });
        // At the end all have left, and may come back at the next start.
        if !at_the_end {
            inner.forget_unneeded();
        }
        let (kept, removed): (Vec<_>, Vec<_>) =
            unpinned.into_iter().partition(Segment::may_have_more);
        self.to_set_aside.extend(kept.into_iter().map(|segment| Run::of(segment.path)));
        removed.into_iter().map(|segment| segment.path).collect()
    }
}
