//! Classic histograms as native ones with custom buckets, which are explicit bounds in OTLP.

/// Empty buckets between two others count up to here: Prometheus keeps them in a span.
const GAP_KEPT: usize = 2;

/// A native histogram with custom buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Custom {
    pub(crate) sum: f64,
    pub(crate) count: f64,
    /// Finite bounds, each with the count of all below it.
    pub(crate) buckets: Vec<(f64, f64)>,
}

/// The parts of a classic histogram.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classic {
    pub(crate) sum: f64,
    pub(crate) count: Option<f64>,
    /// Bounds, none of which is NaN, with the counts of all below them, as the page orders them.
    pub(crate) buckets: Vec<(f64, f64)>,
}

impl Classic {
    /// Of several buckets of a bound, the first one counts. Without a count, that of the last
    /// bucket does.
    pub(crate) fn convert(self) -> Result<Custom, &'static str> {
        let Classic { sum, count, mut buckets } = self;
        buckets.sort_by(|left, right| left.0.total_cmp(&right.0));
        buckets.dedup_by(|next, kept| next.0 == kept.0);
        let mut below = 0.0;
        for (_, count) in &buckets {
            if count.is_nan() || *count < below {
                return Err("a bucket of a histogram has less than the one below it");
            }
            below = *count;
        }
        let count = count.unwrap_or(below);
        let is_last = |bucket: &mut (f64, f64)| bucket.0 == f64::INFINITY;
        let is_whole = buckets.pop_if(is_last).is_none_or(|(_, last)| last == count);
        if !is_whole || count.is_nan() || count < below {
            return Err("a histogram has another count than its buckets");
        }
        Ok(Custom { sum, count, buckets })
    }
}

impl Custom {
    /// Buckets as a page may have so many: each has a bound beside its count.
    pub(crate) fn charged_buckets(&self) -> u64 {
        2 * self.buckets.len() as u64
    }

    /// Buckets as `native_histogram_bucket_limit` counts them.
    pub(crate) fn used_buckets(&self) -> usize {
        let (mut used, mut gap, mut below) = (0, 0, 0.0);
        let all = self.buckets.iter().map(|(_, count)| *count).chain([self.count]);
        let gap_kept = match all.clone().all(|count| count.fract() == 0.0) {
            true => GAP_KEPT,
            false => 0,
        };
        for count in all {
            if count == below {
                gap += 1;
                continue;
            }
            if used > 0 && gap <= gap_kept {
                used += gap;
            }
            (used, gap, below) = (used + 1, 0, count);
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(count: Option<f64>, buckets: &[(f64, f64)]) -> Result<Custom, &'static str> {
        Classic { sum: 7.5, count, buckets: buckets.to_vec() }.convert()
    }

    fn custom(count: f64, buckets: &[(f64, f64)]) -> Custom {
        Custom { sum: 7.5, count, buckets: buckets.to_vec() }
    }

    /// Guarantee: buckets are ordered, each bound once, and the last of all is the count.
    #[test]
    fn classic_histograms_become_custom_ones() {
        let inf = f64::INFINITY;
        let expected = custom(4.0, &[(1.0, 2.0), (2.0, 3.0)]);
        for (count, buckets) in [
            (Some(4.0), &[(1.0, 2.0), (2.0, 3.0), (inf, 4.0)][..]),
            (Some(4.0), &[(1.0, 2.0), (2.0, 3.0)]),
            (None, &[(2.0, 3.0), (inf, 4.0), (1.0, 2.0)]),
            (None, &[(1.0, 2.0), (2.0, 3.0), (1.0, 9.0), (inf, 4.0)]),
        ] {
            assert_eq!(convert(count, buckets), Ok(expected.clone()), "{buckets:?}");
        }
        assert_eq!(convert(None, &[(1.0, 2.0)]), Ok(custom(2.0, &[(1.0, 2.0)])));
        assert_eq!(convert(Some(3.0), &[]), Ok(custom(3.0, &[])));
        assert_eq!(convert(None, &[]), Ok(custom(0.0, &[])));
        assert_eq!(convert(Some(1.5), &[(1.0, 0.5)]), Ok(custom(1.5, &[(1.0, 0.5)])));
    }

    #[test]
    fn histograms_that_contradict_themselves_are_none() {
        for (count, buckets) in [
            (Some(-1.0), &[][..]),
            (Some(f64::NAN), &[]),
            (Some(4.0), &[(1.0, -1.0)]),
            (Some(4.0), &[(1.0, f64::NAN)]),
            (Some(4.0), &[(1.0, 3.0), (2.0, 2.0)]),
            (Some(4.0), &[(1.0, 5.0)]),
            (Some(4.0), &[(1.0, 3.0), (f64::INFINITY, 5.0)]),
            (Some(4.0), &[(1.0, 3.0), (f64::INFINITY, 3.0)]),
        ] {
            assert!(convert(count, buckets).is_err(), "{count:?} {buckets:?}");
        }
    }

    /// Guarantee: as in Prometheus, buckets are those of spans without empty ends, in which at most
    /// two empty ones stand between others, and none if counts are fractions.
    #[test]
    fn empty_buckets_count_between_others() {
        let used = |counts: &[f64]| {
            let mut total = 0.0;
            let buckets: Vec<(f64, f64)> = counts
                .iter()
                .enumerate()
                .map(|(place, count)| {
                    total += count;
                    (place as f64, total)
                })
                .collect();
            custom(total, &buckets).used_buckets()
        };
        assert_eq!(used(&[]), 0);
        assert_eq!(used(&[0.0, 0.0]), 0);
        assert_eq!(used(&[0.0, 1.0, 2.0, 0.0]), 2);
        assert_eq!(used(&[1.0, 0.0, 0.0, 2.0]), 4);
        assert_eq!(used(&[1.0, 0.0, 0.0, 0.0, 2.0]), 2);
        assert_eq!(used(&[1.5, 0.0, 2.0]), 2);
        assert_eq!(custom(3.0, &[(1.0, 1.0)]).used_buckets(), 2);
    }
}
