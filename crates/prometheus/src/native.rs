//! Native histograms: buckets whose bounds follow from a schema.

use std::ops::RangeInclusive;

/// Buckets of one side that a page may ask for: gaps between spans count, and cost it nothing.
const BUCKETS_LIMIT: usize = 65_536;

/// The lowest and the highest resolution to which buckets are merged, and from which.
const SCHEMAS: RangeInclusive<i32> = -4..=8;

/// A native histogram, with its buckets as OTLP has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Native {
    pub schema: i32,
    pub count: u64,
    pub sum: f64,
    pub zero_threshold: f64,
    pub zero_count: u64,
    pub positive: Side,
    pub negative: Side,
}

/// Adjacent buckets, the first and the last of which are not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Index of the first bucket, by its lower bound.
    pub offset: i32,
    pub counts: Vec<u64>,
}

/// A run of buckets on a page: the distance to the run before, and its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub offset: i32,
    pub length: u32,
}

/// Buckets that the spans of one side stand for, with those between them.
pub fn width(spans: &[Span]) -> u64 {
    let gaps = spans.iter().skip(1).map(|span| u64::from(span.offset.max(0).unsigned_abs()));
    let lengths = spans.iter().map(|span| u64::from(span.length));
    gaps.chain(lengths).fold(0, u64::saturating_add)
}

impl Native {
    /// Lowers the resolution to `schema`, if it is higher.
    pub fn limit_schema(&mut self, schema: i32) {
        let halvings = self.schema.saturating_sub(schema);
        if halvings > 0 {
            self.positive.merge(halvings.unsigned_abs());
            self.negative.merge(halvings.unsigned_abs());
            self.schema = schema;
        }
    }

    /// Halves the resolution until no more than `limit` buckets hold something; false if that
    /// cannot be.
    pub fn limit_buckets(&mut self, limit: usize) -> bool {
        while self.positive.used() + self.negative.used() > limit {
            if self.schema <= *SCHEMAS.start() || self.schema > *SCHEMAS.end() {
                return false;
            }
            self.limit_schema(self.schema - 1);
        }
        true
    }
}

impl Side {
    /// Buckets that are not empty.
    fn used(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// Makes one bucket of each 2 to the power of `halvings`.
    fn merge(&mut self, halvings: u32) {
        let first = i64::from(self.offset);
        let (mut merged, mut last) = (Vec::<u64>::new(), None);
        for (index, count) in (first..).zip(&self.counts) {
            let index = index >> halvings.min(63);
            match merged.last_mut().filter(|_| last == Some(index)) {
                Some(bucket) => *bucket = bucket.saturating_add(*count),
                None => merged.push(*count),
            }
            last = Some(index);
        }
        merged.shrink_to_fit();
        (self.offset, self.counts) = (self.offset >> halvings.min(31), merged);
    }

    /// Reads the buckets of one side, whose counts may be relative to one another.
    pub fn read(
        spans: &[Span],
        counts: impl ExactSizeIterator<Item = u64>,
    ) -> Result<Side, &'static str> {
        let needed: u64 = spans.iter().map(|span| u64::from(span.length)).sum();
        if needed != counts.len() as u64 {
            return Err("a histogram has not as many buckets as its spans say");
        }
        if width(spans) > BUCKETS_LIMIT as u64 {
            return Err("a histogram has too many buckets");
        }
        let mut side = Side::default();
        let mut counts = counts;
        for (index, span) in spans.iter().enumerate() {
            if index > 0 {
                let gap = span.offset.max(0).unsigned_abs() as usize;
                side.counts.resize(side.counts.len() + gap, 0);
            }
            side.counts.extend(counts.by_ref().take(span.length as usize));
        }
        let empty = side.counts.iter().take_while(|count| **count == 0).count();
        side.counts.drain(..empty);
        let used = side.counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        side.counts.truncate(used);
        side.counts.shrink_to_fit();
        if let Some(first) = spans.first().filter(|_| used > 0) {
            // Prometheus counts buckets by their upper bounds.
            side.offset = first.offset.saturating_sub(1).saturating_add(empty as i32);
        }
        Ok(side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spans: &[(i32, u32)], counts: &[u64]) -> Result<Side, &'static str> {
        let spans: Vec<Span> = spans
            .iter()
            .map(|(offset, length)| Span { offset: *offset, length: *length })
            .collect();
        Side::read(&spans, counts.iter().copied())
    }

