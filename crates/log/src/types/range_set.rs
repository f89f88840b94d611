//! Sets of offsets as ranges.

use std::collections::BTreeMap;

/// A set of offsets, kept as ranges: the offsets above a cursor's floor that are resolved already.
/// Disjoint, non-adjacent half-open ranges `start..end`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    end_by_start: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds one offset. Returns false if it was in the set already.
    pub fn insert(&mut self, offset: u64) -> bool {
        let is_new = !self.contains(offset);
        if is_new {
            self.insert_run(offset, offset + 1);
        }
        is_new
    }

    /// Adds every offset of `start..end`.
    pub fn insert_run(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        // Backwards: ranges that touch the run become part of it.
        while let Some((first, last)) = self.starting_by(end).filter(|&(_, last)| last >= start) {
            self.end_by_start.remove(&first);
            start = start.min(first);
            end = end.max(last);
        }
        self.end_by_start.insert(start, end);
    }

    /// Removes every offset of `start..end`.
    pub fn remove_run(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((first, last)) = self.starting_by(end - 1).filter(|&(_, last)| last > start)
        {
            self.end_by_start.remove(&first);
            if last > end {
                self.end_by_start.insert(end, last);
            }
            if first < start {
                self.end_by_start.insert(first, start);
            }
        }
    }

    /// The last range that starts at or before an offset.
    fn starting_by(&self, offset: u64) -> Option<(u64, u64)> {
        self.end_by_start.range(..=offset).next_back().map(|(&start, &end)| (start, end))
    }

    pub fn contains(&self, offset: u64) -> bool {
        self.end_of_run_at(offset).is_some()
    }

    /// The end of the range that `offset` lies in.
    pub fn end_of_run_at(&self, offset: u64) -> Option<u64> {
        self.starting_by(offset).map(|(_, end)| end).filter(|&end| offset < end)
    }

    /// Whether an offset of `start..end` is in it.
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        let last = end.checked_sub(1).and_then(|last| self.starting_by(last));
        start < end && last.is_some_and(|(_, last)| last > start)
    }

    /// Forgets every offset below `floor`; returns the first one from `floor` on that is not in it.
    pub fn forget_below(&mut self, floor: u64) -> u64 {
        let mut lifted = floor;
        while let Some(lowest) = self.end_by_start.first_entry()
            && *lowest.key() <= lifted
        {
            lifted = lifted.max(lowest.remove());
        }
        lifted
    }

    /// Forgets the ranges that end at or below an offset.
    pub fn forget_ended(&mut self, below: u64) {
        while let Some(lowest) = self.end_by_start.first_entry()
            && *lowest.get() <= below
        {
            lowest.remove();
        }
    }

    /// Joins the two lowest ranges into one, which includes all offsets between them.
    pub fn join_lowest(&mut self) {
        let (lowest, next) = (self.end_by_start.pop_first(), self.end_by_start.pop_first());
        if let Some((start, end)) = lowest {
            self.end_by_start.insert(start, next.map_or(end, |(_, end)| end));
        }
    }

    /// Number of separate ranges. The set takes memory in proportion to it.
    pub fn len(&self) -> usize {
        self.end_by_start.len()
    }

    pub fn is_empty(&self) -> bool {
        self.end_by_start.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.end_by_start.iter().map(|(&start, &end)| (start, end))
    }
}

#[cfg(test)]
mod tests;
