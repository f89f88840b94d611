//! Native histograms of remote write, with counts that are integers or floats.

use sluice_otlp::wire::{Fields, Malformed};

use crate::bytes::{all_fixed64, all_varints, double, zigzag};
use crate::custom::SCHEMA as CUSTOM;
use crate::native::{Native, Side, Span};
use crate::series::STALE;

/// Schemas of exponential buckets. Those above the highest that Prometheus stores are reserved.
const EXPONENTIAL: std::ops::RangeInclusive<i32> = -4..=52;
const HIGHEST_STORED: i32 = 8;

/// The form that a histogram has in OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Exponential,
    Explicit,
}

#[derive(Debug, Default)]
pub(super) struct Histogram {
    pub(super) is_stale: bool,
    /// In milliseconds.
    pub(super) time: i64,
    pub(super) start: i64,
    /// Without buckets if they are explicit.
    pub(super) native: Native,
    /// Upper bounds, and one count more.
    pub(super) bounds: Vec<f64>,
    pub(super) counts: Vec<u64>,
}

/// The form of an encoded histogram.
pub(super) fn form(bytes: &[u8]) -> Result<Result<Form, &'static str>, Malformed> {
    let mut schema = 0;
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next_field()? {
        if field.number == 4 {
            schema = zigzag(field.varint(bytes)) as i32;
        }
    }
    Ok(match schema {
        CUSTOM => Ok(Form::Explicit),
        schema if EXPONENTIAL.contains(&schema) => Ok(Form::Exponential),
        _ => Err("a native histogram has a schema that is not a known one"),
    })
}

/// One side of a histogram as it was sent.
#[derive(Default)]
struct Sent {
    spans: Vec<Span>,
    deltas: Vec<i64>,
    floats: Vec<f64>,
}

impl Sent {
    /// The counts of the buckets.
    fn counts(&self) -> Result<Vec<u64>, &'static str> {
        if !self.floats.is_empty() {
            return self.floats.iter().map(|count| whole(*count)).collect();
        }
        let mut count = 0_i64;
        let add = |delta: &i64| {
            count = count.wrapping_add(*delta);
            u64::try_from(count).map_err(|_| NEGATIVE)
        };
        self.deltas.iter().map(add).collect()
    }
}

const NEGATIVE: &str = "a native histogram has a negative count";
const UNEVEN: &str = "a native histogram has another count than its buckets";

/// OTLP has whole counts only.
fn whole(count: f64) -> Result<u64, &'static str> {
    if count >= 0.0 { Ok(count as u64) } else { Err(NEGATIVE) }
}

pub(super) fn read(bytes: &[u8]) -> Result<Result<Histogram, &'static str>, Malformed> {
    let mut histogram = Histogram::default();
    let (mut negative, mut positive) = (Sent::default(), Sent::default());
    let (mut count, mut zero_count) = (Ok(0), Ok(0));
    let mut is_float = false;
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next_field()? {
        let native = &mut histogram.native;
        let side = if field.number < 11 { &mut negative } else { &mut positive };
        match field.number {
            1 => count = Ok(field.varint(bytes)),
            2 => (count, is_float) = (whole(double(bytes, &field)), true),
            3 => native.sum = double(bytes, &field),
            4 => native.schema = zigzag(field.varint(bytes)) as i32,
            5 => native.zero_threshold = double(bytes, &field),
            6 => zero_count = Ok(field.varint(bytes)),
            7 => zero_count = whole(double(bytes, &field)),
            8 | 11 if field.is_message(field.number) => {
                side.spans.push(read_span(&bytes[field.content()])?);
            }
            9 | 12 => all_varints(bytes, &field, |delta| side.deltas.push(zigzag(delta))),
            10 | 13 => all_fixed64(bytes, &field, |it| side.floats.push(f64::from_bits(it))),
            15 => histogram.time = field.varint(bytes) as i64,
            16 => all_fixed64(bytes, &field, |it| histogram.bounds.push(f64::from_bits(it))),
            17 => histogram.start = field.varint(bytes) as i64,
            _ => {}
        }
    }
    histogram.is_stale = histogram.native.sum.to_bits() == STALE.to_bits();
    if histogram.is_stale {
        return Ok(Ok(histogram));
    }
    let finished = finish(histogram, (count, zero_count), &negative, &positive);
    // The sum of fractions that were cut says nothing.
    Ok(finished.and_then(|it| if is_float || it.is_even() { Ok(it) } else { Err(UNEVEN) }))
}

impl Histogram {
    /// Whether its buckets have what it counts. What is not a number is in no bucket.
    fn is_even(&self) -> bool {
        let Native { count, sum, zero_count, positive, negative, .. } = &self.native;
        let buckets = [&positive.counts, &negative.counts, &self.counts];
        let total: u128 = buckets.into_iter().flatten().map(|count| u128::from(*count)).sum();
        let total = total + u128::from(*zero_count);
        total == u128::from(*count) || sum.is_nan() && total < u128::from(*count)
    }
}

fn finish(
    mut histogram: Histogram,
    (count, zero_count): (Result<u64, &'static str>, Result<u64, &'static str>),
    negative: &Sent,
    positive: &Sent,
) -> Result<Histogram, &'static str> {
    let native = &mut histogram.native;
    (native.count, native.zero_count) = (count?, zero_count?);
    let turns_back = |side: &Sent| side.spans.iter().skip(1).any(|span| span.offset < 0);
    if turns_back(negative) || turns_back(positive) {
        return Err("a native histogram has buckets that are not in order");
    }
    if native.schema != CUSTOM {
        native.negative = Side::read(&negative.spans, negative.counts()?.into_iter())?;
        native.positive = Side::read(&positive.spans, positive.counts()?.into_iter())?;
        native.limit_schema(HIGHEST_STORED);
        return Ok(histogram);
    }
    let is_bare = native.zero_count == 0 && native.zero_threshold == 0.0;
    if !is_bare || !negative.spans.is_empty() {
        return Err("custom buckets have a zero bucket or negative ones beside them");
    }
    let bounds = &histogram.bounds;
    if bounds.iter().any(|bound| !bound.is_finite()) || !bounds.is_sorted_by(|a, b| a < b) {
        return Err("custom buckets have bounds that are not in order");
    }
    histogram.counts = vec![0; bounds.len() + 1];
    let (mut counts, mut at) = (positive.counts()?.into_iter(), 0_i64);
    for span in &positive.spans {
        at += i64::from(span.offset);
        for _ in 0..span.length {
            let Some(count) = counts.next() else {
                return Err("a histogram has not as many buckets as its spans say");
            };
            let place = usize::try_from(at).ok().and_then(|at| histogram.counts.get_mut(at));
            *place.ok_or("a custom bucket has no bound")? = count;
            at += 1;
        }
    }
    match counts.next() {
        Some(_) => Err("a histogram has not as many buckets as its spans say"),
        None => Ok(histogram),
    }
}

fn read_span(bytes: &[u8]) -> Result<Span, Malformed> {
    let mut span = Span::default();
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => span.offset = zigzag(field.varint(bytes)) as i32,
            2 => span.length = field.varint(bytes) as u32,
            _ => {}
        }
    }
    Ok(span)
}
