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

mod tasks;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use tasks::{Found, Purpose, Step, Task};

use crate::cursors::{Cursor, DiskLease};
use crate::error::{FileError, Result};
use crate::format::FrameHeader;
use crate::log::{DiskFrame, Ends, Home, Inner, Passed, Segment, Shared, Shed};
use crate::segment::{ScanOptions, SegmentScan};
use crate::types::{CursorId, Offset, Record, Undecodable};

/// Bytes on disk that are read for one reader before the next has its turn.
const TURN_BYTES: u64 = 1 << 20;
/// Least and most bytes of a file read at a time; in between it is `read_ahead_bytes`.
const BUFFER_RANGE_BYTES: (u64, u64) = (64 << 10, 1 << 20);
/// A reader waits this long before it tries a refused read again: at first, and at most.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_LIMIT: Duration = Duration::from_secs(5);
/// Frames that are looked at under one lock.
const FRAMES_AT_ONCE: usize = 256;

pub(crate) struct ReadAhead<T> {
    shared: Arc<Shared<T>>,
    home: Home,
    places: HashMap<CursorId, Place>,
    /// The reader whose place has a buffer.
    buffered: Option<CursorId>,
    shared_frames: SharedFrames<T>,
    /// Readers that wait because the disk refused a read.
    refusals: HashMap<CursorId, RefusedRead>,
}

/// Entries that were read and that some reader still uses.
struct SharedFrames<T> {
    by_offset: HashMap<Offset, Weak<T>>,
    /// At this number of entries the freed ones are removed.
    forget_at: usize,
}

struct RefusedRead {
    since: Instant,
    again_at: Instant,
}

/// A reader's position on disk.
struct Place {
    generation: u64,
    segment: SegmentScan,
    /// It passes bad blocks.
    passes_unreadable: bool,
    /// Every offset below was looked at.
    at: Offset,
}

