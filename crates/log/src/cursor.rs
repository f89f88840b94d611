//! A reader's place in the log: a floor below which everything is resolved, and resolved ranges
//! above it.
//!
//! Invariants: below `floor` all is resolved; between `floor` and `next` each frame for this reader
//! is leased or in `resolved`; from `next` on each is unread unless it is in `resolved`. What is
//! leased and no longer in memory is in `disk_leases`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::format::{DROPPED_RANGES_LIMIT, DroppedRange};
use crate::gauges::ReaderGauges;
use crate::ranges::RangeSet;
use crate::types::{Charge, Holding, Offset, Wake};

/// Of more ranges the lowest are joined: what lies between them counts as not taken.
const UNTAKEN_RANGES_IN_MEMORY: usize = 16 << 10;

/// What remains of a frame in memory that is on disk and leased or read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskLease {
    pub(crate) charge: Charge,
    pub(crate) received_unix_ns: u64,
}

/// What the reader thread has read for a cursor.
pub(crate) struct Ahead<T> {
    /// In order of offsets; all at or above the cursor's `next` and below `until`.
    pub(crate) entries: VecDeque<(Offset, Arc<T>, DiskLease)>,
    /// Charge of `entries`.
    pub(crate) bytes: u64,
    /// Everything below was looked at.
    pub(crate) until: Offset,
    /// The cursor was told to wait for more.
    pub(crate) is_awaited: bool,
    /// The reader has come to what is on disk only: the reader thread reads ahead of it.
    pub(crate) is_active: bool,
    /// Changes when the cursor goes elsewhere: what is being read for the old place is thrown away.
    pub(crate) generation: u64,
    /// The reader is over its budget: the reader thread drops frames that are on disk only.
    pub(crate) drops: bool,
    /// Below which the reader thread has dropped all that may go.
    pub(crate) dropped_until: Offset,
}

/// One reader of a log. Guarded by the log's lock.
pub(crate) struct Cursor<T> {
    pub(crate) name: String,
    /// Names the reader in frames on disk.
    pub(crate) persistent_id: u32,
    /// The unreadable file of this reader, which keeps all that was found, until it is forgotten.
    pub(crate) damaged_file: Option<String>,
    /// It has a subscriber: it is no orphan.
    pub(crate) is_subscribed: bool,
    /// If it is an orphan: no frame from here on is for it.
    pub(crate) left_at: Offset,
    pub(crate) wake: Wake,
    pub(crate) floor: Offset,
    /// The next offset to read.
    pub(crate) next: Offset,
    pub(crate) resolved: RangeSet,
    /// Of what is resolved and may be on disk: what this reader did not take.
    pub(crate) untaken: RangeSet,
    pub(crate) lease_limit_bytes: u64,
    /// What the reader was given and has not resolved.
    pub(crate) leased: Holding,
    /// What waits for the reader to come to it.
    pub(crate) unread: Holding,
    /// That it took a frame is no reason to give the frame up for another reader.
    pub(crate) is_best_effort: bool,
    /// For each goal of shedding: nothing below is unread and may be given up for it, as far as
    /// shedding has looked.
    pub(crate) shed_from: [Offset; 3],
    /// What all of this comes to, for those who do not take the log's lock.
    pub(crate) gauges: Arc<ReaderGauges>,
    /// Those of both that are not durable.
    pub(crate) unwritten: Holding,
    pub(crate) disk_leases: BTreeMap<Offset, DiskLease>,
    pub(crate) ahead: Ahead<T>,
    /// Its oldest unread frame has waited too long: what is appended for it is written at once.
    pub(crate) lags: bool,
    /// All that policies ever dropped.
    pub(crate) dropped: Holding,
    /// What the reader thread dropped and the reader has not asked for yet.
    pub(crate) dropped_unseen: Holding,
    pub(crate) dropped_ranges: VecDeque<DroppedRange>,
    /// The cursor's file lacks something that was resolved or dropped.
    pub(crate) is_changed: bool,
    /// There is a durable cursor file with the persistent id.
    pub(crate) has_file: bool,
    /// Below which the file counts what is held.
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
            damaged_file: None,
            is_subscribed: false,
            left_at: offset,
            wake: Arc::new(|| {}),
            floor: offset,
            next: offset,
            resolved: RangeSet::default(),
            untaken: RangeSet::default(),
            lease_limit_bytes: u64::MAX,
            leased: Holding::default(),
            unread: Holding::default(),
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

