//! Histograms with explicit bounds as native ones with custom buckets.

use crate::exponential::{Native, SideBuilder};
use crate::point::Point;

/// The schema of custom buckets.
pub(crate) const SCHEMA: i32 = -53;

/// `None`: the bounds are no bounds of buckets.
pub(crate) fn native(point: &Point<'_>) -> Option<Native> {
    let finite = point.bounds.iter().take_while(|bound| **bound != f64::INFINITY);
    let bounds: Vec<f64> = finite.copied().collect();
    if bounds.iter().any(|bound| bound.is_nan()) || !bounds.is_sorted_by(|a, b| a < b) {
        return None;
    }
    let (mut builder, mut total) = (SideBuilder::default(), 0_u64);
    for number in 0..=bounds.len() {
        let mut count = point.counts.get(number).copied().unwrap_or_default();
        total = total.checked_add(count)?;
        if number == bounds.len() && point.count > total {
            // The buckets do not have all that was counted.
            count += point.count - total;
            total = point.count;
        }
        if count > 0 {
            builder.push(number as i64, count)?;
        }
    }
    let (sum, positive) = (point.sum.unwrap_or_default(), builder.end());
    Some(Native { schema: SCHEMA, count: total, sum, positive, bounds, ..Native::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exponential::Side;

    fn of(bounds: &[f64], counts: &[u64], count: u64) -> Option<Native> {
        let (bounds, counts) = (bounds.to_vec(), counts.to_vec());
        native(&Point { bounds, counts, count, sum: Some(2.0), ..Point::default() })
    }

    #[test]
    fn bounds_become_custom_values() {
        let found = of(&[1.0, 2.0], &[3, 0, 4], 7).expect("is one");
        let positive = Side { spans: vec![(0, 3)], deltas: vec![3, -3, 4] };
        let (sum, bounds) = (2.0, vec![1.0, 2.0]);
        let expected =
            Native { schema: SCHEMA, count: 7, sum, positive, bounds, ..Native::default() };
        assert_eq!(found, expected);
    }

    #[test]
    fn what_no_bucket_has_is_above_all_bounds() {
        let found = of(&[1.0], &[3], 7).expect("is one");
        assert_eq!((found.count, found.positive.deltas), (7, vec![3, 1]));
        let found = of(&[], &[], 7).expect("is one");
        assert_eq!((found.count, found.positive.deltas), (7, vec![7]));
        let found = of(&[1.0, f64::INFINITY], &[3, 4], 7).expect("is one");
        assert_eq!((found.bounds, found.positive.deltas), (vec![1.0], vec![3, 1]));
    }

    #[test]
    fn what_is_no_histogram_becomes_none() {
        assert_eq!(of(&[f64::NAN], &[1, 1], 2), None);
        assert_eq!(of(&[2.0, 1.0], &[1, 1, 1], 3), None);
        assert_eq!(of(&[1.0], &[u64::MAX, 1], 3), None);
    }
}
