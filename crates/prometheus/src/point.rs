//! The fields of a metric and of a data point, read in place.

use sluice_otlp::wire::{Field, Fields, LEN, Malformed, VARINT};

use crate::bytes::{all_fixed64, all_varints, double, fixed64, zigzag};
use crate::labels::{ATTRIBUTES_LIMIT, Attribute};

/// The kinds of metrics that OTLP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Gauge,
    Sum,
    Histogram,
    Exponential,
    Summary,
}

impl Shape {
    /// The kind whose data is in this field of a metric.
    pub(crate) fn of_field(number: u32) -> Option<Shape> {
        Some(match number {
            5 => Shape::Gauge,
            7 => Shape::Sum,
            9 => Shape::Histogram,
            10 => Shape::Exponential,
            11 => Shape::Summary,
            _ => return None,
        })
    }

    pub(crate) fn attributes_field(self) -> u32 {
        match self {
            Shape::Gauge | Shape::Sum | Shape::Summary => 7,
            Shape::Histogram => 9,
            Shape::Exponential => 1,
        }
    }

    pub(crate) fn exemplars_field(self) -> u32 {
        match self {
            Shape::Gauge | Shape::Sum => 5,
            Shape::Histogram => 8,
            Shape::Exponential => 11,
            // None has this number.
            Shape::Summary => 0,
        }
    }

    fn flags_field(self) -> u32 {
        match self {
            Shape::Gauge | Shape::Sum | Shape::Summary => 8,
            Shape::Histogram | Shape::Exponential => 10,
        }
    }
}

/// The buckets of one side of an exponential histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buckets {
    pub(crate) offset: i32,
    pub(crate) counts: Vec<u64>,
}

