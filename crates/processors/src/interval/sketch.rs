//! Quantiles of a bounded memory: the values themselves, or counts of values that are close.

/// The most counts of a sketch.
const BINS: usize = 1024;
/// Ratio of the bounds of a count: the middle is within 1 % of each value.
const GAMMA: f64 = 1.02;
/// Places negative numbers below zero, and zero below positive ones: above every exponent.
const OFFSET: i32 = 40_000;
/// Values for which memory is there from the beginning.
const FIRST_VALUES: usize = 16;

/// The values of a series in a bucket.
#[derive(Clone, Debug)]
pub(super) enum Quantiles {
    /// All of them.
    Exact(Vec<f64>),
    Sketch(Sketch),
}

/// Counts of values, each within a hundredth. The lowest ones are merged if there are too many.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    /// By the logarithm of the values, lowest first.
    bins: Vec<(i32, u64)>,
    count: u64,
}

impl Quantiles {
    pub(super) fn new() -> Self {
        Quantiles::Exact(Vec::with_capacity(FIRST_VALUES))
    }

    /// The memory of a new one.
    pub(super) const fn first_bytes() -> usize {
        FIRST_VALUES * size_of::<f64>()
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Quantiles::Exact(values) => values.capacity() * size_of::<f64>(),
            Quantiles::Sketch(sketch) => sketch.bins.capacity() * size_of::<(i32, u64)>(),
        }
    }

    pub(super) fn is_exact(&self) -> bool {
        matches!(self, Quantiles::Exact(_))
    }

    /// Takes a number. `most`: values that may be kept. `room_bytes`: memory for more.
    pub(super) fn add(&mut self, value: f64, most: usize, room_bytes: usize) {
        match self {
            Quantiles::Exact(values) => {
                let is_full = values.len() == values.capacity();
                let more = values.capacity();
                if values.len() >= most || is_full && more * size_of::<f64>() > room_bytes {
                    let sketch = Sketch::of(values, value, room_bytes);
                    *self = Quantiles::Sketch(sketch);
                    return;
                }
                if is_full {
                    values.reserve_exact(more);
                }
                values.push(value);
            }
            Quantiles::Sketch(sketch) => sketch.add(value, room_bytes),
        }
    }

    /// The values of these quantiles: of `n` values the one of rank `ceil(q * n)`.
    pub(super) fn values(&self, quantiles: impl Iterator<Item = f64>) -> Vec<f64> {
        match self {
            Quantiles::Exact(values) => {
                let mut sorted = values.clone();
                sorted.sort_unstable_by(f64::total_cmp);
                let at = |quantile| sorted[rank(quantile, sorted.len() as u64) as usize - 1];
                quantiles.map(at).collect()
            }
            Quantiles::Sketch(sketch) => quantiles.map(|it| sketch.value(it)).collect(),
        }
    }
}

/// From 1 on.
fn rank(quantile: f64, count: u64) -> u64 {
    ((quantile * count as f64).ceil() as u64).clamp(1, count.max(1))
}

impl Sketch {
    /// In the memory of the values, and of the room as much as they need to stay apart.
    fn of(values: &Vec<f64>, another: f64, room_bytes: usize) -> Sketch {
        let bytes = values.capacity() * size_of::<f64>();
        let most = bytes.saturating_add(room_bytes) / size_of::<(i32, u64)>();
        let capacity = (values.len() + 1).min(most).clamp(FIRST_VALUES / 2, BINS);
        let mut sketch = Sketch { bins: Vec::with_capacity(capacity), count: 0 };
        values.iter().chain([&another]).for_each(|value| sketch.add(*value, 0));
        sketch
    }

    fn add(&mut self, value: f64, room_bytes: usize) {
        self.count += 1;
        let bin = bin_of(value);
        match self.bins.binary_search_by_key(&bin, |it| it.0) {
            Ok(index) => self.bins[index].1 += 1,
            Err(index) => {
                let more = self.bins.capacity().min(BINS - self.bins.capacity().min(BINS));
                let is_full = self.bins.len() == self.bins.capacity();
                let may_grow = more > 0 && more * size_of::<(i32, u64)>() <= room_bytes;
                if is_full && may_grow {
                    self.bins.reserve_exact(more);
                }
                if is_full && !may_grow {
                    self.insert_within(index, bin);
                } else {
                    self.bins.insert(index, (bin, 1));
                }
            }
        }
    }

