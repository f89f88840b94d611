//! The reader thread: reads from disk ahead of the readers that have fallen out of memory, and drops there what a budget takes.
//!
//! Invariants
//! - What is passed holds nothing for the reader, or is damaged (counted), or was resolved by it. What the disk refuses to read is
//!   tried again, and passed only when the disk has refused it for long.
//! - Nothing at or above `evicted_below` is read: it is in memory.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cursor::DiskLease;
use crate::disk::Access;
use crate::format::Holding;
use crate::log::budget::unix_now_ns;
use crate::log::store::Ends;
use crate::log::{Inner, Shared};
use crate::record::{Record, RecordFacts, StoredRecord};
use crate::segment::{Body, Located, ReaderOptions, SegmentError, SegmentReader};
use crate::types::{Charge, CursorId, DiskTrouble, Offset};
use crate::writer::Home;

/// What is read for one reader before the next has its turn, in bytes on disk.
const TURN_BYTES: u64 = 1 << 20;
/// How long the thread waits before it tries again what the disk refused.
const RETRY: Duration = Duration::from_millis(200);
/// After so many refusals in a row the blocks that cannot be read count as damaged.
const REFUSALS_LIMIT: u32 = 50;

pub(crate) struct Reader<T> {
    shared: Arc<Shared<T>>,
    home: Home,
    places: HashMap<CursorId, Place>,
}

/// Where a reader's next frame on disk is.
struct Place {
    generation: u64,
    segment: SegmentReader,
    /// Everything below was looked at.
    at: Offset,
    end: Option<u64>,
}

/// What is to be done for one reader.
struct Task {
    id: CursorId,
    persistent_id: u32,
    ahead_generation: u64,
    from: Offset,
    purpose: Purpose,
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Read ahead so many bytes of charge.
    Read { bytes: u64 },
    /// Drop so many bytes of charge.
    Drop { bytes: u64 },
    /// Find out when the oldest unread frame was received.
    Date,
}

/// The segment where a task goes on.
struct Target {
    path: PathBuf,
    generation: u64,
    epoch: Option<u64>,
    end: Option<u64>,
    /// Nothing from here on is looked at in it.
    until: Offset,
    position: Option<u64>,
}

/// What came of a task.
struct Found<T> {
    entries: Vec<(Offset, Arc<T>, DiskLease)>,
    drops: Vec<(Offset, Charge)>,
    received_unix_ns: Option<u64>,
    until: Offset,
    damaged: u64,
}

