//! Metrics and data points, read in place.

use std::borrow::Cow;

use sluice_otlp::text::text_of;
use sluice_otlp::wire::{FIXED64, Field, Fields, LEN, Malformed, VARINT};
use sluice_otlp::{AnyValue, Value};

use crate::metadata::{FIELD, STRINGS, TYPE, VALUE};

/// The field of a metric's data that is a gauge.
const GAUGE: u32 = 5;

/// `AGGREGATION_TEMPORALITY_DELTA`
const DELTA: u64 = 1;

/// The kinds of metrics that OTLP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Number,
    Histogram,
    Exponential,
    Summary,
}

impl Shape {
    fn of_field(number: u32) -> Option<Shape> {
        Some(match number {
            5 | 7 => Shape::Number,
            9 => Shape::Histogram,
            10 => Shape::Exponential,
            11 => Shape::Summary,
            _ => return None,
        })
    }

    fn attributes_field(self) -> u32 {
        match self {
            Shape::Number | Shape::Summary => 7,
            Shape::Histogram => 9,
            Shape::Exponential => 1,
        }
    }

    fn flags_field(self) -> u32 {
        match self {
            Shape::Number | Shape::Summary => 8,
            Shape::Histogram | Shape::Exponential => 10,
        }
    }
}

/// An attribute, with its value as text.
#[derive(Clone, Debug)]
pub(crate) struct Attribute<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: Cow<'a, str>,
}

impl<'a> Attribute<'a> {
    /// Reads a `KeyValue`.
    pub(crate) fn read(encoded: &'a [u8]) -> Result<Attribute<'a>, Malformed> {
        let (key, value) = key_value(encoded)?;
        Ok(Attribute { key, value: text_of(Value::read(value)) })
    }
}

/// The key and the encoded value of a `KeyValue`.
fn key_value(encoded: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut key, mut value) = (&[][..], &[][..]);
    let mut fields = Fields::of(encoded);
    while let Some(field) = fields.next_field()? {
        match (field.number, field.wire_type) {
            (1, LEN) => key = &encoded[field.content()],
            (2, LEN) => value = &encoded[field.content()],
            _ => {}
        }
    }
    Ok((key, value))
}

/// A metric. Its data may stand in several fields, which protobuf merges.
#[derive(Default)]
pub(crate) struct Metric<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) shape: Option<Shape>,
    is_gauge: bool,
    /// Encoded.
    pub(crate) data: Vec<&'a [u8]>,
    /// `influxdb.field`
    field: Option<Cow<'a, str>>,
    /// `influxdb.type`
    pub(crate) told: Cow<'a, str>,
    /// `influxdb.strings`
    pub(crate) strings: Vec<String>,
}

impl<'a> Metric<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Metric<'a>, Malformed> {
        let mut metric = Metric::default();
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next_field()? {
            if field.wire_type != LEN {
                continue;
            }
            let content = &bytes[field.content()];
            match field.number {
                1 => metric.name = content,
                12 => metric.read_metadata(content)?,
                number => {
                    let Some(shape) = Shape::of_field(number) else { continue };
                    // Of several kinds, the last one counts.
                    if metric.shape != Some(shape) || metric.is_gauge != (number == GAUGE) {
                        metric.data.clear();
                    }
                    (metric.shape, metric.is_gauge) = (Some(shape), number == GAUGE);
                    metric.data.push(content);
                }
            }
        }
        Ok(metric)
    }

    /// Each of its points counts what came since the one before.
    pub(crate) fn is_delta(&self) -> Result<bool, Malformed> {
        let mut temporality = 0;
        if self.is_gauge || self.shape == Some(Shape::Summary) {
            return Ok(false);
        }
        for data in &self.data {
            let mut fields = Fields::of(data);
            while let Some(field) = fields.next_field()? {
                if field.number == 2 {
                    temporality = field.varint(data);
                }
            }
        }
        Ok(temporality == DELTA)
    }

    fn read_metadata(&mut self, encoded: &'a [u8]) -> Result<(), Malformed> {
        let (key, value) = key_value(encoded)?;
        match std::str::from_utf8(key) {
            Ok(FIELD) => self.field = Some(text_of(Value::read(value))),
            Ok(TYPE) => self.told = text_of(Value::read(value)),
            Ok(STRINGS) => {
                if let AnyValue::Array(values) = AnyValue::decode(value)? {
                    self.strings = values
                        .into_iter()
                        .filter_map(|value| match value {
                            AnyValue::String(text) => Some(text),
                            _ => None,
                        })
                        .collect();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Measurement and field. A metric that was renamed is a measurement.
    pub(crate) fn names(&self) -> (&'a [u8], &[u8]) {
        let Some(field) = &self.field else { return (self.name, VALUE.as_bytes()) };
        let field = field.as_bytes();
        let stem = self.name.strip_suffix(field).and_then(|stem| stem.strip_suffix(b"_"));
        (stem.unwrap_or(self.name), field)
    }
}

/// The value of a data point that is a number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Number {
    #[default]
    None,
    Double(f64),
    Int(i64),
}

/// A data point. Its lists are used again for the next one.
#[derive(Default)]
pub(crate) struct Point<'a> {
    pub(crate) attributes: Vec<Attribute<'a>>,
    /// Nanoseconds since 1970, if it has a time.
    pub(crate) time_ns: Option<u64>,
    /// The place of the time in the encoded point, if it can be written over.
    pub(crate) time_at: Option<usize>,
    /// It says that there is no value.
    pub(crate) is_stale: bool,
    pub(crate) number: Number,
    pub(crate) count: u64,
    pub(crate) sum: Option<f64>,
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) counts: Vec<u64>,
    pub(crate) bounds: Vec<f64>,
    /// Quantiles with their values.
    pub(crate) quantiles: Vec<(f64, f64)>,
}

