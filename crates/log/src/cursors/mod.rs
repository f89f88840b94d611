//! The readers' cursors: in memory here, and in files. A cursor is a floor below which everything
//! is resolved, and resolved ranges above it.
//!
//! Invariants: below `floor` all is resolved; between `floor` and `next` each frame for this reader
//! is leased or in `resolved`; from `next` on each is unread unless it is in `resolved`. A leased
//! frame that is no longer in memory is in `disk_leases`.

mod file;
mod files;

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::format::{CursorState, DROPPED_RANGES_LIMIT, DroppedRange, RANGES_LIMIT};
use crate::types::{Charge, Holding, Offset, RangeSet, ReaderGauges, Wake, unix_now_ns};

pub use file::{
    CURSOR_EXTENSION, CURSORS_DIRECTORY, CursorFile, TEMPORARY_EXTENSION, damaged_slots, escape,
    file_name,
};
pub(crate) use file::{UNREAD_OFFSETS, cursor_paths, replace_file, unescape};
pub(crate) use files::{CursorFiles, FoundCursors, is_unknown, read_list};

/// Above this many the lowest are joined: the offsets between them count as not taken.
const UNTAKEN_RANGES_IN_MEMORY: usize = 16 << 10;

/// Ranges that could not be read. Above this many the lowest are joined: frames between them are
/// delivered again if their file can be read one day.
const PASSED_RANGES_LIMIT: usize = RANGES_LIMIT / 4;

/// The facts kept in memory of a frame that is on disk and leased or read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskLease {
    pub(crate) charge: Charge,
    pub(crate) received_unix_ns: u64,
}

/// Frames that the read-ahead thread has read ahead of a cursor.
pub(crate) struct Ahead<T> {
    /// In order of offsets; all at or above the cursor's `next` and below `until`.
    pub(crate) entries: VecDeque<(Offset, Arc<T>, DiskLease)>,
    /// Charge of `entries`.
    pub(crate) bytes: u64,
    /// The read-ahead thread has looked at all offsets below.
    pub(crate) until: Offset,
    /// A read was answered with [`crate::Next::Loading`]: the reader is to be woken.
    pub(crate) is_awaited: bool,
    /// The reader has come to frames that are on disk only: the read-ahead thread acts.
    pub(crate) is_active: bool,
    /// Changes when the cursor is moved: a read that is under way for the old place is discarded.
    pub(crate) generation: u64,
    /// The reader is over its budget: the read-ahead thread drops frames that are on disk only.
    pub(crate) drops: bool,
    /// The read-ahead thread has dropped every frame below that may go.
    pub(crate) dropped_until: Offset,
}

/// One reader of a log. Guarded by the log's lock.
pub(crate) struct Cursor<T> {
    pub(crate) name: String,
    /// Names the reader in frames on disk.
    pub(crate) persistent_id: u32,
    /// Nothing is known of it but a name: all that was found on disk is kept until it is forgotten.
    pub(crate) is_lost: bool,
    /// It has a subscriber: it is no orphan.
    pub(crate) is_subscribed: bool,
    /// For an orphan: no frame from this offset on is for it.
    pub(crate) left_at: Offset,
    pub(crate) wake: Wake,
    pub(crate) floor: Offset,
    /// The next offset to read.
    pub(crate) next: Offset,
    pub(crate) resolved: RangeSet,
    /// Offsets that this reader resolved without taking the frame and that may be on disk.
    pub(crate) untaken: RangeSet,
    /// Offsets that this reader passed because they could not be read. Its file says that they are
    /// unresolved: the reader gets them once the file that has them can be read.
    pub(crate) passed: RangeSet,
    /// Those of this and earlier processes that count as lost: `unread` does not have them.
    pub(crate) written_off: RangeSet,
    pub(crate) lease_limit_bytes: u64,
    /// Frames that were given to the reader and are not resolved.
    pub(crate) leased: Holding,
    /// Frames for the reader that it has not read.
    pub(crate) unread: Holding,
    /// Frames that waited for the reader on disk, and that could not be read or were not there.
    pub(crate) lost: Holding,
    /// The part of `unread` that the start found in no file.
    pub(crate) missing_frames: u64,
    /// A frame that it took does not count as taken for other readers.
    pub(crate) is_best_effort: bool,
    /// For each goal of shedding: the offset at which the next walk starts. No unread frame below
    /// may be given up for that goal, as far as walks have looked.
    pub(crate) shed_from: [Offset; 3],
    /// The figures of the reader, for callers that do not take the log's lock.
    pub(crate) gauges: Arc<ReaderGauges>,
    /// The part of `leased` and `unread` that is not durable.
    pub(crate) unwritten: Holding,
    pub(crate) disk_leases: BTreeMap<Offset, DiskLease>,
    pub(crate) ahead: Ahead<T>,
    /// Its oldest unread frame has waited too long: new frames for it are written at once.
    pub(crate) lags: bool,
    /// All frames that policies ever dropped.
    pub(crate) dropped: Holding,
    /// Frames that the read-ahead thread dropped since the reader last asked.
    pub(crate) dropped_unseen: Holding,
    pub(crate) dropped_ranges: VecDeque<DroppedRange>,
    /// Something was resolved or dropped since the cursor's file was written.
    pub(crate) is_changed: bool,
    /// There is a durable cursor file with the persistent id.
    pub(crate) has_file: bool,
    /// The cursor's file counts the backlog below this offset.
    pub(crate) stored_below: Offset,
}