impl Buckets {
    fn clear(&mut self) {
        self.offset = 0;
        self.counts.clear();
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 if field.wire_type == VARINT => self.offset = zigzag(field.varint(bytes)) as i32,
                2 => all_varints(bytes, &field, |count| self.counts.push(count)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The fields that only points of exponential histograms have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exponential {
    pub(crate) scale: i32,
    pub(crate) zero_count: u64,
    pub(crate) zero_threshold: f64,
    pub(crate) positive: Buckets,
    pub(crate) negative: Buckets,
}

impl Exponential {
    fn read(&mut self, bytes: &[u8], field: &Field) -> Result<(), Malformed> {
        match field.number {
            6 => self.scale = zigzag(field.varint(bytes)) as i32,
            7 => self.zero_count = fixed64(bytes, field),
            8 if field.wire_type == LEN => self.positive.read(&bytes[field.content()])?,
            9 if field.wire_type == LEN => self.negative.read(&bytes[field.content()])?,
            14 => self.zero_threshold = double(bytes, field),
            _ => {}
        }
        Ok(())
    }
}

/// A data point. Its lists are used again for the next one.
#[derive(Default)]
pub(crate) struct Point<'a> {
    pub(crate) attributes: Vec<Attribute<'a>>,
    /// It has more attributes than series may have labels.
    pub(crate) has_too_many: bool,
    /// Encoded.
    pub(crate) exemplars: Vec<&'a [u8]>,
    pub(crate) start_ns: u64,
    pub(crate) time_ns: u64,
    /// It says that the series has ended.
    pub(crate) is_stale: bool,
    pub(crate) value: f64,
    pub(crate) count: u64,
    pub(crate) sum: Option<f64>,
    pub(crate) counts: Vec<u64>,
    pub(crate) bounds: Vec<f64>,
    /// Quantiles with their values.
    pub(crate) quantiles: Vec<(f64, f64)>,
    pub(crate) exponential: Exponential,
}

impl<'a> Point<'a> {
    fn clear(&mut self) {
        self.attributes.clear();
        self.exemplars.clear();
        self.counts.clear();
        self.bounds.clear();
        self.quantiles.clear();
        let Exponential { scale, zero_count, zero_threshold, positive, negative } =
            &mut self.exponential;
        (*scale, *zero_count, *zero_threshold) = (0, 0, 0.0);
        positive.clear();
        negative.clear();
        (self.start_ns, self.time_ns, self.value) = (0, 0, 0.0);
        (self.is_stale, self.has_too_many) = (false, false);
        (self.count, self.sum) = (0, None);
    }

    /// Reads a point of this kind of metric.
    pub(crate) fn read(&mut self, shape: Shape, bytes: &'a [u8]) -> Result<(), Malformed> {
        self.clear();
        let (attributes, exemplars) = (shape.attributes_field(), shape.exemplars_field());
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next_field()? {
            if field.is_message(attributes) {
                if self.attributes.len() == ATTRIBUTES_LIMIT {
                    self.has_too_many = true;
                    continue;
                }
                self.attributes.push(Attribute::read(&bytes[field.content()])?);
            } else if field.is_message(exemplars) {
                self.exemplars.push(&bytes[field.content()]);
            } else if field.number == shape.flags_field() {
                self.is_stale = field.varint(bytes) & 1 == 1;
            } else {
                match field.number {
                    2 => self.start_ns = fixed64(bytes, &field),
                    3 => self.time_ns = fixed64(bytes, &field),
                    _ => self.read_value(shape, bytes, &field)?,
                }
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
            (Shape::Gauge | Shape::Sum, 4) => self.value = double(bytes, field),
            (Shape::Gauge | Shape::Sum, 6) => self.value = fixed64(bytes, field) as i64 as f64,
            (Shape::Gauge | Shape::Sum, _) => {}
            (_, 4) => self.count = fixed64(bytes, field),
            (_, 5) => self.sum = Some(double(bytes, field)),
            (Shape::Histogram, 6) => all_fixed64(bytes, field, |count| self.counts.push(count)),
            (Shape::Histogram, 7) => {
                all_fixed64(bytes, field, |bound| self.bounds.push(f64::from_bits(bound)));
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
            (Shape::Exponential, _) => self.exponential.read(bytes, field)?,
            _ => {}
        }
        Ok(())
    }
}

/// A metric. Its data may stand in several fields, which protobuf merges.
#[derive(Default)]
pub(crate) struct Metric<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) help: &'a [u8],
    pub(crate) unit: &'a [u8],
    pub(crate) shape: Option<Shape>,
    /// Encoded.
    pub(crate) data: Vec<&'a [u8]>,
    pub(crate) is_monotonic: bool,
    pub(crate) is_cumulative: bool,
    pub(crate) is_delta: bool,
    /// `prometheus.type`: the type that a scrape or a remote write told.
    pub(crate) told_type: Vec<u8>,
}

/// The numbers of `AGGREGATION_TEMPORALITY_DELTA` and `…_CUMULATIVE`.
const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;

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
                2 => metric.help = content,
                3 => metric.unit = content,
                12 => {
                    let attribute = Attribute::read(content)?;
                    if attribute.key == b"prometheus.type" {
                        metric.told_type = attribute.value.into_owned();
                    }
                }
                number => {
                    let Some(shape) = Shape::of_field(number) else { continue };
                    // Of several kinds, the last one counts.
                    if metric.shape != Some(shape) {
                        metric.data.clear();
                    }
                    metric.shape = Some(shape);
                    metric.data.push(content);
                }
            }
        }
        metric.read_aggregation()?;
        Ok(metric)
    }

    fn read_aggregation(&mut self) -> Result<(), Malformed> {
        let Some(shape) = self.shape else { return Ok(()) };
        if matches!(shape, Shape::Gauge | Shape::Summary) {
            self.is_cumulative = true;
            return Ok(());
        }
        for data in &self.data {
            let mut fields = Fields::of(data);
            while let Some(field) = fields.next_field()? {
                match (field.number, field.wire_type) {
                    (2, VARINT) => {
                        let temporality = field.varint(data);
                        self.is_cumulative = temporality == CUMULATIVE;
                        self.is_delta = temporality == DELTA;
                    }
                    (3, VARINT) if shape == Shape::Sum => {
                        self.is_monotonic = field.varint(data) != 0;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
