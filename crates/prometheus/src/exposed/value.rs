//! The last point of a series, and how one that tells a change adds to the one before.

use std::mem::{discriminant, size_of};
use std::time::Duration;

use sluice_otlp::Malformed;
use sluice_otlp::wire::{Fields, LEN};

use crate::bytes::{double, fixed64};
use crate::point::{Buckets, Exponential, Point, Shape};

/// Merged buckets of a side are made coarser beyond this number.
const BUCKETS_LIMIT: i64 = 8192;
/// Exemplars of a native histogram that are kept: the last ones.
const NATIVE_EXEMPLARS: usize = 16;

/// The last point of a series.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    /// The time at which it came.
    pub(super) updated: Duration,
    pub(super) start_ns: u64,
    pub(super) time_ns: u64,
    pub(super) value: Value,
    pub(super) exemplars: Vec<Exemplar>,
    /// The length of its labels as text, and what all of it takes of the limit.
    pub(super) labels_bytes: usize,
    pub(super) cost_bytes: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(f64),
    Classic(Classic),
    Native(Box<Native>),
    Summary(Summary),
}

/// A histogram with explicit bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Classic {
    pub(super) count: u64,
    pub(super) sum: f64,
    /// Upper bounds in order, without `+Inf`, with the counts of their buckets.
    pub(super) buckets: Vec<(f64, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Native {
    pub(super) count: u64,
    pub(super) sum: Option<f64>,
    pub(super) buckets: Exponential,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) sum: f64,
    /// Quantiles in order, with their values.
    pub(super) quantiles: Vec<(f64, f64)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Exemplar {
    /// The index of its bucket.
    pub(super) bucket: usize,
    pub(super) value: f64,
    pub(super) time_ns: u64,
    pub(super) trace_id: Option<[u8; 16]>,
    pub(super) span_id: Option<[u8; 8]>,
}

/// The fate of a point beside the one before.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Take(Series),
    /// It is older than the one that is there.
    Older,
    /// It tells a change of a time that is counted already.
    Misaligned,
}

impl Series {
    pub(super) fn of(
        shape: Shape,
        point: &Point<'_>,
        updated: Duration,
    ) -> Result<Series, Malformed> {
        let value = match shape {
            Shape::Gauge | Shape::Sum => Value::Number(point.value),
            Shape::Histogram => Value::Classic(Classic::of(point)),
            Shape::Exponential => Value::Native(Box::new(Native {
                count: point.count,
                sum: point.sum,
                buckets: point.exponential.clone(),
            })),
            Shape::Summary => Value::Summary(Summary::of(point)),
        };
        let mut exemplars = Vec::new();
        for encoded in &point.exemplars {
            keep(&mut exemplars, &value, Exemplar::read(encoded)?);
        }
        if shape == Shape::Gauge {
            exemplars.clear();
        }
        let (start_ns, time_ns) = (point.start_ns, point.time_ns);
        let (labels_bytes, cost_bytes) = (0, 0);
        Ok(Series { updated, start_ns, time_ns, value, exemplars, labels_bytes, cost_bytes })
    }

    /// The series after this point, which tells a change if `is_delta`.
    pub(super) fn after(mut self, before: Option<&Series>, is_delta: bool) -> Next {
        let Some(before) = before else { return Next::Take(self) };
        let is_same_kind = discriminant(&self.value) == discriminant(&before.value);
        let continues = is_delta && self.start_ns == before.time_ns;
        let is_older = self.time_ns < before.time_ns;
        let is_histogram = matches!(self.value, Value::Classic(_) | Value::Native(_));
        if !is_same_kind {
            return Next::Take(self);
        }
        if is_delta && is_histogram && (self.start_ns < before.time_ns || continues && is_older) {
            return Next::Misaligned;
        }
        if is_older {
            return Next::Older;
        }
        let added = continues && self.value.add(&before.value).is_some();
        if added {
            self.start_ns = before.start_ns;
        }
        Next::Take(self)
    }

    /// Lines on a page of text.
    pub(super) fn lines(&self) -> usize {
        match &self.value {
            Value::Number(_) => 1,
            Value::Classic(classic) => classic.buckets.len() + 3,
            Value::Native(_) => 3,
            Value::Summary(summary) => summary.quantiles.len() + 2,
        }
    }