impl<T> Ahead<T> {
    fn at(offset: Offset) -> Self {
        Ahead {
            entries: VecDeque::new(),
            bytes: 0,
            until: offset,
            is_awaited: false,
            is_active: false,
            generation: 0,
            drops: false,
            dropped_until: 0,
        }
    }
}

impl<T> Cursor<T> {
    pub(crate) fn at(offset: Offset, name: String, persistent_id: u32) -> Self {
        let gauges = Arc::<ReaderGauges>::default();
        gauges.limit_bytes.set(u64::MAX);
        Cursor {
            name,
            persistent_id,
            is_lost: false,
            is_subscribed: false,
            left_at: offset,
            wake: Arc::new(|| {}),
            floor: offset,
            next: offset,
            resolved: RangeSet::default(),
            untaken: RangeSet::default(),
            passed: RangeSet::default(),
            written_off: RangeSet::default(),
            lease_limit_bytes: u64::MAX,
            leased: Holding::default(),
            unread: Holding::default(),
            lost: Holding::default(),
            missing_frames: 0,
            is_best_effort: false,
            shed_from: [0; 3],
            gauges,
            unwritten: Holding::default(),
            disk_leases: BTreeMap::new(),
            ahead: Ahead::at(offset),
            lags: false,
            dropped: Holding::default(),
            dropped_unseen: Holding::default(),
            dropped_ranges: VecDeque::new(),
            is_changed: true,
            has_file: false,
            stored_below: 0,
        }
    }

    /// A cursor with the state of its file. Published after the frames that it did not count.
    pub(crate) fn from_state(state: CursorState) -> Self {
        let written_off = state.written_off();
        let mut cursor = Cursor::at(state.floor, state.name, state.id);
        cursor.written_off = written_off;
        state.resolved.iter().for_each(|&(start, end)| cursor.resolve_run(start, end));
        cursor.next = cursor.floor;
        cursor.unread = state.held;
        cursor.dropped = state.dropped;
        state.untaken.iter().for_each(|&(start, end)| cursor.note_untaken(start, end));
        // Until a subscriber says whether it is best effort, frames that this reader took do not
        // count as taken.
        cursor.is_best_effort = true;
        cursor.dropped_ranges = state.dropped_ranges.into();
        cursor.is_changed = false;
        cursor.has_file = true;
        cursor.stored_below = state.head;
        cursor
    }

    /// A reader whose file is gone or cannot be read; the name is that of a file set aside.
    pub(crate) fn of_lost(name: String) -> Self {
        Cursor { is_lost: true, has_file: true, ..Cursor::at(0, name, 0) }
    }

    /// Its state for its file; below `head` all is durable. Frames in memory only are not counted:
    /// a crash loses them.
    pub(crate) fn state(&self, log_id: u128, head: Offset) -> CursorState {
        let mut held = self.held();
        held.remove(self.unwritten);
        let (floor, resolved) = self.stored_progress();
        let untaken = self.stored_untaken(floor, &resolved);
        CursorState {
            id: self.persistent_id,
            name: self.name.clone(),
            log_id,
            floor,
            resolved,
            untaken,
            head,
            held,
            dropped: self.dropped,
            dropped_ranges: self.dropped_ranges.iter().copied().collect(),
            written_unix_ns: unix_now_ns(),
        }
    }