impl<T: Record> Reader<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, home: Home) -> Self {
        Reader { shared, home, places: HashMap::new() }
    }

    pub(crate) fn run(mut self) {
        let mut refusals: HashMap<CursorId, u32> = HashMap::new();
        let mut turn = 0;
        while let Some(task) = self.next_task(&mut turn) {
            let id = task.id;
            let refused = refusals.get(&id).copied().unwrap_or(0);
            match self.work(&task, refused >= REFUSALS_LIMIT) {
                Ok(found) => {
                    refusals.remove(&id);
                    self.deliver(&task, found, refusals.is_empty());
                }
                Err(error) => {
                    self.places.remove(&id);
                    refusals.insert(id, refused + 1);
                    self.wait_to_try_again(&error);
                }
            }
        }
    }

    /// Waits until some reader needs something; they take turns. None at the end.
    fn next_task(&mut self, turn: &mut usize) -> Option<Task> {
        let shared = self.shared.clone();
        let mut inner = shared.inner.lock();
        loop {
            if inner.store.as_ref()?.ends != Ends::No {
                return None;
            }
            self.places.retain(|id, _| inner.cursors[id.0].is_some());
            let count = inner.cursors.len();
            let mut woken = Vec::new();
            for step in 0..count {
                let index = (*turn + step) % count;
                match inner.task(CursorId(index)) {
                    Step::Work(task) => {
                        *turn = index + 1;
                        return Some(task);
                    }
                    Step::Wake(wake) => woken.push(wake),
                    Step::Nothing => {}
                }
            }
            if !woken.is_empty() {
                parking_lot::MutexGuard::unlocked(&mut inner, || woken.into_iter().for_each(|wake| wake()));
                continue;
            }
            inner.store.as_mut()?.reader_waits = true;
            shared.reader_wake.wait(&mut inner);
        }
    }

    fn work(&mut self, task: &Task, pass_unreadable: bool) -> Result<Found<T>, SegmentError> {
        let target = &task.target;
        let reuses = self
            .places
            .get(&task.id)
            .is_some_and(|place| place.generation == target.generation && place.at <= task.from && !pass_unreadable);
        if !reuses {
            match self.open(task, pass_unreadable) {
                Ok(place) => self.places.insert(task.id, place),
                Err(error) => return self.pass_if_lost(task, error),
            };
        }
        let Some(place) = self.places.get_mut(&task.id) else { return Ok(Found::nothing(task.from)) };
        if place.end != target.end
            && let Some(end) = target.end
        {
            place.segment.set_end(end);
            place.end = target.end;
        }
        let damage_before = place.segment.damage();
        let mut found = Found::nothing(task.from);
        look(&mut place.segment, task, &mut found)?;
        place.at = found.until;
        if task.purpose == Purpose::Date {
            // It is counted when the frames are read.
            return Ok(found);
        }
        let damage = place.segment.damage();
        found.damaged += damage.frames + damage.regions - damage_before.frames - damage_before.regions;
        Ok(found)
    }

    fn open(&self, task: &Task, pass_unreadable: bool) -> Result<Place, SegmentError> {
        let target = &task.target;
        let file = self.home.disk.open(&target.path, Access::Read).map_err(|source| SegmentError::Io {
            path: target.path.clone(),
            action: "cannot open",
            source,
        })?;
        let options = ReaderOptions { pass_unreadable, ..ReaderOptions::default() };
        let mut segment = SegmentReader::open(file, &target.path, options)?;
        // Another file may just have taken the place of the one that was marked: then its own end and no mark count.
        let is_known = target.epoch.is_none_or(|epoch| epoch == segment.info().header.epoch);
        if is_known {
            if let Some(end) = target.end {
                segment.set_end(end);
            }
            if let Some(position) = target.position.filter(|_| target.epoch.is_some()) {
                segment.seek(position);
            }
        }
        // With a generation that no segment has it is opened again at the next turn.
        let generation = if is_known { target.generation } else { 0 };
        Ok(Place { generation, segment, at: task.from, end: target.end })
    }

    /// A file that was removed from outside, or whose header is destroyed, does not stop the reader for good.
    fn pass_if_lost(&self, task: &Task, error: SegmentError) -> Result<Found<T>, SegmentError> {
        let is_lost = match &error {
            SegmentError::NoSegment { .. } | SegmentError::Unfinished { .. } => true,
            SegmentError::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            _ => false,
        };
        let is_still_known = || {
            let inner = self.shared.inner.lock();
            let store = inner.store.as_ref();
            store
                .and_then(|store| store.segments.at_or_after(task.from))
                .is_some_and(|segment| segment.generation == task.target.generation && segment.path == task.target.path)
        };
        match is_lost {
            true if is_still_known() => Ok(Found { damaged: 1, ..Found::nothing(task.target.until) }),
            true => Ok(Found::nothing(task.from)),
            false => Err(error),
        }
    }

    /// Hands what was found to its reader and wakes it.
    fn deliver(&self, task: &Task, found: Found<T>, all_is_well: bool) {
        let wake = {
            let mut inner = self.shared.inner.lock();
            let Some(store) = &mut inner.store else { return };
            store.stats.frames_read += found.entries.len() as u64;
            store.stats.frames_damaged += found.damaged;
            if all_is_well {
                store.read_trouble = None;
            }
            inner.take_found(task, found)
        };
        if let Some(wake) = wake {
            wake();
        }
    }

    fn wait_to_try_again(&self, error: &SegmentError) {
        let until = Instant::now() + RETRY;
        let mut inner = self.shared.inner.lock();
        if let Some(store) = &mut inner.store {
            store.read_trouble = Some(DiskTrouble { reason: error.to_string(), out_of_space: false });
        }
        while inner.store.as_ref().is_some_and(|store| store.ends == Ends::No)
            && !self.shared.reader_wake.wait_until(&mut inner, until).timed_out()
        {}
    }
}

impl<T> Found<T> {
    fn nothing(until: Offset) -> Self {
        Found { entries: Vec::new(), drops: Vec::new(), received_unix_ns: None, until, damaged: 0 }
    }
}

