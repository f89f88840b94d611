//! Exponential histograms as native ones: dense buckets become spans and differences.

use crate::point::{Buckets, Exponential};

/// Resolutions that native histograms have.
pub(crate) const SCALES: std::ops::RangeInclusive<i32> = -4..=8;
/// As the Collector and Prometheus have it where OTLP names none.
const ZERO_THRESHOLD: f64 = 1e-128;
/// A gap of at most this many empty buckets is written out: a span would take more.
const GAP_WRITTEN: i64 = 2;

/// A native histogram as remote write has it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Native {
    pub(crate) schema: i32,
    pub(crate) zero_threshold: f64,
    pub(crate) zero_count: u64,
    pub(crate) count: u64,
    pub(crate) sum: f64,
    pub(crate) positive: Side,
    pub(crate) negative: Side,
    /// Upper bounds of custom buckets.
    pub(crate) bounds: Vec<f64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Side {
    /// Runs of buckets: the distance to the run before, and the length.
    pub(crate) spans: Vec<(i32, u32)>,
    /// Counts, each as its difference to the one before.
    pub(crate) deltas: Vec<i64>,
}

/// `None`: the resolution is too low for a native histogram, or its buckets have no numbers there.
pub(crate) fn native(count: u64, sum: Option<f64>, point: &Exponential) -> Option<Native> {
    if point.scale < *SCALES.start() {
        return None;
    }
    let schema = point.scale.min(*SCALES.end());
    let merged = point.scale.saturating_sub(schema) as u32;
    Some(Native {
        schema,
        zero_threshold: match point.zero_threshold {
            0.0 => ZERO_THRESHOLD,
            threshold => threshold,
        },
        zero_count: point.zero_count,
        count,
        sum: sum.unwrap_or_default(),
        positive: Side::of(&point.positive, merged)?,
        negative: Side::of(&point.negative, merged)?,
        bounds: Vec::new(),
    })
}

/// Buckets of one side as they come, in the order of their numbers.
#[derive(Default)]
pub(crate) struct SideBuilder {
    side: Side,
    /// The number behind the last bucket.
    next: Option<i64>,
    count_before: i64,
}

impl SideBuilder {
    /// Adds a bucket with a higher number than the one before. `None`: it cannot have it.
    pub(crate) fn push(&mut self, number: i64, count: u64) -> Option<()> {
        let distance = number - self.next.unwrap_or(0);
        i32::try_from(number).ok()?;
        if self.next.is_none() || distance > GAP_WRITTEN {
            self.side.spans.push((i32::try_from(distance).ok()?, 0));
        } else {
            (0..distance).for_each(|_| self.append(0));
        }
        self.append(count);
        self.next = Some(number + 1);
        Some(())
    }

    fn append(&mut self, count: u64) {
        if let Some((_, length)) = self.side.spans.last_mut() {
            *length += 1;
        }
        self.side.deltas.push((count as i64).wrapping_sub(self.count_before));
        self.count_before = count as i64;
    }

    pub(crate) fn end(self) -> Side {
        self.side
    }
}

impl Side {
    /// `merged`: 2 to the power of this many buckets become one.
    fn of(buckets: &Buckets, merged: u32) -> Option<Side> {
        let mut builder = SideBuilder::default();
        // Prometheus numbers buckets by their upper bounds.
        let number = |index: usize| {
            let number = i64::from(buckets.offset) + index as i64;
            (number >> merged.min(63)) + 1
        };
        let mut counts = buckets.counts.iter().enumerate().peekable();
        while let Some((index, count)) = counts.next() {
            let (here, mut count) = (number(index), *count);
            while let Some((_, more)) = counts.next_if(|(next, _)| number(*next) == here) {
                count = count.saturating_add(*more);
            }
            if count > 0 {
                builder.push(here, count)?;
            }
        }
        Some(builder.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(offset: i32, counts: &[u64], merged: u32) -> Option<Side> {
        Side::of(&Buckets { offset, counts: counts.to_vec() }, merged)
    }

    fn of(spans: &[(i32, u32)], deltas: &[i64]) -> Option<Side> {
        Some(Side { spans: spans.to_vec(), deltas: deltas.to_vec() })
    }

    #[test]
    fn buckets_become_spans_and_differences() {
        assert_eq!(side(0, &[], 0), of(&[], &[]));
        assert_eq!(side(0, &[0, 0], 0), of(&[], &[]));
        assert_eq!(side(0, &[4, 3, 2, 1], 0), of(&[(1, 4)], &[4, -1, -1, -1]));
        assert_eq!(side(-3, &[1, 0, 0, 2], 0), of(&[(-2, 4)], &[1, -1, 0, 2]));
        assert_eq!(side(0, &[1, 0, 0, 0, 2], 0), of(&[(1, 1), (3, 1)], &[1, 1]));
        assert_eq!(side(1, &[0, 7], 0), of(&[(3, 1)], &[7]));
    }

    #[test]
    fn a_higher_resolution_is_merged() {
        assert_eq!(side(0, &[4, 3, 2, 1], 1), of(&[(1, 2)], &[7, -4]));
        assert_eq!(side(-1, &[4, 3, 2, 1], 1), of(&[(0, 3)], &[4, 1, -4]));
        assert_eq!(side(5, &[1, 1], 40), of(&[(1, 1)], &[2]));
        assert_eq!(side(-5, &[1, 1], 40), of(&[(0, 1)], &[2]));
    }

    /// Guarantee: no number of a bucket overflows.
    #[test]
    fn buckets_out_of_range_make_no_histogram() {
        assert_eq!(side(i32::MAX, &[1], 0), None);
        assert_eq!(side(i32::MAX - 1, &[1], 0), of(&[(i32::MAX, 1)], &[1]));
        assert_eq!(side(i32::MIN, &[u64::MAX, u64::MAX], 1), {
            of(&[(i32::MIN / 2 + 1, 1)], &[-1])
        });
        let low = Exponential { scale: -5, ..Exponential::default() };
        assert_eq!(native(1, None, &low), None);
    }
}