fn eight(bytes: &[u8], field: &Field) -> u64 {
    match field.wire_type {
        FIXED64 => bytes[field.content()].try_into().map_or(0, u64::from_le_bytes),
        _ => 0,
    }
}

fn double(bytes: &[u8], field: &Field) -> f64 {
    f64::from_bits(eight(bytes, field))
}

/// Numbers of eight bytes, packed or not.
fn all_eight(bytes: &[u8], field: &Field, mut each: impl FnMut(u64)) {
    match field.wire_type {
        FIXED64 => each(eight(bytes, field)),
        LEN => {
            let numbers = bytes[field.content()].chunks_exact(8);
            numbers
                .filter_map(|eight| eight.try_into().ok().map(u64::from_le_bytes))
                .for_each(each);
        }
        _ => {}
    }
}

impl<'a> Point<'a> {
    fn clear(&mut self) {
        self.attributes.clear();
        self.counts.clear();
        self.bounds.clear();
        self.quantiles.clear();
        (self.time_ns, self.time_at, self.is_stale) = (None, None, false);
        self.number = Number::None;
        (self.count, self.sum, self.min, self.max) = (0, None, None, None);
    }

    /// Reads a point of this kind of metric.
    pub(crate) fn read(&mut self, shape: Shape, bytes: &'a [u8]) -> Result<(), Malformed> {
        self.clear();
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next_field()? {
            if field.is_message(shape.attributes_field()) {
                self.attributes.push(Attribute::read(&bytes[field.content()])?);
            } else if field.number == shape.flags_field() && field.wire_type == VARINT {
                self.is_stale = field.varint(bytes) & 1 == 1;
            } else if field.number == 3 {
                self.time_ns = Some(eight(bytes, &field));
                self.time_at = (field.wire_type == FIXED64).then(|| field.content().start);
            } else {
                self.read_value(shape, bytes, &field)?;
            }
        }
        Ok(())
    }

    fn read_value(
        &mut self,
        shape: Shape,
        bytes: &'a [u8],
        field: &Field,
    ) -> Result<(), Malformed> {
        match (shape, field.number) {
            (Shape::Number, 4) => self.number = Number::Double(double(bytes, field)),
            (Shape::Number, 6) => self.number = Number::Int(eight(bytes, field) as i64),
            (Shape::Number, _) => {}
            (_, 4) => self.count = eight(bytes, field),
            (_, 5) => self.sum = Some(double(bytes, field)),
            (Shape::Histogram, 6) => all_eight(bytes, field, |count| self.counts.push(count)),
            (Shape::Histogram, 7) => {
                all_eight(bytes, field, |bound| self.bounds.push(f64::from_bits(bound)));
            }
            (Shape::Histogram, 11) | (Shape::Exponential, 12) => {
                self.min = Some(double(bytes, field));
            }
            (Shape::Histogram, 12) | (Shape::Exponential, 13) => {
                self.max = Some(double(bytes, field));
            }
            (Shape::Summary, 6) if field.wire_type == LEN => {
                let (inner, mut pair) = (&bytes[field.content()], (0.0, 0.0));
                let mut fields = Fields::of(inner);
                while let Some(field) = fields.next_field()? {
                    match field.number {
                        1 => pair.0 = double(inner, &field),
                        2 => pair.1 = double(inner, &field),
                        _ => {}
                    }
                }
                self.quantiles.push(pair);
            }
            _ => {}
        }
        Ok(())
    }
}
