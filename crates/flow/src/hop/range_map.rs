//! Disjoint ranges of places.

use std::collections::VecDeque;
use std::ops::Range;

use super::Place;

/// The part of a range that others cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cover {
    Nothing,
    Some,
    All,
}

/// Ranges in order, none of which overlap or touch. Most come and go at the ends.
#[derive(Clone, Debug, Default)]
pub(super) struct RangeMap(VecDeque<Range<Place>>);

impl RangeMap {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Range<Place>> {
        self.0.iter().cloned()
    }

    pub(super) fn cover(&self, range: &Range<Place>) -> Cover {
        let behind = self.0.partition_point(|it| it.start < range.end);
        let Some(last) = behind.checked_sub(1).and_then(|last| self.0.get(last)) else {
            return Cover::Nothing;
        };
        match () {
            () if last.end <= range.start => Cover::Nothing,
            // Ranges that touch are one: no other one could cover the rest.
            () if last.start <= range.start && range.end <= last.end => Cover::All,
            () => Cover::Some,
        }
    }

    pub(super) fn insert(&mut self, range: Range<Place>) {
        let from = self.0.partition_point(|it| it.end < range.start);
        let to = self.0.partition_point(|it| it.start <= range.end);
        let touched = self.0.drain(from..to);
        let whole =
            touched.fold(range, |whole, it| whole.start.min(it.start)..whole.end.max(it.end));
        self.0.insert(from, whole);
    }

    pub(super) fn remove(&mut self, range: &Range<Place>) {
        let from = self.0.partition_point(|it| it.end <= range.start);
        let to = self.0.partition_point(|it| it.start < range.end);
        if from >= to {
            return;
        }
        let (before, behind) = (self.0[from].start..range.start, range.end..self.0[to - 1].end);
        self.0.drain(from..to);
        // The later one first: both go to the same place.
        for left in [behind, before].into_iter().filter(|it| !it.is_empty()) {
            self.0.insert(from, left);
        }
    }

    pub(super) fn remove_lowest(&mut self) {
        self.0.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set of places.
        #[test]
        fn a_range_map_is_a_set_of_places(
            steps in prop::collection::vec((any::<bool>(), 0u32..40, 1u32..12), 0..40),
            asked in (0u32..40, 1u32..12),
        ) {
            let range = |from, len| Place::new(0, from)..Place::new(0, from + len);
            let (mut map, mut set) = (RangeMap::default(), BTreeSet::new());
            for (inserts, from, len) in steps {
                if inserts {
                    map.insert(range(from, len));
                    set.extend(from..from + len);
                } else {
                    map.remove(&range(from, len));
                    set.retain(|at| !(from..from + len).contains(at));
                }
                let starts = set.iter().filter(|at| **at == 0 || !set.contains(&(**at - 1)));
                prop_assert_eq!(map.len(), starts.count());
            }
            let (from, len) = asked;
            let covered = (from..from + len).filter(|at| set.contains(at)).count() as u32;
            let expected = match covered {
                0 => Cover::Nothing,
                covered if covered == len => Cover::All,
                _ => Cover::Some,
            };
            prop_assert_eq!(map.cover(&range(from, len)), expected);
        }
    }
}
