//! The buckets of exponential histograms. Indices are absolute and 64 bits wide: nothing overflows.

/// Counts from bucket `offset` on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Buckets {
    pub offset: i32,
    pub counts: Vec<u64>,
}

/// After so many collapses nothing changes any more.
const COLLAPSES_LIMIT: i64 = 128;

impl Buckets {
    pub(crate) fn lower(&self) -> i64 {
        i64::from(self.offset)
    }

    /// Behind the last bucket.
    pub(crate) fn upper(&self) -> i64 {
        self.lower() + self.counts.len() as i64
    }

    pub(crate) fn at(&self, index: i64) -> u64 {
        let own = usize::try_from(index - self.lower()).ok();
        own.and_then(|own| self.counts.get(own)).copied().unwrap_or(0)
    }

    /// First bucket that is not empty, and behind the last one.
    fn used(&self) -> Option<(i64, i64)> {
        let first = self.counts.iter().position(|count| *count != 0)?;
        let last = self.counts.iter().rposition(|count| *count != 0)?;
        Some((self.lower() + first as i64, self.lower() + last as i64 + 1))
    }

    /// The range that two histograms use together.
    pub(crate) fn used_with(&self, other: &Buckets) -> Option<(i64, i64)> {
        match (self.used(), other.used()) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        }
    }

    /// Adds `other`, which has the same scale.
    pub(crate) fn add(&mut self, other: &Buckets) {
        if other.counts.is_empty() {
            return;
        }
        if self.counts.is_empty() {
            self.clone_from(other);
            return;
        }
        let Some((low, high)) = self.used_with(other) else {
            self.offset = self.upper().max(other.upper()) as i32;
            self.counts = Vec::new();
            return;
        };
        let counts = (low..high).map(|index| self.at(index).wrapping_add(other.at(index)));
        let counts = counts.collect();
        *self = Buckets { offset: low as i32, counts };
    }

    /// Halves the scale's resolution so many times. The number of counts stays, as in the
    /// Collector.
    pub(crate) fn downscale(&mut self, times: i64) {
        for _ in 0..times.min(COLLAPSES_LIMIT) {
            self.collapse();
        }
    }

    fn collapse(&mut self) {
        let is_odd = self.offset % 2 != 0;
        let offset = self.lower() - i64::from(is_odd);
        self.offset = (offset / 2) as i32;
        let mut merged = vec![0u64; self.counts.len()];
        for (index, count) in self.counts.iter().enumerate() {
            let slot = &mut merged[(index + usize::from(is_odd)) / 2];
            *slot = slot.wrapping_add(*count);
        }
        self.counts = merged;
    }

    /// Drops the buckets below `low`, and returns their sum.
    pub(crate) fn cut_below(&mut self, low: i64) -> u64 {
        let low = low.clamp(self.lower(), self.upper());
        let cut = (low - self.lower()) as usize;
        let sum = self.counts.drain(..cut).fold(0, u64::wrapping_add);
        self.offset = low as i32;
        sum
    }

    /// The same counts in buckets that are wider, by a shift of their indices.
    pub(crate) fn coarsened(&self, shift: i64) -> Buckets {
        let shift = shift.clamp(0, 63) as u32;
        let offset = self.lower() >> shift;
        let mut counts = Vec::new();
        if !self.counts.is_empty() {
            counts = vec![0u64; (((self.upper() - 1) >> shift) - offset + 1) as usize];
            for (index, count) in self.counts.iter().enumerate() {
                let slot = ((self.lower() + index as i64) >> shift) - offset;
                counts[slot as usize] = counts[slot as usize].wrapping_add(*count);
            }
        }
        Buckets { offset: offset as i32, counts }
    }

    /// The counts that were added since `before`. Nothing if a bucket has fewer: there was a reset.
    pub(crate) fn since(&self, before: &Buckets) -> Option<Buckets> {
        let mut added = Buckets::default();
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count != 0) {
            let bucket = self.lower() + index as i64;
            let grown = count.checked_sub(before.at(bucket))?;
            if grown == 0 {
                continue;
            }
            if added.counts.is_empty() {
                added.offset = bucket as i32;
            }
            added.counts.resize((bucket - added.lower()) as usize, 0);
            added.counts.push(grown);
        }
        Some(added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(offset: i32, counts: &[u64]) -> Buckets {
        Buckets { offset, counts: counts.to_vec() }
    }

    #[test]
    fn collapsing_keeps_every_count() {
        let mut even = buckets(4, &[1, 2, 3]);
        even.downscale(1);
        assert_eq!(even, buckets(2, &[3, 3, 0]));
        let mut odd = buckets(-3, &[1, 2, 3]);
        odd.downscale(1);
        assert_eq!(odd, buckets(-2, &[1, 5, 0]));
        odd.downscale(i64::MAX);
        assert_eq!((odd.offset, odd.counts.iter().sum::<u64>()), (-1, 6));
    }

    #[test]
    fn what_was_added_begins_at_the_first_bucket_that_grew() {
        let added = buckets(2, &[5, 0, 9, 1]).since(&buckets(1, &[3, 0, 6, 1, 1]));
        assert_eq!(added, Some(buckets(2, &[5, 0, 8])));
        let added = buckets(100, &[0, 0, 9]).since(&Buckets::default());
        assert_eq!(added, Some(buckets(102, &[9])));
        assert_eq!(buckets(10, &[0, 1]).since(&buckets(10, &[0, 2])), None);
        let sparse = buckets(0, &[1, 0, 2, 0, 3]).since(&buckets(0, &[0, 0, 2]));
        assert_eq!(sparse, Some(buckets(0, &[1, 0, 0, 0, 3])));
    }

    #[test]
    fn extreme_offsets_neither_overflow_nor_take_memory() {
        let mut low = buckets(i32::MIN, &[1]);
        let high = buckets(i32::MAX, &[1]);
        assert_eq!(low.coarsened(40).counts, [1]);
        low.downscale(40);
        assert_eq!(low.counts, [1]);
        assert_eq!(high.since(&low), Some(high.clone()));
        assert_eq!(buckets(5, &[0; 4]).cut_below(i64::MIN), 0);
    }
}
