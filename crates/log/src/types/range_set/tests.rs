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