    /// Takes note that the reader resolved `start..end` without taking it.
    pub(crate) fn note_untaken(&mut self, start: Offset, end: Offset) {
        self.untaken.insert_run(start, end);
        while self.untaken.len() > UNTAKEN_RANGES_IN_MEMORY {
            self.untaken.join_lowest();
        }
    }

    /// Whether this reader took a frame that was for it.
    pub(crate) fn has_taken(&self, offset: Offset) -> bool {
        !self.is_best_effort && self.is_resolved(offset) && !self.untaken.contains(offset)
    }

    /// Goes on to `offset`; what is passed and was not leased is nothing to wait for.
    pub(crate) fn pass_to(&mut self, offset: Offset) {
        self.resolve_run(self.next, offset);
        self.next = self.next.max(offset);
    }

    /// What may go below `offset` was dropped. Passes it, unless something had to stay before.
    pub(crate) fn drop_until(&mut self, offset: Offset) {
        if self.ahead.dropped_until <= self.next && self.first_ahead().is_none() {
            self.pass_to(offset);
        }
        self.ahead.dropped_until = self.ahead.dropped_until.max(offset);
    }

    pub(crate) fn is_resolved(&self, offset: Offset) -> bool {
        offset < self.floor || self.resolved.contains(offset)
    }

    /// What waits for the reader, leased or not.
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

    /// When the oldest unresolved frame was received, if it is on disk only and known.
    pub(crate) fn oldest_on_disk_unix_ns(&self) -> Option<u64> {
        let leased = self.disk_leases.values().next();
        leased.into_iter().chain(self.first_ahead()).map(|lease| lease.received_unix_ns).min()
    }

    /// What the reader has leased there of what is on disk only.
    pub(crate) fn leased_on_disk(&self, offsets: RangeInclusive<Offset>) -> Holding {
        self.disk_leases.range(offsets).map(|(_, lease)| lease.charge).collect()
    }

    /// To be called before the log's lock is released, after anything that changes what is held.
    pub(crate) fn publish(&self) {
        let held = self.held();
        self.gauges.held_bytes.set(held.bytes);
        self.gauges.held_frames.set(held.frames);
        self.gauges.unread_bytes.set(self.unread.bytes);
        self.gauges.unwritten_bytes.set(self.unwritten.bytes);
    }

    /// Takes back what was read ahead: the cursor goes elsewhere.
    pub(crate) fn forget_ahead(&mut self) {
        let (generation, drops) = (self.ahead.generation + 1, self.ahead.drops);
        self.ahead = Ahead { generation, drops, ..Ahead::at(self.next) };
    }

    /// Takes note of what a policy dropped from where the reader stood up to `end`.
    pub(crate) fn note_dropped_range(
        &mut self,
        start: Offset,
        end: Offset,
        dropped: Holding,
        now_unix_ns: u64,
    ) {
        if dropped.frames == 0 {
            return;
        }
        self.dropped.add(dropped);
        self.is_changed = true;
        // A reader that lags for hours loses a frame at each append: that is one range that grows.
        if let Some(last) = self.dropped_ranges.back_mut().filter(|last| last.end == start) {
            last.end = end;
            last.dropped.add(dropped);
            last.dropped_unix_ns = now_unix_ns;
            return;
        }
        if self.dropped_ranges.len() == DROPPED_RANGES_LIMIT {
            self.dropped_ranges.pop_front();
        }
        let range = DroppedRange { start, end, dropped, dropped_unix_ns: now_unix_ns };
        self.dropped_ranges.push_back(range);
    }
}