    /// Nothing is left to read: all that was passed counts as lost from now on.
    pub(crate) fn write_off_passed(&mut self) {
        let (passed, written_off) = (&self.passed, &mut self.written_off);
        for (start, end) in passed.iter() {
            if written_off.end_of_run_at(start).is_none_or(|known| known < end) {
                written_off.insert_run(start, end);
                self.is_changed = true;
            }
        }
    }

    /// The untaken ranges for its file, where unresolved ones are those that count as lost.
    fn stored_untaken(
        &self,
        floor: Offset,
        resolved: &[(Offset, Offset)],
    ) -> Vec<(Offset, Offset)> {
        let mut untaken = self.untaken.clone();
        let mut unresolved_from = floor;
        for &(start, end) in resolved {
            untaken.remove_run(unresolved_from, start);
            unresolved_from = end;
        }
        untaken.remove_run(unresolved_from, Offset::MAX);
        self.written_off.iter().for_each(|(start, end)| untaken.insert_run(start, end));
        untaken.iter().collect()
    }

    /// The floor and the resolved ranges for its file: what it passed unread is unresolved there.
    fn stored_progress(&self) -> (Offset, Vec<(Offset, Offset)>) {
        if self.passed.is_empty() {
            return (self.floor, self.resolved.iter().take(RANGES_LIMIT).collect());
        }
        let lowest = self.passed.iter().next().map(|(start, _)| start);
        let floor = lowest.unwrap_or(self.floor).min(self.floor);
        let mut resolved = self.resolved.clone();
        if floor < self.floor {
            resolved.insert_run(floor, self.floor);
        }
        self.passed.iter().for_each(|(start, end)| resolved.remove_run(start, end));
        (floor, resolved.iter().take(RANGES_LIMIT).collect())
    }

    /// Marks an offset as resolved and lifts the floor. False if it was resolved before.
    pub(crate) fn resolve(&mut self, offset: Offset) -> bool {
        let is_new = !self.is_resolved(offset);
        if is_new {
            self.resolve_run(offset, offset + 1);
        }
        is_new
    }

    /// Marks `start..end` as resolved.
    pub(crate) fn resolve_run(&mut self, start: Offset, end: Offset) {
        if start >= end || end <= self.floor {
            return;
        }
        self.is_changed = true;
        if start <= self.floor {
            self.floor = self.resolved.forget_below(end);
        } else {
            self.resolved.insert_run(start, end);
        }
    }

    /// Records that the reader resolved `start..end` without taking it.
    pub(crate) fn note_untaken(&mut self, start: Offset, end: Offset) {
        self.untaken.insert_run(start, end);
        while self.untaken.len() > UNTAKEN_RANGES_IN_MEMORY {
            self.untaken.join_lowest();
        }
    }

    /// Takes a frame on disk from those that are unread. One that counted as lost is not among
    /// them, and one that was passed can be read after all.
    pub(crate) fn remove_unread(&mut self, offset: Offset, charge: Charge) {
        if self.passed.contains(offset) {
            self.passed.remove_run(offset, offset + 1);
            self.untaken.remove_run(offset, offset + 1);
        }
        if self.written_off.contains(offset) {
            self.written_off.remove_run(offset, offset + 1);
        } else {
            self.unread.remove(charge);
        }
    }

    /// Records that the reader passes `start..end`, which cannot be read.
    pub(crate) fn note_passed(&mut self, start: Offset, end: Offset) {
        self.note_untaken(start, end);
        self.passed.insert_run(start, end);
        while self.passed.len() > PASSED_RANGES_LIMIT {
            self.passed.join_lowest();
        }
    }

    /// Passes all of `start..end` that is not resolved.
    pub(crate) fn pass_unresolved(&mut self, start: Offset, end: Offset) {
        let was_changed = self.is_changed;
        let mut from = start.max(self.floor);
        while from < end {
            if let Some(resolved_until) = self.resolved.end_of_run_at(from) {
                from = resolved_until;
                continue;
            }
            let next = self.resolved.iter().map(|(start, _)| start).find(|&start| start > from);
            let until = next.unwrap_or(end).min(end);
            self.note_passed(from, until);
            from = until;
        }
        self.resolve_run(start.max(self.floor), end);
        self.next = self.floor;
        self.is_changed = was_changed;
    }