impl<T: Record> ReadAhead<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, home: Home) -> Self {
        let shared_frames = SharedFrames { by_offset: HashMap::new(), forget_at: FRAMES_AT_ONCE };
        let (places, refusals) = Default::default();
        ReadAhead { shared, home, places, buffered: None, shared_frames, refusals }
    }

    pub(crate) fn run(mut self) {
        let mut turn = 0;
        while let Some(task) = self.next_task(&mut turn) {
            let refusal = self.refusals.get(&task.id);
            let is_lasting =
                refusal.is_some_and(|it| it.since.elapsed() >= self.home.options.read_patience);
            // No delivery reads these frames: they need not be passed.
            match self.work(&task, is_lasting && task.purpose != Purpose::Date) {
                Ok(found) => {
                    // Blocks before the refused ones may have to be read again.
                    if found.until > task.from {
                        self.refusals.remove(&task.id);
                    }
                    self.deliver(&task, found);
                }
                Err(error) => self.refuse(&task, &error, is_lasting),
            }
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
            self.refusals.retain(|id, _| inner.cursors[id.0].is_some());
            let now = Instant::now();
            let count = inner.cursors.len();
            let mut woken = Vec::new();
            for step in 0..count {
                let index = (*turn + step) % count;
                let id = CursorId(index);
                if self.refusals.get(&id).is_some_and(|refusal| refusal.again_at > now) {
                    continue;
                }
                match inner.task(id) {
                    Step::Work(task) => {
                        *turn = index + 1;
                        return Some(task);
                    }
                    Step::Wake(wake) => woken.push(wake),
                    Step::Nothing => drop(self.refusals.remove(&id)),
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
            match self.refusals.values().map(|refusal| refusal.again_at).min() {
                Some(again_at) => drop(shared.read_ahead_wake.wait_until(&mut inner, again_at)),
                None => shared.read_ahead_wake.wait(&mut inner),
            }
        }
    }

    fn work(&mut self, task: &Task, pass_unreadable: bool) -> Result<Found<T>> {
        let target = &task.segment;
        // Hundreds of readers may wait for their backends: only the current one has a buffer.
        if let Some(last) = self.buffered.replace(task.id).filter(|last| *last != task.id)
            && let Some(place) = self.places.get_mut(&last)
        {
            place.segment.free_buffer();
        }
        let is_here = |place: &Place| {
            place.generation == target.generation
                && place.at <= task.from
                && place.passes_unreadable == pass_unreadable
        };
        let mut place = match self.places.remove(&task.id).filter(is_here) {
            Some(mut place) => {
                target.end.into_iter().for_each(|end| place.segment.set_end(end));
                place
            }
            None => match self.open(task, pass_unreadable) {
                Ok(place) => place,
                Err(error) => return self.pass_if_lost(task, error),
            },
        };
        // After an error the segment is opened again.
        let found = read_turn(&mut place.segment, task, &mut self.shared_frames)?;
        place.at = found.until;
        self.places.insert(task.id, place);
        Ok(found)
    }

    fn open(&self, task: &Task, pass_unreadable: bool) -> Result<Place> {
        let (shortest, longest) = BUFFER_RANGE_BYTES;
        let read_ahead_bytes = self.home.options.read_ahead_bytes.clamp(shortest, longest) as usize;
        let options = ScanOptions { read_ahead_bytes, pass_unreadable };
        let (target, at) = (&task.segment, task.from);
        let segment = self.home.open(target, options)?;
        let known = target.epoch.is_none_or(|epoch| epoch == segment.info().header.epoch);
        // Generation 0 belongs to no segment: the file is opened again at the next turn.
        let generation = if known { target.generation } else { 0 };
        Ok(Place { generation, segment, passes_unreadable: pass_unreadable, at })
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

    /// Makes the reader wait before it tries again: as long as it has waited so far, within bounds.
    fn refuse(&mut self, task: &Task, error: &FileError, is_lasting: bool) {
        let now = Instant::now();
        let refusal =
            self.refusals.entry(task.id).or_insert(RefusedRead { since: now, again_at: now });
        let mut inner = self.shared.inner.lock();
        inner.on_disk().read_trouble = Some(error.trouble(false));
        if is_lasting && task.purpose == Purpose::Drop {
            // Its frames stay, and frames behind them may go.
            inner.keep_undropped(task);
            return;
        }
        refusal.again_at = now + (now - refusal.since).clamp(RETRY, RETRY_LIMIT);
    }

    /// Gives up one segment that was asked for, if all of it may go.
    fn shed_segment(&mut self) {
        let segment = self.shared.with_store(|store| {
            store.segments.by_first.values().find(|segment| segment.shed == Shed::Asked).cloned()
        });
        let Some(segment) = segment else { return };
        let mut dropped = HashMap::new();
        let mut shed = || -> Result<bool> {
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
        // A segment that cannot be read stays.
        let is_free = shed().unwrap_or(false);
        if is_free {
            // A file that is open takes space after its removal.
            self.places.retain(|_, place| place.generation != segment.generation);
        }
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

impl<T> SharedFrames<T> {
    fn get_or_read(
        &mut self,
        offset: Offset,
        read: impl FnOnce() -> Result<Result<T, Undecodable>>,
    ) -> Result<Result<Arc<T>, Undecodable>> {
        if let Some(entry) = self.by_offset.get(&offset).and_then(Weak::upgrade) {
            return Ok(Ok(entry));
        }
        let entry = read()?.map(Arc::new);
        if self.by_offset.len() >= self.forget_at {
            self.by_offset.retain(|_, entry| entry.strong_count() > 0);
            self.forget_at = 2 * self.by_offset.len() + FRAMES_AT_ONCE;
        }
        self.by_offset.extend(entry.iter().map(|entry| (offset, Arc::downgrade(entry))));
        Ok(entry)
    }
}

/// Reads one turn of a task.
fn read_turn<T: Record>(
    segment: &mut SegmentScan,
    task: &Task,
    shared: &mut SharedFrames<T>,
) -> Result<Found<T>> {
    let mut found = Found::nothing(task.from);
    let start = segment.position();
    let mut charged_bytes = 0;
    while segment.position() - start < TURN_BYTES && charged_bytes < task.bytes {
        let places = segment.damage().places();
        let next = segment.next_frame()?;
        if segment.damage().places() > places {
            let offset = next.map_or(task.until, |located| located.header.offset.min(task.until));
            found.unread.extend((found.until < offset).then_some((found.until, offset)));
        }
        let Some(located) = next else {
            found.until = task.until;
            break;
        };
        let header = located.header;
        if header.offset >= task.until {
            // Of another segment, or still in memory: a later task looks at it.
            segment.seek(located.position);
            found.until = task.until;
            break;
        }
        // It was written twice, or was looked at already.
        if header.offset < found.until {
            continue;
        }
        if segment.readers().contains(&task.persistent_id) {
            charged_bytes += header.charge.bytes;
            if task.purpose == Purpose::Drop {
                found.drops.push(DiskFrame::of(segment, located));
            } else {
                let FrameHeader { offset, facts, charge, .. } = header;
                let lease = DiskLease { charge, received_unix_ns: facts.received_unix_ns };
                let entry = shared.get_or_read(offset, || {
                    Ok(segment.body()?.ok_or(Undecodable::Damaged).and_then(T::decode))
                })?;
                match entry {
                    Ok(entry) => found.entries.push((offset, entry, lease)),
                    Err(why) => {
                        found.passed.push((located.position, Passed::Undecodable(why)));
                        found.unread.push((offset, offset + 1));
                    }
                }
            }
        }
        found.until = header.offset + 1;
    }
    found
        .passed
        .extend(segment.take_damaged_at().into_iter().map(|position| (position, Passed::DAMAGED)));
    Ok(found)
}
