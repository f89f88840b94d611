//! The tasks of the read-ahead thread. The next one is chosen under the log's lock. One turn reads
//! its frames in a part of a segment. The result is taken under the lock again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::cursors::DiskLease;
use crate::error::{FileError, Result};
use crate::format::FrameHeader;
use crate::log::{DiskFrame, Inner, Passed, Segment};
use crate::segment::SegmentScan;
use crate::types::{CursorId, Holding, Offset, Record, Sheds, Undecodable, Wake};

/// Bytes on disk that are read for one reader before the next has its turn.
const TURN_BYTES: u64 = 1 << 20;
/// Freed entries are looked for at this number of entries at first.
const FIRST_FORGET: usize = 256;

pub(super) struct Task {
    pub(super) id: CursorId,
    pub(super) persistent_id: u32,
    ahead_generation: u64,
    pub(super) from: Offset,
    pub(super) purpose: Purpose,
    /// Bytes of charge to read or to drop.
    pub(super) bytes: u64,
    /// The segment that is read.
    pub(super) segment: Segment,
    /// The task ends before this offset.
    pub(super) until: Offset,
    /// Frames below had to stay when earlier tasks dropped.
    kept_below: Offset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Read ahead of a reader.
    Read,
    /// Read one frame of a reader without a subscriber: it says how long the backlog has waited.
    Date,
    Drop,
}

pub(super) struct Found<T> {
    pub(super) entries: Vec<(Offset, Arc<T>, DiskLease)>,
    pub(super) drops: Vec<DiskFrame>,
    /// Ranges of offsets that were passed because they could not be read.
    pub(super) unread: Vec<(Offset, Offset)>,
    /// The same places by their positions in the file.
    pub(super) passed: Vec<(u64, Passed)>,
    pub(super) until: Offset,
    /// Why the turn ended before its time.
    pub(super) refused: Option<FileError>,
}

impl<T> Found<T> {
    pub(super) fn nothing(until: Offset) -> Self {
        let (entries, drops) = Default::default();
        let (unread, passed) = Default::default();
        Found { entries, drops, unread, passed, until, refused: None }
    }
}

pub(super) enum Step {
    Work(Box<Task>),
    /// There is nothing to read from disk: the reader goes on in memory.
    Wake(Wake),
    Nothing,
}

impl<T> Inner<T> {
    pub(super) fn task(&mut self, id: CursorId) -> Step {
        let below = self.evicted_below();
        let (Some(cursor), Some(store)) = (&self.cursors[id.0], &self.store) else {
            return Step::Nothing;
        };
        if cursor.is_lost {
            return Step::Nothing;
        }
        if cursor.ahead.drops {
            return self.next_drop(id);
        }
        let from = cursor.ahead.until.max(cursor.next);
        let has_no_date = cursor.oldest_on_disk_unix_ns().is_none();
        let (purpose, bytes, is_wanted) = if cursor.is_subscribed {
            let bytes = store.read_ahead_bytes.saturating_sub(cursor.ahead.bytes).max(1);
            (Purpose::Read, bytes, cursor.ahead.is_active && self.wants_ahead(id))
        } else {
            (Purpose::Date, 1, has_no_date && from < below)
        };
        if !is_wanted {
            return Step::Nothing;
        }
        if let Some(task) = self.find(id, purpose, bytes, from, below) {
            return Step::Work(Box::new(task));
        }
        let cursor = self.cursor_mut(id);
        cursor.ahead.until = below;
        if has_no_date {
            // The reader has nothing on disk, so that it pins nothing there, also as an orphan.
            cursor.pass_to(below);
        }
        let is_awaited = std::mem::take(&mut cursor.ahead.is_awaited);
        if is_awaited { Step::Wake(cursor.wake.clone()) } else { Step::Nothing }
    }

    /// The task for the next segment between two offsets that may have an unresolved frame.
    fn find(
        &self,
        id: CursorId,
        purpose: Purpose,
        bytes: u64,
        mut from: Offset,
        below: Offset,
    ) -> Option<Task> {
        let (cursor, store) = (self.cursor(id), self.store.as_ref()?);
        loop {
            from = cursor.resolved.end_of_run_at(from).unwrap_or(from);
            let segment = store.segments.at_or_after(from)?;
            from = from.max(segment.first);
            if from >= below {
                return None;
            }
            if !segment.is_pinned_by(id) {
                from = segment.last + 1;
                continue;
            }
            return Some(Task {
                id,
                persistent_id: cursor.persistent_id,
                ahead_generation: cursor.ahead.generation,
                from,
                purpose,
                bytes,
                until: (segment.last + 1).min(below),
                kept_below: cursor.ahead.dropped_until,
                segment: segment.clone(),
            });
        }
    }