    /// Buckets that only protobuf has.
    pub(super) fn native_buckets(&self) -> usize {
        let Value::Native(native) = &self.value else { return 0 };
        native.buckets.positive.counts.len() + native.buckets.negative.counts.len()
    }

    /// Bytes in memory, without its labels.
    pub(super) fn memory_bytes(&self) -> usize {
        let value = match &self.value {
            Value::Number(_) => 0,
            Value::Classic(classic) => classic.buckets.capacity() * size_of::<(f64, u64)>(),
            Value::Native(native) => {
                let Exponential { positive, negative, .. } = &native.buckets;
                let counts = positive.counts.capacity() + negative.counts.capacity();
                size_of::<Native>() + counts * size_of::<u64>()
            }
            Value::Summary(summary) => summary.quantiles.capacity() * size_of::<(f64, f64)>(),
        };
        size_of::<Series>() + value + self.exemplars.capacity() * size_of::<Exemplar>()
    }
}

impl Value {
    /// Adds the one before. `None`: they do not fit, and this one starts anew.
    fn add(&mut self, before: &Value) -> Option<()> {
        match (self, before) {
            (Value::Number(own), Value::Number(before)) => *own += before,
            (Value::Classic(own), Value::Classic(before)) => own.add(before),
            (Value::Native(own), Value::Native(before)) => {
                own.buckets.add(&before.buckets)?;
                own.count = own.count.saturating_add(before.count);
                own.sum = own.sum.zip(before.sum).map(|(own, before)| own + before);
            }
            _ => return None,
        }
        Some(())
    }
}

impl Classic {
    fn of(point: &Point<'_>) -> Classic {
        let counts = point.counts.iter().copied().chain(std::iter::repeat(0));
        let mut buckets: Vec<(f64, u64)> = point.bounds.iter().copied().zip(counts).collect();
        buckets.retain(|(bound, _)| *bound < f64::INFINITY);
        // Stable: of equal bounds the first one counts, as in the Collector.
        buckets.sort_by(|left, right| left.0.total_cmp(&right.0));
        buckets.dedup_by(|next, before| next.0 == before.0);
        Classic { count: point.count, sum: point.sum.unwrap_or_default(), buckets }
    }

    /// With other bounds than before, the new values stand alone, as in the Collector.
    fn add(&mut self, before: &Classic) {
        let bounds = |it: &Classic| it.buckets.iter().map(|(bound, _)| *bound).collect::<Vec<_>>();
        if bounds(self) != bounds(before) {
            return;
        }
        self.count = self.count.saturating_add(before.count);
        self.sum += before.sum;
        for ((_, own), (_, before)) in self.buckets.iter_mut().zip(&before.buckets) {
            *own = own.saturating_add(*before);
        }
    }
}

impl Summary {
    fn of(point: &Point<'_>) -> Summary {
        let mut quantiles = point.quantiles.clone();
        // Of equal ones the last one counts.
        quantiles.reverse();
        quantiles.sort_by(|left, right| left.0.total_cmp(&right.0));
        quantiles.dedup_by(|next, before| next.0 == before.0);
        Summary { count: point.count, sum: point.sum.unwrap_or_default(), quantiles }
    }
}

impl Exponential {
    /// `None`: the buckets are too far apart for a native histogram.
    fn add(&mut self, before: &Exponential) -> Option<()> {
        let mut scale = self.scale.min(before.scale);
        let width = |scale| {
            let of = |own: &Buckets, other: &Buckets| {
                let own = own.range((self.scale - scale) as u32);
                let other = other.range((before.scale - scale) as u32);
                match (own, other) {
                    (Some(own), Some(other)) => own.1.max(other.1) - own.0.min(other.0) + 1,
                    (own, other) => own.or(other).map_or(0, |(first, last)| last - first + 1),
                }
            };
            of(&self.positive, &before.positive).max(of(&self.negative, &before.negative))
        };
        while width(scale) > BUCKETS_LIMIT {
            scale -= 1;
            if scale < *crate::exponential::SCALES.start() {
                return None;
            }
        }
        let threshold = self.zero_threshold.max(before.zero_threshold);
        let mut merged = Exponential { scale, zero_threshold: threshold, ..Self::default() };
        for part in [before, &*self] {
            merged.zero_count = merged.zero_count.saturating_add(part.zero_count);
            let shift = (part.scale - scale) as u32;
            let limit = Some(threshold).filter(|limit| *limit > part.zero_threshold);
            for (own, other) in
                [(&mut merged.positive, &part.positive), (&mut merged.negative, &part.negative)]
            {
                let into_zero = own.add(other, shift, |number| {
                    limit.is_some_and(|limit| upper_bound(scale, number) <= limit)
                })?;
                merged.zero_count = merged.zero_count.saturating_add(into_zero);
            }
        }
        *self = merged;
        Some(())
    }
}

