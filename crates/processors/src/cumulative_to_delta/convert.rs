//! A cumulative point without the one before it in its series: every case as in the Collector
//! 0.160, also where one would wish for another.

use super::InitialValue;
use crate::series::point::{Exponential, Histogram, Measure, Measured, Summary};
use crate::series::{Bounds, Slot, Table};

impl InitialValue {
    /// The first point of a series, with the start time that it gets; nothing if it is dropped.
    pub(super) fn first(self, point: &Measured, started: u64) -> Option<Measured> {
        let start = match self {
            InitialValue::Auto if point.start < started || point.time == point.start => {
                return None;
            }
            InitialValue::Auto => point.start,
            InitialValue::Keep => 0,
            InitialValue::Drop => return None,
        };
        Some(Measured { start, value: without_extremes(&point.value), ..*point })
    }
}

/// The difference to the point before, of which the memory then has this one. Nothing if there is
/// none, as after a reset.
pub(super) fn convert(
    table: &mut Table,
    key: u128,
    mut point: Measured,
    initial: InitialValue,
    bounds: Bounds,
) -> Option<Measured> {
    let started = table.started;
    let (flags, time) = (point.flags, point.time);
    let Some(before) = table.get(key).map(|slot| &slot.state) else {
        let first = initial.first(&point, started);
        let has_room = table.put(key, Slot { seen: time, state: point }, bounds);
        return first.filter(|_| has_room);
    };
    let start = before.time;
    let delta = match (&before.value, &mut point.value) {
        (Measure::Double(before), Measure::Double(now)) => {
            Ok((*now >= *before).then_some(Measure::Double(*now - *before)))
        }
        (Measure::Int(before), Measure::Int(now)) => {
            Ok((*now >= *before).then(|| Measure::Int(now.wrapping_sub(*before))))
        }
        // A point without a value has the integer 0.
        (Measure::Empty, Measure::Empty) => Ok(Some(Measure::Int(0))),
        (Measure::Histogram(before), Measure::Histogram(now)) => histogram(before, now),
        (Measure::Exponential(before), Measure::Exponential(now)) => exponential(before, now),
        _ => Ok(None),
    };
    match delta {
        Ok(delta) => {
            let has_room = table.put(key, Slot { seen: time, state: point }, bounds);
            let value = delta.filter(|_| has_room)?;
            Some(Measured { start, time, flags, value })
        }
        Err(None) => None,
        Err(Some(before)) => {
            // The series stays where it was, brought to the scale of the point that was refused.
            let mut slot = table.get(key)?.clone();
            slot.state.value = before;
            table.put(key, slot, bounds);
            None
        }
    }
}

/// The difference, or what the memory keeps of the point before in place of this one.
type Difference = Result<Option<Measure>, Option<Measure>>;

fn histogram(before: &Histogram, now: &mut Histogram) -> Difference {
    // A sum that is no number is passed on, and the one before is kept.
    let given = now.all.sum;
    if given.is_some_and(f64::is_nan) {
        now.all.sum = Some(before.all.sum.unwrap_or(0.0));
    }
    if now.counts.len() != before.counts.len() || now.bounds != before.bounds {
        return Ok(None);
    }
    let pairs = || now.counts.iter().zip(&before.counts);
    if now.all.count < before.all.count || pairs().any(|(now, before)| now < before) {
        return Err(None);
    }
    let sum = given.map(|sum| sum - before.all.sum.unwrap_or(0.0));
    let all = Summary { count: now.all.count - before.all.count, sum, min: None, max: None };
    let counts = pairs().map(|(now, before)| now - before).collect();
    Ok(Some(Measure::Histogram(Box::new(Histogram { all, counts, bounds: now.bounds.clone() }))))
}

fn exponential(before: &Exponential, now: &Exponential) -> Difference {
    let mut brought = before.clone();
    match now.since(&mut brought) {
        Some(delta) => Ok(Some(Measure::Exponential(Box::new(delta)))),
        None if brought == *before => Err(None),
        None => Err(Some(Measure::Exponential(Box::new(brought)))),
    }
}

/// The least and the greatest value since the start are not those since the point before.
fn without_extremes(value: &Measure) -> Measure {
    let mut value = value.clone();
    match &mut value {
        Measure::Histogram(own) => (own.all.min, own.all.max) = (None, None),
        Measure::Exponential(own) => (own.all.min, own.all.max) = (None, None),
        Measure::Empty => value = Measure::Int(0),
        Measure::Int(_) | Measure::Double(_) => {}
    }
    value
}