    /// Whether this reader took a frame that was for it.
    pub(crate) fn has_taken(&self, offset: Offset) -> bool {
        !self.is_best_effort && self.is_resolved(offset) && !self.untaken.contains(offset)
    }

    /// Moves `next` up to `offset`. Offsets passed that were not leased count as resolved.
    pub(crate) fn pass_to(&mut self, offset: Offset) {
        self.resolve_run(self.next, offset);
        self.next = self.next.max(offset);
    }

    /// Frames below had to stay when a task began to drop behind them. A walk that began anew
    /// meanwhile has not looked at them either.
    pub(crate) fn keep_below(&mut self, offset: Offset) {
        self.ahead.dropped_until = self.ahead.dropped_until.max(offset);
    }

    /// Records that all frames below `offset` that may go were dropped. Passes them if none stayed.
    pub(crate) fn drop_until(&mut self, offset: Offset) {
        if self.ahead.dropped_until <= self.next && self.first_ahead().is_none() {
            self.pass_to(offset);
        }
        self.keep_below(offset);
    }

    pub(crate) fn is_resolved(&self, offset: Offset) -> bool {
        offset < self.floor || self.resolved.contains(offset)
    }

    /// Frames that wait for the reader, leased or not.
    pub(crate) fn held(&self) -> Holding {
        let mut held = self.leased;
        held.add(self.unread);
        held
    }

    pub(crate) fn is_over_limit(&self) -> bool {
        self.held().bytes > self.gauges.limit_bytes.get()
    }

    /// The oldest frame that was read ahead and not resolved since.
    fn first_ahead(&self) -> Option<&DiskLease> {
        let mut ahead = self.ahead.entries.iter();
        ahead.find(|(offset, ..)| !self.is_resolved(*offset)).map(|(_, _, lease)| lease)
    }

    /// Receive time of the oldest unresolved frame that is on disk only, if it is known.
    pub(crate) fn oldest_on_disk_unix_ns(&self) -> Option<u64> {
        let leased = self.disk_leases.values().next();
        leased.into_iter().chain(self.first_ahead()).map(|lease| lease.received_unix_ns).min()
    }

    /// Frames in a range of offsets that are leased and on disk only.
    pub(crate) fn leased_on_disk(&self, offsets: RangeInclusive<Offset>) -> Holding {
        self.disk_leases.range(offsets).map(|(_, lease)| lease.charge).collect()
    }

    /// To be called before the log's lock is released, after any change of `leased` or `unread`.
    pub(crate) fn publish(&self) {
        let held = self.held();
        self.gauges.held_bytes.set(held.bytes);
        self.gauges.held_frames.set(held.frames);
        self.gauges.unread_bytes.set(self.unread.bytes);
        self.gauges.unwritten_bytes.set(self.unwritten.bytes);
    }

    /// Discards frames that were read ahead, because the cursor is moved.
    pub(crate) fn forget_ahead(&mut self) {
        let (generation, drops) = (self.ahead.generation + 1, self.ahead.drops);
        self.ahead = Ahead { generation, drops, ..Ahead::at(self.next) };
    }

    /// Records the frames of the reader that a policy dropped between `start` and `end`.
    pub(crate) fn note_dropped_range(&mut self, start: Offset, end: Offset, dropped: Holding) {
        if dropped.frames == 0 {
            return;
        }
        self.dropped.add(dropped);
        self.is_changed = true;
        let dropped_unix_ns = unix_now_ns();
        // A reader that lags for hours loses a frame at each append: one range grows.
        if let Some(last) = self.dropped_ranges.back_mut().filter(|last| last.end == start) {
            last.end = end;
            last.dropped.add(dropped);
            last.dropped_unix_ns = dropped_unix_ns;
            return;
        }
        if self.dropped_ranges.len() == DROPPED_RANGES_LIMIT {
            self.dropped_ranges.pop_front();
        }
        self.dropped_ranges.push_back(DroppedRange { start, end, dropped, dropped_unix_ns });
    }
}
