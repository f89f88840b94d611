//! The read-ahead thread: reads from disk ahead of the readers that have fallen out of memory, and
//! drops frames on disk for readers that are over their budget.
//!
//! Invariants
//! - Whatever a reader passes has no frame for it, was resolved by it, or is a place of which
//!   nothing can be made: counted, not taken, and the reason to set the file aside.
//!   A refused read is tried again. Bad blocks among readable frames are passed after the disk has
//!   refused them for long; a reader waits for a file of which nothing can be read.
//! - A reader that waits for the disk does not hold up other readers.
//! - Nothing at or above `evicted_below` is read: it is in memory.
//! - Readers that need the same frame at a time share it.

mod refusals;
mod tasks;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::MutexGuard;
use refusals::Refusals;
use tasks::{Found, Purpose, SharedFrames, Step, Task, read_turn};

use crate::cursors::Cursor;
use crate::disk::BadBlocks;
use crate::error::{FileError, Result};
use crate::log::{DiskFrame, Ends, Home, Inner, Passed, Segment, Shared, Shed};
use crate::segment::{ScanOptions, SegmentScan};
use crate::types::{CursorId, Offset, Record};

/// Least and most bytes of a file read at a time; in between it is `read_ahead_bytes`.
const BUFFER_RANGE_BYTES: (u64, u64) = (64 << 10, 1 << 20);
/// Frames that are looked at under one lock.
const FRAMES_AT_ONCE: usize = 256;

pub(crate) struct ReadAhead<T> {
    shared: Arc<Shared<T>>,
    home: Home,
    places: HashMap<CursorId, Place>,
    /// The reader whose place has a buffer.
    buffered: Option<CursorId>,
    shared_frames: SharedFrames<T>,
    refusals: Refusals,
}

/// A reader's position on disk.
struct Place {
    /// Of its segment.
    first: Offset,
    generation: u64,
    segment: SegmentScan,
    /// Every offset below was looked at.
    at: Offset,
}