    /// Makes room for another count: the two lowest ones become one.
    fn insert_within(&mut self, index: usize, bin: i32) {
        if index == 0 {
            self.bins[0].1 += 1;
            return;
        }
        if index == 1 {
            self.bins[0] = (bin, self.bins[0].1 + 1);
            return;
        }
        self.bins[1].1 += self.bins[0].1;
        self.bins.remove(0);
        self.bins.insert(index - 1, (bin, 1));
    }

    fn value(&self, quantile: f64) -> f64 {
        let mut left = rank(quantile, self.count);
        for (bin, count) in &self.bins {
            if left <= *count {
                return value_of(*bin);
            }
            left -= count;
        }
        self.bins.last().map_or(0.0, |last| value_of(last.0))
    }
}

/// Rises with the value.
fn bin_of(value: f64) -> i32 {
    if value == 0.0 {
        return 0;
    }
    let size = value.abs().clamp(f64::MIN_POSITIVE, f64::MAX);
    let bin = (size.ln() / GAMMA.ln()).ceil() as i32 + OFFSET;
    if value > 0.0 { bin } else { -bin }
}

fn value_of(bin: i32) -> f64 {
    if bin == 0 {
        return 0.0;
    }
    let exponent = f64::from(bin.abs() - OFFSET) * GAMMA.ln();
    let size = exponent.exp().min(f64::MAX) * (2.0 / (1.0 + GAMMA));
    if bin > 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: an estimate is within 1 % of the value of its rank, for numbers of any size and
    /// sign, while the counts suffice.
    #[test]
    fn a_sketch_is_close() {
        let mut values: Vec<f64> = (1..=500).map(|it| f64::from(it) * 0.37).collect();
        values.extend((1..=400).map(|it| f64::from(it) * -12.5));
        values.extend([0.0; 30]);
        let mut sketched = Quantiles::new();
        for value in &values {
            sketched.add(*value, 0, usize::MAX);
        }
        assert!(!sketched.is_exact());
        let mut exact = Quantiles::new();
        values.iter().rev().for_each(|value| exact.add(*value, usize::MAX, usize::MAX));
        assert!(exact.is_exact());
        let wanted = || (0..=100).map(|it| f64::from(it) / 100.0);
        let (near, right) = (sketched.values(wanted()), exact.values(wanted()));
        for (near, right) in near.iter().zip(&right) {
            assert!((near - right).abs() <= right.abs() * 0.0101, "{near} for {right}");
        }
    }

    /// Guarantee: without room nothing grows, no value is lost, and the greatest stay close.
    #[test]
    fn without_room_the_lowest_counts_are_merged() {
        let mut quantiles = Quantiles::new();
        let bytes = quantiles.bytes();
        for index in 0..5000_u32 {
            quantiles.add(1.1_f64.powi((index % 200) as i32), 100, 0);
        }
        assert!(quantiles.bytes() <= bytes, "{} of {bytes}", quantiles.bytes());
        let Quantiles::Sketch(sketch) = &quantiles else { panic!("is a sketch") };
        assert_eq!(sketch.bins.iter().map(|it| it.1).sum::<u64>(), 5000);
        let greatest = quantiles.values([1.0].into_iter())[0];
        assert!((greatest / 1.1_f64.powi(199) - 1.0).abs() < 0.0101, "{greatest}");
    }

    /// Guarantee: however different the values are, the counts stay within their bound.
    #[test]
    fn counts_are_bounded() {
        let mut quantiles = Quantiles::new();
        for index in -1020..=1020 {
            quantiles.add(2f64.powi(index), 0, usize::MAX);
            quantiles.add(-(2f64.powi(index)), 0, usize::MAX);
        }
        assert!(quantiles.bytes() <= BINS * size_of::<(i32, u64)>());
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE / 4.0] {
            quantiles.add(value, 0, usize::MAX);
        }
        assert!(quantiles.values([1.0].into_iter())[0] > 1e300);
    }
}
