//! A set of offsets kept as ranges: the offsets above a cursor's floor that are resolved already.

use std::collections::BTreeMap;

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
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_join_into_one_range() {
        let mut ranges = RangeSet::default();
        for offset in [5, 7, 6] {
            assert!(ranges.insert(offset));
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(5, 8)]);
        assert!(!ranges.insert(6));
        assert_eq!(ranges.forget_below(5), 8);
        assert!(ranges.is_empty());
    }

    #[test]
    fn forgetting_below_a_floor_goes_on_through_the_range_that_it_meets() {
        let mut ranges = RangeSet::default();
        for offset in [1, 2, 5, 6, 9] {
            ranges.insert(offset);
        }
        assert_eq!(ranges.forget_below(6), 7);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(9, 10)]);
    }

    proptest! {
        #[test]
        fn runs_and_single_offsets_join(
            runs in proptest::collection::vec((0u64..64, 0u64..10), 0..40),
        ) {
            let mut ranges = RangeSet::default();
            let mut one_by_one = RangeSet::default();
            for (start, length) in runs {
                if length > 0 {
                    ranges.insert_run(start, start + length);
                }
                for offset in start..start + length {
                    one_by_one.insert(offset);
                }
                prop_assert_eq!(&ranges, &one_by_one);
            }
        }

        #[test]
        fn behaves_as_a_plain_set(offsets in proptest::collection::vec(0u64..64, 0..200)) {
            let mut ranges = RangeSet::default();
            let mut model = BTreeSet::new();
            for offset in offsets {
                prop_assert_eq!(ranges.insert(offset), model.insert(offset));
            }
            for offset in 0..66 {
                prop_assert_eq!(ranges.contains(offset), model.contains(&offset));
            }
            let mut previous_end = None;
            for (start, end) in ranges.iter() {
                prop_assert!(start < end);
                prop_assert!(previous_end.is_none_or(|previous| previous < start));
                previous_end = Some(end);
            }
        }
    }
}
