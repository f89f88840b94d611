//! A delivery's place in the log: a floor below which everything is resolved, and resolved ranges above it.

use crate::ranges::RangeSet;

/// What a budget took from a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    pub frames: u64,
    pub items: u64,
    pub bytes: u64,
}

/// Position of one reader of a log. Guarded by the log's lock.
#[derive(Debug)]
pub struct Cursor {
    /// Everything below is resolved.
    pub(crate) floor: u64,
    /// The next offset to read. Between `floor` and `next` frames are leased or resolved.
    pub(crate) next: u64,
    pub(crate) resolved: RangeSet,
    /// The budget: what may wait for this reader, in bytes.
    pub(crate) limit_bytes: u64,
    /// Bytes, items and frames that wait for this reader (leased or not yet read).
    pub(crate) held_bytes: u64,
    /// Those of them that were not read yet.
    pub(crate) unread_bytes: u64,
    pub(crate) held_items: u64,
    pub(crate) held_frames: u64,
}

impl Cursor {
    pub(crate) fn at(offset: u64, limit_bytes: u64) -> Self {
        Cursor {
            floor: offset,
            next: offset,
            resolved: RangeSet::default(),
            limit_bytes,
            held_bytes: 0,
            unread_bytes: 0,
            held_items: 0,
            held_frames: 0,
        }
    }

    /// Marks one offset as resolved and lifts the floor as far as it goes. False if it was resolved before.
    pub(crate) fn resolve(&mut self, offset: u64) -> bool {
        if offset < self.floor || !self.resolved.insert(offset) {
            return false;
        }
        if let Some(end) = self.resolved.take_run_at(self.floor) {
            self.floor = end;
        }
        true
    }

    /// Marks `start..end` as resolved.
    pub(crate) fn resolve_run(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if start <= self.floor {
            self.lift_to(end);
        } else {
            self.resolved.insert_run(start, end);
        }
    }

    /// Takes note that everything below `offset` is resolved, whoever it was for.
    pub(crate) fn lift_to(&mut self, offset: u64) {
        if self.floor < offset {
            self.floor = self.resolved.forget_below(offset);
        }
        self.next = self.next.max(self.floor);
    }

    pub(crate) fn is_resolved(&self, offset: u64) -> bool {
        offset < self.floor || self.resolved.contains(offset)
    }
}