impl<T: Record> ReadAhead<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, home: Home) -> Self {
        let refusals = Refusals::new(home.options.read_patience);
        let (places, shared_frames) = Default::default();
        ReadAhead { shared, home, places, buffered: None, shared_frames, refusals }
    }

    pub(crate) fn run(mut self) {
        let mut turn = 0;
        while let Some(task) = self.next_task(&mut turn) {
            // No delivery reads these frames: they need not be passed.
            let may_pass = self.refusals.is_lasting(task.id) && task.purpose != Purpose::Date;
            let bad = self.refusals.begin_turn(&task, may_pass);
            match self.work(&task, &bad) {
                Ok(found) => self.end_turn(&task, found, &bad),
                Err(error) => self.refuse(&task, &error, &bad),
            }
        }
    }

    fn end_turn(&mut self, task: &Task, mut found: Found<T>, bad: &BadBlocks) {
        let refused = found.refused.take();
        // Blocks before the refused ones may have to be read again.
        let has_gone_on = found.until > task.from;
        // Where bad blocks are passed, further ones of the same turn are passed as well.
        if has_gone_on && !(refused.is_some() && bad.may_pass()) {
            self.refusals.end(task.id);
        }
        match refused {
            Some(error) if !has_gone_on => self.refuse(task, &error, bad),
            Some(error) => self.wait(task, &error, bad),
            None => {}
        }
        if has_gone_on || task.purpose != Purpose::Drop {
            self.deliver(task, found);
        }
    }

    /// Waits until some reader needs something; readers take turns. None when the log closes.
    fn next_task(&mut self, turn: &mut usize) -> Option<Task> {
        // One segment between two turns, so that readers need not wait for all of them.
        self.shed_segment();
        let shared = self.shared.clone();
        let mut inner = shared.inner.lock();
        loop {
            if inner.on_disk().ends != Ends::No {
                return None;
            }
            let reads = |cursor: &Cursor<T>| {
                cursor.is_subscribed || cursor.oldest_on_disk_unix_ns().is_none()
            };
            self.places.retain(|id, _| inner.cursors[id.0].as_ref().is_some_and(reads));
            // A file that is open takes space after its removal.
            let segments = &inner.on_disk().segments;
            self.places.retain(|_, place| segments.is_there(place.first, place.generation));
            self.refusals.retain(|id| inner.cursors[id.0].is_some());
            let now = Instant::now();
            let count = inner.cursors.len();
            let mut woken = Vec::new();
            for step in 0..count {
                let index = (*turn + step) % count;
                let id = CursorId(index);
                if self.refusals.has_to_wait(id, now) {
                    continue;
                }
                match inner.task(id) {
                    Step::Work(task) => {
                        *turn = index + 1;
                        return Some(*task);
                    }
                    Step::Wake(wake) => woken.push(wake),
                    Step::Nothing => self.refusals.end(id),
                }
            }
            if !woken.is_empty() {
                MutexGuard::unlocked(&mut inner, || woken.into_iter().for_each(|wake| wake()));
                continue;
            }
            let store = inner.on_disk();
            if store.segments.by_first.values().any(|segment| segment.shed == Shed::Asked) {
                MutexGuard::unlocked(&mut inner, || self.shed_segment());
                continue;
            }
            if self.refusals.is_empty() {
                store.read_trouble = None;
            }
            match self.refusals.next_at() {
                Some(again_at) => drop(shared.read_ahead_wake.wait_until(&mut inner, again_at)),
                None => shared.read_ahead_wake.wait(&mut inner),
            }
        }
    }

    fn work(&mut self, task: &Task, bad: &Arc<BadBlocks>) -> Result<Found<T>> {
        let target = &task.segment;
        // Hundreds of readers may wait for their backends: only the current one has a buffer.
        if let Some(last) = self.buffered.replace(task.id).filter(|last| *last != task.id)
            && let Some(place) = self.places.get_mut(&last)
        {
            place.segment.free_buffer();
        }
        let is_here =
            |place: &Place| place.generation == target.generation && place.at <= task.from;
        let mut place = match self.places.remove(&task.id).filter(is_here) {
            Some(mut place) => {
                target.end.into_iter().for_each(|end| place.segment.set_end(end));
                place
            }
            None => match self.open(task, bad) {
                Ok(place) => place,
                Err(error) => return self.pass_if_lost(task, error),
            },
        };
        let found = read_turn(&mut place.segment, task, &mut self.shared_frames);
        place.at = found.until;
        // After an error of the disk the segment is opened again.
        if found.refused.is_none() || bad.turn_is_over() {
            self.places.insert(task.id, place);
        }
        Ok(found)
    }

    fn open(&self, task: &Task, bad: &Arc<BadBlocks>) -> Result<Place> {
        let (shortest, longest) = BUFFER_RANGE_BYTES;
        let read_ahead_bytes = self.home.options.read_ahead_bytes.clamp(shortest, longest) as usize;
        let (target, at) = (&task.segment, task.from);
        let segment = self.home.open_passing(target, read_ahead_bytes, bad.clone())?;
        let known = target.epoch.is_none_or(|epoch| epoch == segment.info().header.epoch);
        // Generation 0 belongs to no segment: the file is opened again at the next turn.
        let generation = if known { target.generation } else { 0 };
        Ok(Place { first: target.first, generation, segment, at })
    }

    /// A file that was removed or whose header is destroyed does not stop the reader for good.
    fn pass_if_lost(&self, task: &Task, error: FileError) -> Result<Found<T>> {
        use FileError::{Misnamed, NoSegment, Unfinished};
        let has_no_frames = matches!(error, NoSegment { .. } | Misnamed { .. } | Unfinished { .. });
        if !has_no_frames && !error.is_not_found() {
            return Err(error);
        }
        if error.is_not_found() && !self.home.is_there() {
            // It comes back, or is made anew if it was removed.
            self.shared.with_store(|store| store.directory_is_lost = true);
            return Err(error);
        }
        let is_still_known = self.shared.with_store(|store| {
            let known = store.segments.at_or_after(task.from);
            known.is_some_and(|known| known.generation == task.segment.generation)
        });
        Ok(match is_still_known {
            true => {
                if matches!(error, Misnamed { .. }) {
                    self.shared.with_store(|store| store.note_name(task.segment.first, true));
                }
                let unread = vec![(task.from, task.until)];
                Found { passed: vec![(0, Passed::DAMAGED)], unread, ..Found::nothing(task.until) }
            }
            false => Found::nothing(task.from),
        })
    }

    /// Hands the result of a task to its reader and wakes it.
    fn deliver(&self, task: &Task, found: Found<T>) {
        let mut inner = self.shared.inner.lock();
        let store = inner.on_disk();
        store.stats.frames_read += found.entries.len() as u64;
        let segment = store.segments.by_first.get_mut(&task.segment.first);
        if let Some(segment) = segment.filter(|it| it.generation == task.segment.generation) {
            segment.note_passed(&found.passed, &mut store.stats);
        }
        if self.refusals.is_empty() {
            store.read_trouble = None;
        }
        let wake = inner.take_found(task, found);
        drop(inner);
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Takes a turn that has read nothing.
    fn refuse(&mut self, task: &Task, error: &FileError, bad: &BadBlocks) {
        self.wait(task, error, bad);
        if bad.may_pass() && !bad.turn_is_over() && task.purpose == Purpose::Drop {
            // Its frames stay, and frames behind them may go.
            self.shared.inner.lock().keep_undropped(task);
            self.refusals.try_at_once(task.id);
        }
    }

    /// Makes the reader wait before it tries again.
    fn wait(&mut self, task: &Task, error: &FileError, bad: &BadBlocks) {
        self.refusals.refuse(task.id, bad);
        self.shared.with_store(|store| store.read_trouble = Some(error.trouble(false)));
    }

    /// Gives up one segment that was asked for, if all of it may go.
    fn shed_segment(&mut self) {
        let segment = self.shared.with_store(|store| {
            store.segments.by_first.values().find(|segment| segment.shed == Shed::Asked).cloned()
        });
        let Some(segment) = segment else { return };
        let mut dropped = HashMap::new();
        let mut shed = || -> Result<bool> {
            if !self.shared.has_nothing_more(&*self.home.options.disk, &segment) {
                return Ok(false);
            }
            let ids = self.shared.inner.lock().ids_by_persistent_id();
            // Nothing is dropped before it is known that all frames may go.
            if !self.each_frame(&segment, |inner, frame| inner.all_may_drop(frame, &ids))? {
                return Ok(false);
            }
            let mut all_went = true;
            let was_read = self.each_frame(&segment, |inner, frame| {
                all_went &= inner.drop_for_all(frame, &ids, &mut dropped);
                true
            })?;
            Ok(was_read && all_went)
        };
        // A segment that cannot be read stays. Of one that is gone nothing can: its readers find at
        // the end what they have lost.
        let is_gone = |error: FileError| error.is_not_found() && self.home.is_there();
        let is_free = shed().unwrap_or_else(is_gone);
        let wakes = self.shared.inner.lock().end_shed(&segment, is_free, dropped);
        if is_free {
            self.shared.note_shed();
        }
        wakes.into_iter().for_each(|wake| wake());
    }

    /// Visits frames until `visit` returns false. False then, and if damage hides any readers.
    fn each_frame(
        &self,
        segment: &Segment,
        mut visit: impl FnMut(&mut Inner<T>, &DiskFrame) -> bool,
    ) -> Result<bool> {
        let mut scan = self.home.open(segment, ScanOptions::default())?;
        loop {
            let mut frames = Vec::with_capacity(FRAMES_AT_ONCE);
            while frames.len() < FRAMES_AT_ONCE
                && let Some(located) =
                    scan.next_frame()?.filter(|it| it.header.offset <= segment.last)
            {
                frames.push(DiskFrame::of(&scan, located));
            }
            if frames.is_empty() {
                return Ok(scan.damage().is_none());
            }
            let mut inner = self.shared.inner.lock();
            if !frames.iter().all(|frame| visit(&mut inner, frame)) {
                return Ok(false);
            }
        }
    }
}