/// Reads one turn of a task.
fn look<T: Record>(segment: &mut SegmentReader, task: &Task, found: &mut Found<T>) -> Result<(), SegmentError> {
    let start = segment.position();
    let mut charged_bytes = 0;
    loop {
        if segment.position() - start >= TURN_BYTES {
            return Ok(());
        }
        let Some(located) = segment.next()? else {
            found.until = task.target.until;
            return Ok(());
        };
        let header = located.header;
        if header.offset >= task.target.until {
            // It belongs to another segment, or is in memory still: then it is looked at again later.
            segment.seek(located.position);
            found.until = task.target.until;
            return Ok(());
        }
        // What was written twice, or was looked at already.
        if header.offset < found.until {
            continue;
        }
        if segment.readers().contains(&task.persistent_id) {
            let charge = Charge { bytes: u64::from(header.charge_bytes), items: u64::from(header.items) };
            charged_bytes += charge.bytes;
            match task.purpose {
                Purpose::Drop { .. } => found.drops.push((header.offset, charge)),
                Purpose::Date => {
                    found.received_unix_ns = Some(header.received_unix_ns);
                    found.until = header.offset;
                    segment.seek(located.position);
                    return Ok(());
                }
                Purpose::Read { .. } => {
                    // A damaged body counts itself.
                    if let Some(body) = segment.body()? {
                        match decode(&located, charge, body) {
                            Some(entry) => found.entries.push(entry),
                            None => found.damaged += 1,
                        }
                    }
                }
            }
        }
        found.until = header.offset + 1;
        if let Purpose::Read { bytes } | Purpose::Drop { bytes } = task.purpose
            && charged_bytes >= bytes
        {
            return Ok(());
        }
    }
}

fn decode<T: Record>(located: &Located, charge: Charge, body: Body) -> Option<(Offset, Arc<T>, DiskLease)> {
    let header = &located.header;
    let facts = RecordFacts {
        received_unix_ns: header.received_unix_ns,
        encoding: header.encoding,
        flags: header.flags,
        uncompressed_len_bytes: header.uncompressed_len_bytes,
    };
    let lease = DiskLease { charge, received_unix_ns: header.received_unix_ns };
    let stored = StoredRecord { offset: header.offset, facts, charge, metadata: body.metadata, payload: body.payload };
    let entry = T::decode(stored).ok()?;
    Some((header.offset, Arc::new(entry), lease))
}

/// What the reader thread does for a reader next.
enum Step {
    Work(Task),
    /// There is nothing to read from disk: the reader goes on in memory.
    Wake(crate::types::Wake),
    Nothing,
}

impl<T> Inner<T> {
    fn task(&mut self, id: CursorId) -> Step {
        let Some(cursor) = self.cursors[id.0].as_ref() else { return Step::Nothing };
        let Some(store) = self.store.as_ref().filter(|_| cursor.damaged_file.is_none()) else { return Step::Nothing };
        let read_ahead_bytes = store.read_ahead_bytes;
        let (drops, is_read) = (cursor.ahead.drops, cursor.is_subscribed && cursor.ahead.is_active);
        let has_no_date = cursor.oldest_on_disk_unix_ns.is_none() && cursor.disk_leases.is_empty();
        if drops {
            self.drop_what_was_read(id);
            let cursor = self.cursor(id);
            let excess_bytes = cursor.held().bytes.saturating_sub(cursor.limit_bytes);
            if excess_bytes == 0 {
                return self.end_drops(id);
            }
            let from = cursor.ahead.until.max(cursor.next);
            // The newest frame of all is never dropped.
            let below = self.slots.head().saturating_sub(1).min(self.evicted_below());
            return self.find(id, Purpose::Drop { bytes: excess_bytes }, from, below).map_or_else(
                || {
                    self.cursor_mut(id).pass_to(below);
                    self.end_drops(id)
                },
                Step::Work,
            );
        }
        let below = self.evicted_below();
        if is_read && self.wants_ahead(id) {
            let cursor = self.cursor(id);
            let bytes = read_ahead_bytes.saturating_sub(cursor.ahead.bytes).max(1);
            let from = cursor.ahead.until.max(cursor.next);
            return self.find(id, Purpose::Read { bytes }, from, below).map_or_else(
                || {
                    let cursor = self.cursor_mut(id);
                    cursor.ahead.until = below;
                    wake_if_awaited(cursor)
                },
                Step::Work,
            );
        }
        let cursor = self.cursor(id);
        let from = cursor.ahead.dated_until.max(cursor.next);
        if has_no_date && from < below {
            if let Some(task) = self.find(id, Purpose::Date, from, below) {
                return Step::Work(task);
            }
            // There is nothing for it on disk, so that it pins nothing there either, even if nobody reads for it.
            let cursor = self.cursor_mut(id);
            cursor.ahead.dated_until = below;
            cursor.pass_to(below);
        }
        Step::Nothing
    }