    #[test]
    fn gaps_become_empty_buckets_and_empty_ends_are_cut() {
        let side = |offset, counts: &[u64]| Ok(Side { offset, counts: counts.to_vec() });
        assert_eq!(read(&[], &[]), side(0, &[]));
        assert_eq!(read(&[(0, 0)], &[]), side(0, &[]));
        assert_eq!(read(&[(1, 2)], &[3, 4]), side(0, &[3, 4]));
        assert_eq!(read(&[(-2, 1), (2, 1)], &[3, 4]), side(-3, &[3, 0, 0, 4]));
        assert_eq!(read(&[(0, 4)], &[0, 0, 5, 0]), side(1, &[5]));
        assert_eq!(read(&[(0, 2)], &[0, 0]), side(0, &[]));
        assert_eq!(read(&[(0, 1), (-5, 1)], &[1, 2]), side(-1, &[1, 2]));
        assert_eq!(read(&[(i32::MIN, 1)], &[1]), side(i32::MIN, &[1]));
    }

    fn native(schema: i32, positive: (i32, &[u64]), negative: (i32, &[u64])) -> Native {
        let side = |(offset, counts): (i32, &[u64])| Side { offset, counts: counts.to_vec() };
        let (positive, negative) = (side(positive), side(negative));
        Native { schema, positive, negative, ..Native::default() }
    }

    /// Guarantee: a bucket of the lower resolution has what the buckets within its bounds had.
    #[test]
    fn a_lower_resolution_has_the_sums_of_buckets() {
        let whole = native(3, (-3, &[1, 2, 3, 0, 0, 6]), (4, &[7]));
        for (schema, expected) in [
            (4, whole.clone()),
            (3, whole.clone()),
            // The buckets -3 to 2 become -2, -1, 0 and 1.
            (2, native(2, (-2, &[1, 5, 0, 6]), (2, &[7]))),
            (1, native(1, (-1, &[6, 6]), (1, &[7]))),
            (-4, native(-4, (-1, &[6, 6]), (0, &[7]))),
        ] {
            let mut found = whole.clone();
            found.limit_schema(schema);
            assert_eq!(found, expected, "{schema}");
        }
        let mut extreme = native(52, (i32::MIN, &[u64::MAX, 1]), (i32::MAX, &[1, 2]));
        extreme.limit_schema(-9);
        assert_eq!(extreme, native(-9, (-1, &[u64::MAX]), (0, &[3])));
    }

    /// Guarantee: the resolution is halved as often as is needed, and no more often. Empty buckets
    /// do not count.
    #[test]
    fn a_limit_of_buckets_halves_the_resolution() {
        let whole = native(1, (0, &[1, 0, 0, 0, 2, 3]), (0, &[4]));
        for (limit, expected) in [
            (4, Some(whole.clone())),
            (3, Some(native(0, (0, &[1, 0, 5]), (0, &[4])))),
            (2, Some(native(-2, (0, &[6]), (0, &[4])))),
            (1, None),
        ] {
            let mut found = whole.clone();
            let fits = found.limit_buckets(limit);
            assert_eq!(fits.then_some(found), expected, "{limit}");
        }
        let mut lowest = native(-4, (0, &[1, 2]), (0, &[]));
        assert!(lowest.limit_buckets(2) && !lowest.limit_buckets(1));
        let mut reserved = native(9, (0, &[1, 2]), (0, &[]));
        assert!(reserved.limit_buckets(2) && !reserved.limit_buckets(1));
    }

    /// Guarantee: a page cannot ask for more memory than its own length is worth.
    #[test]
    fn hostile_spans_are_refused() {
        assert!(read(&[(0, 3)], &[1]).is_err());
        assert!(read(&[(0, u32::MAX)], &[1]).is_err());
        assert!(read(&[(0, 1), (i32::MAX, 1)], &[1, 1]).is_err());
        let many = [(0, u32::MAX); 3];
        assert!(read(&many, &[1]).is_err());
        assert!(read(&[(0, 1), (60_000, 1)], &[1, 1]).is_ok());
    }
}