    /// The next task of dropping for a reader that is over its budget.
    fn next_drop(&mut self, id: CursorId) -> Step {
        if self.cursor(id).gauges.may_shed() == Sheds::Everything {
            // Frames that were read ahead before the drop was asked for go first.
            let dropped = self.drop_ahead(id);
            self.cursor_mut(id).dropped_unseen.add(dropped);
        }
        let cursor = self.cursor(id);
        let excess_bytes = cursor.held().bytes.saturating_sub(cursor.gauges.limit_bytes.get());
        // Frames that were read ahead stay: their other readers are not known.
        let behind_ahead = if cursor.ahead.is_active { cursor.ahead.until } else { cursor.next };
        let from = behind_ahead.max(cursor.next).max(cursor.ahead.dropped_until);
        // The newest frame of the log is never dropped.
        let below = self.slots.head().saturating_sub(1).min(self.evicted_below());
        if excess_bytes > 0 {
            if let Some(task) = self.find(id, Purpose::Drop, excess_bytes, from, below) {
                return Step::Work(Box::new(task));
            }
            self.cursor_mut(id).drop_until(below);
        }
        let cursor = self.cursor_mut(id);
        cursor.ahead.drops = false;
        Step::Wake(cursor.wake.clone())
    }

    pub(super) fn take_found(&mut self, task: &Task, found: Found<T>) -> Option<Wake> {
        let cursor = self.cursors[task.id.0].as_mut()?;
        if cursor.ahead.generation != task.ahead_generation {
            return None;
        }
        found.unread.iter().for_each(|&(start, end)| cursor.note_passed(start, end));
        if task.purpose == Purpose::Drop {
            self.take_drops(task, found);
            return None;
        }
        for (offset, entry, lease) in found.entries {
            if offset >= cursor.next && !cursor.is_resolved(offset) {
                cursor.ahead.bytes += lease.charge.bytes;
                cursor.ahead.entries.push_back((offset, entry, lease));
            }
        }
        cursor.ahead.until = cursor.ahead.until.max(found.until);
        if cursor.ahead.entries.is_empty() && cursor.ahead.until < self.evicted_below() {
            // No frame for the reader so far: it goes on waiting.
            return None;
        }
        let cursor = self.cursor_mut(task.id);
        let is_awaited = std::mem::take(&mut cursor.ahead.is_awaited);
        is_awaited.then(|| cursor.wake.clone())
    }

    /// Goes on with dropping behind the frames that cannot be read.
    pub(super) fn keep_undropped(&mut self, task: &Task) {
        if let Some(cursor) = self.cursors[task.id.0].as_mut()
            && cursor.ahead.generation == task.ahead_generation
        {
            cursor.keep_below(task.kept_below);
            cursor.drop_until(task.from);
            cursor.ahead.dropped_until = task.until;
        }
    }

    fn take_drops(&mut self, task: &Task, found: Found<T>) {
        self.cursor_mut(task.id).keep_below(task.kept_below);
        let start = self.cursor(task.id).next.max(self.cursor(task.id).ahead.dropped_until);
        let ids = self.ids_by_persistent_id();
        let mut dropped = Holding::default();
        let mut until = found.until;
        for frame in found.drops {
            let FrameHeader { offset, charge, .. } = frame.header;
            if !self.cursor(task.id).is_over_limit() {
                until = until.min(offset);
                break;
            }
            let cursor = self.cursor(task.id);
            if offset < cursor.next || cursor.is_resolved(offset) {
                continue;
            }
            if self.may_drop(cursor, &frame, &ids) {
                self.drop_on_disk(task.id, offset, charge);
                dropped.add(charge);
            } else {
                // The frame stays, and the reader has to come to it.
                let cursor = self.cursor_mut(task.id);
                cursor.drop_until(offset);
                cursor.ahead.dropped_until = offset + 1;
            }
        }
        let cursor = self.cursor_mut(task.id);
        cursor.drop_until(until);
        cursor.dropped_unseen.add(dropped);
        cursor.note_dropped_range(start, until, dropped);
        cursor.publish();
    }
}

/// Entries that were read and that some reader still uses.
pub(super) struct SharedFrames<T> {
    by_offset: HashMap<Offset, Weak<T>>,
    /// At this number of entries the freed ones are removed.
    forget_at: usize,
}

impl<T> Default for SharedFrames<T> {
    fn default() -> Self {
        SharedFrames { by_offset: HashMap::new(), forget_at: FIRST_FORGET }
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
            self.forget_at = 2 * self.by_offset.len() + FIRST_FORGET;
        }
        self.by_offset.extend(entry.iter().map(|entry| (offset, Arc::downgrade(entry))));
        Ok(entry)
    }
}

/// Reads one turn of a task. If the disk refuses a read, the turn ends before the frame.
pub(super) fn read_turn<T: Record>(
    segment: &mut SegmentScan,
    task: &Task,
    shared: &mut SharedFrames<T>,
) -> Found<T> {
    let mut found = Found::nothing(task.from);
    let start = segment.position();
    let mut charged_bytes = 0;
    while segment.position() - start < TURN_BYTES && charged_bytes < task.bytes {
        let places = segment.damage().places();
        let next = match segment.next_frame() {
            Ok(next) => next,
            Err(error) => {
                found.refused = Some(error);
                break;
            }
        };
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
                });
                match entry {
                    Err(error) => {
                        segment.seek(located.position);
                        found.refused = Some(error);
                        break;
                    }
                    Ok(Ok(entry)) => found.entries.push((offset, entry, lease)),
                    Ok(Err(why)) => {
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
    found
}