    /// Where the next frame between two offsets may be that a reader has not resolved.
    fn find(&self, id: CursorId, purpose: Purpose, from: Offset, below: Offset) -> Option<Task> {
        let (cursor, store) = (self.cursor(id), self.store.as_ref()?);
        let mut from = from;
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
            let target = Target {
                path: segment.path.clone(),
                generation: segment.generation,
                epoch: segment.epoch,
                end: segment.end,
                until: (segment.last + 1).min(below),
                position: segment.position_before(from),
            };
            let (persistent_id, ahead_generation) = (cursor.persistent_id, cursor.ahead.generation);
            return Some(Task { id, persistent_id, ahead_generation, from, purpose, target });
        }
    }

    /// What was being read when the drop was asked for goes first.
    fn drop_what_was_read(&mut self, id: CursorId) {
        let start = self.cursor(id).next;
        let mut dropped = Holding::default();
        self.drop_ahead(id, &mut dropped);
        let cursor = self.cursor_mut(id);
        let end = cursor.next;
        cursor.dropped_unseen.add(dropped);
        cursor.note_gap(start, end, dropped, unix_now_ns());
    }

    fn end_drops(&mut self, id: CursorId) -> Step {
        let cursor = self.cursor_mut(id);
        cursor.ahead.drops = false;
        Step::Wake(cursor.wake.clone())
    }

    fn take_found(&mut self, task: &Task, found: Found<T>) -> Option<crate::types::Wake> {
        let cursor = self.cursors[task.id.0].as_mut()?;
        if cursor.ahead.generation != task.ahead_generation {
            return None;
        }
        match task.purpose {
            Purpose::Drop { .. } => {
                self.take_drops(task, found);
                return None;
            }
            Purpose::Date => {
                cursor.ahead.dated_until = found.until;
                match found.received_unix_ns {
                    // What was resolved is no more to be dated.
                    Some(_) if cursor.is_resolved(found.until) => cursor.ahead.dated_until += 1,
                    date => cursor.oldest_on_disk_unix_ns = date,
                }
                return None;
            }
            Purpose::Read { .. } => {}
        }
        for (offset, entry, lease) in found.entries {
            if offset >= cursor.next && !cursor.is_resolved(offset) {
                cursor.ahead.bytes += lease.charge.bytes;
                cursor.ahead.entries.push_back((offset, entry, lease));
            }
        }
        cursor.ahead.until = cursor.ahead.until.max(found.until);
        if let Some((_, _, lease)) = cursor.ahead.entries.front() {
            cursor.oldest_on_disk_unix_ns = Some(lease.received_unix_ns);
        }
        if cursor.ahead.entries.is_empty() && cursor.ahead.until < self.evicted_below() {
            // Nothing for it so far: it goes on waiting.
            return None;
        }
        let cursor = self.cursor_mut(task.id);
        let is_awaited = std::mem::take(&mut cursor.ahead.is_awaited);
        is_awaited.then(|| cursor.wake.clone())
    }

    fn take_drops(&mut self, task: &Task, found: Found<T>) {
        let start = self.cursor(task.id).next;
        let mut dropped = Holding::default();
        let mut until = found.until;
        for (offset, charge) in found.drops {
            if !self.is_over_limit(task.id) {
                until = until.min(offset);
                break;
            }
            let cursor = self.cursor(task.id);
            if offset >= cursor.next && !cursor.is_resolved(offset) {
                self.drop_on_disk(task.id, offset, charge);
                dropped.add_charge(charge);
            }
        }
        let cursor = self.cursor_mut(task.id);
        cursor.pass_to(until);
        let end = cursor.next;
        cursor.dropped_unseen.add(dropped);
        cursor.oldest_on_disk_unix_ns = None;
        cursor.note_gap(start, end, dropped, unix_now_ns());
    }
}

fn wake_if_awaited<T>(cursor: &mut crate::cursor::Cursor<T>) -> Step {
    if std::mem::take(&mut cursor.ahead.is_awaited) { Step::Wake(cursor.wake.clone()) } else { Step::Nothing }
}
