//! The numbers of a series in a bucket, as far as statistics need them.

use super::options::{Statistic, Statistics};
use super::sketch::Quantiles;

/// A number as OTLP has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Double(f64),
}

impl Number {
    pub(super) fn as_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Double(value) => value,
        }
    }

    fn is_less(self, other: Number) -> bool {
        match (self, other) {
            (Number::Int(one), Number::Int(other)) => one < other,
            (one, other) => one.as_f64() < other.as_f64(),
        }
    }
}

/// All statistics but for quantiles, which cost memory and are kept where they are wanted.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub count: u64,
    ints: i128,
    doubles: f64,
    has_doubles: bool,
    min: Number,
    max: Number,
    /// With their times, in nanoseconds since 1970.
    first: (u64, Number),
    last: (u64, Number),
    pub quantiles: Option<Quantiles>,
}

impl Numbers {
    pub(super) fn new(statistics: &Statistics) -> Numbers {
        let zero = Number::Int(0);
        let quantiles = (!statistics.quantiles.is_empty()).then(Quantiles::new);
        Numbers {
            count: 0,
            ints: 0,
            doubles: 0.0,
            has_doubles: false,
            min: zero,
            max: zero,
            first: (0, zero),
            last: (0, zero),
            quantiles,
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.quantiles.as_ref().map_or(0, Quantiles::bytes)
    }

    /// Time of the newest number.
    pub(super) fn newest(&self) -> u64 {
        self.last.0
    }

    /// Of numbers with equal times the one that came later is the last. `most` and `room_bytes` as
    /// for [`Quantiles::add`].
    pub(super) fn add(&mut self, time: u64, number: Number, most: usize, room_bytes: usize) {
        let is_first = self.count == 0;
        self.count += 1;
        match number {
            Number::Int(value) => self.ints += i128::from(value),
            Number::Double(value) => {
                self.doubles += value;
                self.has_doubles = true;
            }
        }
        if is_first || number.is_less(self.min) {
            self.min = number;
        }
        if is_first || self.max.is_less(number) {
            self.max = number;
        }
        if is_first || time < self.first.0 {
            self.first = (time, number);
        }
        if is_first || time >= self.last.0 {
            self.last = (time, number);
        }
        if let Some(quantiles) = &mut self.quantiles {
            quantiles.add(number.as_f64(), most, room_bytes);
        }
    }

    /// An integer if all numbers are, and their sum is within 64 bits.
    fn sum(&self) -> Number {
        match i64::try_from(self.ints) {
            Ok(sum) if !self.has_doubles => Number::Int(sum),
            _ => Number::Double(self.ints as f64 + self.doubles),
        }
    }

    pub(super) fn statistic(&self, statistic: Statistic) -> Number {
        match statistic {
            Statistic::Sum => self.sum(),
            Statistic::Count => Number::Int(i64::try_from(self.count).unwrap_or(i64::MAX)),
            Statistic::Min => self.min,
            Statistic::Max => self.max,
            Statistic::Mean => Number::Double(self.sum().as_f64() / self.count as f64),
            Statistic::First => self.first.1,
            Statistic::Last => self.last.1,
        }
    }

    /// Estimates are never beyond the least and the greatest number.
    pub(super) fn quantiles(&self, wanted: impl Iterator<Item = f64>) -> Vec<f64> {
        let values = self.quantiles.as_ref().map(|it| it.values(wanted)).unwrap_or_default();
        let (min, max) = (self.min.as_f64(), self.max.as_f64());
        values.into_iter().map(|value| value.max(min).min(max)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: integers are added without loss, beyond 64 bits as a double.
    #[test]
    fn integers_stay_integers() {
        let mut numbers = Numbers::new(&Statistics::default());
        numbers.add(5, Number::Int(i64::MAX), 0, 0);
        numbers.add(4, Number::Int(-1), 0, 0);
        assert_eq!(numbers.statistic(Statistic::Sum), Number::Int(i64::MAX - 1));
        assert_eq!(numbers.statistic(Statistic::First), Number::Int(-1));
        assert_eq!(numbers.statistic(Statistic::Last), Number::Int(i64::MAX));
        numbers.add(5, Number::Int(2), 0, 0);
        assert_eq!(numbers.statistic(Statistic::Sum), Number::Double(2f64.powi(63)));
        assert_eq!(numbers.statistic(Statistic::Last), Number::Int(2));
        numbers.add(6, Number::Double(0.5), 0, 0);
        assert_eq!(numbers.statistic(Statistic::Min), Number::Int(-1));
        assert_eq!(numbers.statistic(Statistic::Count), Number::Int(4));
    }
}