/// The upper bound of a bucket.
fn upper_bound(scale: i32, number: i64) -> f64 {
    ((number + 1) as f64 * f64::from(-scale).exp2()).exp2()
}

impl Buckets {
    /// The numbers of its first and last bucket, where 2 to the power of `shift` become one.
    fn range(&self, shift: u32) -> Option<(i64, i64)> {
        let last = self.counts.len().checked_sub(1)? as i64;
        let (first, shift) = (i64::from(self.offset), shift.min(63));
        Some((first >> shift, (first + last) >> shift))
    }

    /// Adds buckets of a resolution that is higher by `shift`. Returns the counts of those that are
    /// zero by now.
    fn add(&mut self, other: &Buckets, shift: u32, is_zero: impl Fn(i64) -> bool) -> Option<u64> {
        let Some((first, last)) = other.range(shift) else { return Some(0) };
        let (from, to) =
            self.range(0).map_or((first, last), |own| (own.0.min(first), own.1.max(last)));
        let front = self.range(0).map_or(0, |own| own.0 - from) as usize;
        self.counts.splice(..0, std::iter::repeat_n(0, front));
        self.counts.resize((to - from + 1) as usize, 0);
        self.offset = i32::try_from(from).ok()?;
        let mut into_zero = 0_u64;
        for (index, count) in other.counts.iter().enumerate() {
            let number = (i64::from(other.offset) + index as i64) >> shift.min(63);
            let place = match is_zero(number) {
                true => &mut into_zero,
                false => &mut self.counts[(number - from) as usize],
            };
            *place = place.saturating_add(*count);
        }
        Some(into_zero)
    }
}

/// Of each bucket the last exemplar stays, and of a counter the last of all.
fn keep(exemplars: &mut Vec<Exemplar>, value: &Value, mut new: Exemplar) {
    match value {
        Value::Number(_) => exemplars.clear(),
        Value::Classic(classic) => {
            new.bucket = classic.buckets.partition_point(|(bound, _)| *bound < new.value);
            exemplars.retain(|other| other.bucket != new.bucket);
        }
        Value::Native(_) if exemplars.len() == NATIVE_EXEMPLARS => drop(exemplars.remove(0)),
        Value::Native(_) => {}
        Value::Summary(_) => return,
    }
    let place = exemplars.partition_point(|other| other.bucket <= new.bucket);
    exemplars.insert(place, new);
}

impl Exemplar {
    fn read(encoded: &[u8]) -> Result<Exemplar, Malformed> {
        let mut exemplar = Exemplar::default();
        let mut fields = Fields::of(encoded);
        while let Some(field) = fields.next_field()? {
            let content = &encoded[field.content()];
            match (field.number, field.wire_type) {
                (2, _) => exemplar.time_ns = fixed64(encoded, &field),
                (3, _) => exemplar.value = double(encoded, &field),
                (6, _) => exemplar.value = fixed64(encoded, &field) as i64 as f64,
                (4, LEN) => exemplar.span_id = id(content),
                (5, LEN) => exemplar.trace_id = id(content),
                _ => {}
            }
        }
        Ok(exemplar)
    }

    /// Its labels, as the Collector has them.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&'static str, String)> {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let span = self.span_id.map(|id| ("span_id", hex(&id)));
        span.into_iter().chain(self.trace_id.map(|id| ("trace_id", hex(&id))))
    }
}

fn id<const N: usize>(content: &[u8]) -> Option<[u8; N]> {
    content.try_into().ok().filter(|id: &[u8; N]| id.iter().any(|byte| *byte != 0))
}
