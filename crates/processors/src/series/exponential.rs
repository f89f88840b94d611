//! Exponential histograms of different scales and zero buckets, added and subtracted as the
//! Collector 0.160 does.

use super::point::{Exponential, Summary};

/// A sum of histograms has at most about so many buckets on each side.
const BUCKETS_LIMIT: i64 = 160;

impl Exponential {
    /// The difference to `before`, which is brought to the scale and zero bucket of `self`.
    /// Nothing if there was a reset.
    pub(crate) fn since(&self, before: &mut Exponential) -> Option<Exponential> {
        if self.all.count < before.all.count
            || self.zero_threshold < before.zero_threshold
            || self.scale > before.scale
        {
            return None;
        }
        if self.zero_threshold > before.zero_threshold {
            let factor = std::f64::consts::LOG2_E * power_of_two(before.scale);
            let zero = (self.zero_threshold.ln() * factor).ceil() - 1.0;
            // Buckets up to the one with the threshold were empty before, as the specification has
            // it, or are counted as zeros.
            for side in [&mut before.positive, &mut before.negative] {
                let zero = (zero as i32 as i64).saturating_add(1);
                if zero > side.lower() {
                    before.zero_count = before.zero_count.wrapping_add(side.cut_below(zero));
                }
            }
        }
        if self.scale < before.scale {
            let shift = i64::from(before.scale) - i64::from(self.scale);
            before.scale = self.scale;
            before.positive = before.positive.coarsened(shift);
            before.negative = before.negative.coarsened(shift);
        }
        Some(Exponential {
            all: self.all.since(&before.all),
            zero_count: self.zero_count.wrapping_sub(before.zero_count),
            positive: self.positive.since(&before.positive)?,
            negative: self.negative.since(&before.negative)?,
            ..self.clone()
        })
    }

    /// Adds a histogram of any scale and zero bucket.
    pub(crate) fn add(&mut self, mut other: Exponential) {
        let scale = self.scale.min(other.scale);
        self.downscale(scale);
        other.downscale(scale);
        let limit = |one: &super::buckets::Buckets, other| {
            let (mut low, mut high) = one.used_with(other).unwrap_or((0, 0));
            let mut scale = scale;
            while high - low > BUCKETS_LIMIT {
                (low, high) = (low / 2, high / 2);
                scale = scale.saturating_sub(1);
            }
            scale
        };
        let fitting = limit(&self.positive, &other.positive);
        let fitting = fitting.min(limit(&self.negative, &other.negative));
        self.downscale(fitting);
        other.downscale(fitting);
        if self.zero_threshold < other.zero_threshold {
            self.widen_zero(other.zero_threshold);
        } else if other.zero_threshold < self.zero_threshold {
            other.widen_zero(self.zero_threshold);
        }
        self.positive.add(&other.positive);
        self.negative.add(&other.negative);
        self.all.add(&other.all);
        self.zero_count = self.zero_count.wrapping_add(other.zero_count);
    }

    fn downscale(&mut self, scale: i32) {
        let times = i64::from(self.scale) - i64::from(scale);
        if times > 0 {
            self.positive.downscale(times);
            self.negative.downscale(times);
            self.scale = scale;
        }
    }

    /// Counts the buckets up to the one that contains `width` as zeros.
    fn widen_zero(&mut self, width: f64) {
        let zero = bucket_of(width, self.scale);
        for side in [&mut self.positive, &mut self.negative] {
            self.zero_count = self.zero_count.wrapping_add(side.cut_below(zero + 1));
        }
        let inverse = std::f64::consts::LN_2 * power_of_two(self.scale.saturating_neg());
        self.zero_threshold = ((zero + 1) as f64 * inverse).exp();
    }
}

impl Summary {
    fn since(&self, before: &Summary) -> Summary {
        let (min, max) = (None, None);
        let count = self.count.wrapping_sub(before.count);
        // The sum of a histogram that has none counts as zero, and one that is no number stays.
        let since = |sum: f64| sum - before.sum.unwrap_or(0.0);
        let sum = self.sum.map(|sum| if sum.is_nan() { sum } else { since(sum) });
        Summary { count, sum, min, max }
    }

    pub(crate) fn add(&mut self, other: &Summary) {
        let both = |one: Option<f64>, other: Option<f64>, join: fn(f64, f64) -> f64| {
            Some(join(one?, other?))
        };
        self.count = self.count.wrapping_add(other.count);
        self.sum = both(self.sum, other.sum, |one, other| one + other);
        self.min = both(self.min, other.min, |one, other| {
            if one.is_nan() {
                one
            } else if other.is_nan() {
                other
            } else {
                one.min(other)
            }
        });
        self.max = both(self.max, other.max, |one, other| {
            if one.is_nan() {
                one
            } else if other.is_nan() {
                other
            } else {
                one.max(other)
            }
        });
    }
}

fn power_of_two(exponent: i32) -> f64 {
    2f64.powi(exponent.clamp(-1100, 1100))
}

/// Index of the bucket that contains a value greater than zero. Buckets end with their upper bound.
fn bucket_of(value: f64, scale: i32) -> i64 {
    let exponent = value.log2();
    if exponent.fract() == 0.0 && exponent.exp2() == value {
        let power = exponent as i64;
        let shifted = if scale >= 0 {
            power.saturating_mul(1i64.checked_shl(scale.min(40) as u32).unwrap_or(i64::MAX))
        } else {
            power >> scale.unsigned_abs().min(63)
        };
        return shifted - 1;
    }
    (value.ln() * std::f64::consts::LOG2_E * power_of_two(scale)).floor() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::buckets::Buckets;

    fn histogram(scale: i32, zero_threshold: f64, offset: i32, counts: &[u64]) -> Exponential {
        let positive = Buckets { offset, counts: counts.to_vec() };
        let all = Summary { count: counts.iter().sum(), sum: Some(1.0), min: None, max: None };
        Exponential { all, scale, zero_threshold, positive, ..Exponential::default() }
    }

    fn count(it: &Exponential) -> u64 {
        it.zero_count + it.positive.counts.iter().sum::<u64>()
    }

    /// Guarantee: whatever the scales and zero buckets, no observation is lost, and the number of
    /// buckets stays bounded.
    #[test]
    fn a_sum_of_any_histograms_has_all_observations() {
        for (scale, zero, offset) in
            [(3, 0.0, 0), (0, 0.0, 40), (-2, 0.5, -9), (20, 0.0, i32::MAX - 9), (i32::MIN, 1.0, 5)]
        {
            let mut sum = histogram(5, 0.25, -30, &[1, 2, 3, 4]);
            sum.add(histogram(scale, zero, offset, &[1, 0, 5]));
            assert_eq!((count(&sum), sum.all.count, sum.all.sum), (16, 16, Some(2.0)));
            assert!(sum.positive.counts.len() <= 2 * BUCKETS_LIMIT as usize, "{sum:?}");
        }
    }

    #[test]
    fn buckets_end_with_their_upper_bound() {
        assert_eq!([1.0, 1.5, 2.0, 2.1, 0.5].map(|it| bucket_of(it, 0)), [-1, 0, 0, 1, -2]);
        assert_eq!([4.0, 5.0].map(|it| bucket_of(it, 1)), [3, 4]);
    }
}
