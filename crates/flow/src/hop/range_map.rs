//! Disjoint ranges of places.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Place;

/// The part of a range that others cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cover {
    Nothing,
    Some,
    All,
}

/// Ranges by their starts, none of which overlap or touch.
#[derive(Clone, Debug, Default)]
pub(super) struct RangeMap(BTreeMap<Place, Place>);

impl RangeMap {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Range<Place>> {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    pub(super) fn cover(&self, range: &Range<Place>) -> Cover {
        let Some((&start, &end)) = self.0.range(..range.end).next_back() else {
            return Cover::Nothing;
        };
        match () {
            () if end <= range.start => Cover::Nothing,
            // Ranges that touch are one: no other one could cover the rest.
            () if start <= range.start && range.end <= end => Cover::All,
            () => Cover::Some,
        }
    }

    pub(super) fn insert(&mut self, mut range: Range<Place>) {
        while let Some((&start, &end)) = self.0.range(..=range.end).next_back() {
            if end < range.start {
                break;
            }
            self.0.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.0.insert(range.start, range.end);
    }

    pub(super) fn remove(&mut self, range: &Range<Place>) {
        while let Some((&start, &end)) = self.0.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.0.remove(&start);
            if range.end < end {
                self.0.insert(range.end, end);
            }
            if start < range.start {
                self.0.insert(start, range.start);
            }
        }
    }

    pub(super) fn remove_lowest(&mut self) {
        self.0.pop_first();
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
