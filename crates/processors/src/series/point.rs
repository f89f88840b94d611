//! Points as they are read from the wire, and written again.

use sluice_otlp::PointKind;
use sluice_otlp::wire::{
    FIXED64, Field, Fields, LEN, Malformed, VARINT, read_varint, write_len_field, write_varint,
};

use super::buckets::Buckets;

/// The flag of a point without a value, which ends a series in Prometheus.
const NO_RECORDED_VALUE: u32 = 1;

/// A point without its attributes and exemplars. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub start: u64,
    pub time: u64,
    pub flags: u32,
    pub value: Measure,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Measure {
    /// A point of a sum without a value.
    Empty,
    Int(i64),
    Double(f64),
    Histogram(Box<Histogram>),
    Exponential(Box<Exponential>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub count: u64,
    pub sum: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    pub all: Summary,
    pub bounds: Vec<f64>,
    pub counts: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exponential {
    pub all: Summary,
    pub scale: i32,
    pub zero_count: u64,
    pub zero_threshold: f64,
    pub positive: Buckets,
    pub negative: Buckets,
}

impl Measure {
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Measure::Empty | Measure::Int(_) | Measure::Double(_) => 0,
            Measure::Histogram(own) => {
                size_of::<Histogram>() + 8 * (own.bounds.capacity() + own.counts.capacity())
            }
            Measure::Exponential(own) => {
                let buckets = own.positive.counts.capacity() + own.negative.counts.capacity();
                size_of::<Exponential>() + 8 * buckets
            }
        }
    }
}

impl Measured {
    pub(crate) fn has_no_value(&self) -> bool {
        self.flags & NO_RECORDED_VALUE != 0
    }

    pub(crate) fn read(kind: PointKind, content: &[u8]) -> Result<Measured, Malformed> {
        let value = match kind {
            PointKind::Sum => Measure::Empty,
            PointKind::Histogram => Measure::Histogram(Box::default()),
            PointKind::Exponential => Measure::Exponential(Box::default()),
        };
        let mut point = Measured { start: 0, time: 0, flags: 0, value };
        let mut fields = Fields::of(content);
        while let Some(field) = fields.next_field()? {
            match (field.number, field.wire_type) {
                (2, FIXED64) => point.start = fixed64(content, &field),
                (3, FIXED64) => point.time = fixed64(content, &field),
                _ => point.field(content, &field)?,
            }
        }
        Ok(point)
    }

    fn field(&mut self, content: &[u8], field: &Field) -> Result<(), Malformed> {
        match &mut self.value {
            Measure::Histogram(own) => match (field.number, field.wire_type) {
                (4, FIXED64) => own.all.count = fixed64(content, field),
                (5, FIXED64) => own.all.sum = Some(double(content, field)),
                (6, FIXED64 | LEN) => own.counts.extend(fixed64s(content, field)),
                (7, FIXED64 | LEN) => {
                    own.bounds.extend(fixed64s(content, field).map(f64::from_bits));
                }
                (10, VARINT) => self.flags = field.varint(content) as u32,
                (11, FIXED64) => own.all.min = Some(double(content, field)),
                (12, FIXED64) => own.all.max = Some(double(content, field)),
                _ => {}
            },
            Measure::Exponential(own) => match (field.number, field.wire_type) {
                (4, FIXED64) => own.all.count = fixed64(content, field),
                (5, FIXED64) => own.all.sum = Some(double(content, field)),
                (6, VARINT) => own.scale = zigzag(field.varint(content)),
                (7, FIXED64) => own.zero_count = fixed64(content, field),
                (8, LEN) => read_buckets(&content[field.content()], &mut own.positive)?,
                (9, LEN) => read_buckets(&content[field.content()], &mut own.negative)?,
                (10, VARINT) => self.flags = field.varint(content) as u32,
                (12, FIXED64) => own.all.min = Some(double(content, field)),
                (13, FIXED64) => own.all.max = Some(double(content, field)),
                (14, FIXED64) => own.zero_threshold = double(content, field),
                _ => {}
            },
            sum => match (field.number, field.wire_type) {
                (4, FIXED64) => *sum = Measure::Double(double(content, field)),
                (6, FIXED64) => *sum = Measure::Int(fixed64(content, field) as i64),
                (8, VARINT) => self.flags = field.varint(content) as u32,
                _ => {}
            },
        }
        Ok(())
    }

    /// Writes this point with the attributes, exemplars and unknown fields of the one that lies at
    /// `content`.
    pub(crate) fn write(&self, content: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let own: &[u32] = match self.value {
            Measure::Histogram(_) => &[2, 3, 4, 5, 6, 7, 10, 11, 12],
            Measure::Exponential(_) => &[2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14],
            _ => &[2, 3, 4, 6, 8],
        };
        let mut fields = Fields::of(content);
        let mut start = 0;
        while let Some(field) = fields.next_field()? {
            let end = field.content().end;
            if !own.contains(&field.number) {
                out.extend_from_slice(&content[start..end]);
            }
            start = end;
        }
        write_fixed64(2, self.start, out);
        write_fixed64(3, self.time, out);
        match &self.value {
            Measure::Empty => write_flags(8, self.flags, out),
            Measure::Int(value) => {
                write_any_fixed64(6, *value as u64, out);
                write_flags(8, self.flags, out);
            }
            Measure::Double(value) => {
                write_any_fixed64(4, value.to_bits(), out);
                write_flags(8, self.flags, out);
            }
            Measure::Histogram(own) => {
                own.all.write([11, 12], out);
                write_packed(6, own.counts.iter().copied(), out);
                write_packed(7, own.bounds.iter().map(|bound| bound.to_bits()), out);
                write_flags(10, self.flags, out);
            }
            Measure::Exponential(own) => {
                own.all.write([12, 13], out);
                if own.scale != 0 {
                    out.push(6 << 3 | VARINT);
                    write_varint(out, unzigzag(own.scale));
                }
                write_fixed64(7, own.zero_count, out);
                write_buckets(8, &own.positive, out);
                write_buckets(9, &own.negative, out);
                write_flags(10, self.flags, out);
                write_fixed64(14, own.zero_threshold.to_bits(), out);
            }
        }
        Ok(())
    }
}

impl Summary {
    fn write(&self, extremes: [u32; 2], out: &mut Vec<u8>) {
        write_fixed64(4, self.count, out);
        let optional = [(5, self.sum), (extremes[0], self.min), (extremes[1], self.max)];
        for (number, value) in optional {
            if let Some(value) = value {
                write_any_fixed64(number, value.to_bits(), out);
            }
        }
    }
}

fn fixed64(content: &[u8], field: &Field) -> u64 {
    content[field.content()].try_into().map_or(0, u64::from_le_bytes)
}

fn double(content: &[u8], field: &Field) -> f64 {
    f64::from_bits(fixed64(content, field))
}

/// One value, or a packed list of them.
fn fixed64s<'a>(content: &'a [u8], field: &Field) -> impl Iterator<Item = u64> + 'a {
    let (values, _) = content[field.content()].as_chunks::<8>();
    values.iter().map(|value| u64::from_le_bytes(*value))
}

fn zigzag(value: u64) -> i32 {
    let value = value as u32;
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

fn unzigzag(value: i32) -> u64 {
    u64::from((value << 1 ^ value >> 31) as u32)
}

fn read_buckets(content: &[u8], buckets: &mut Buckets) -> Result<(), Malformed> {
    let mut fields = Fields::of(content);
    while let Some(field) = fields.next_field()? {
        match (field.number, field.wire_type) {
            (1, VARINT) => buckets.offset = zigzag(field.varint(content)),
            (2, VARINT) => buckets.counts.push(field.varint(content)),
            (2, LEN) => {
                let packed = &content[field.content()];
                let mut position = 0;
                while position < packed.len() {
                    let (value, next) = read_varint(packed, position)?;
                    buckets.counts.push(value);
                    position = next;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn write_any_fixed64(number: u32, value: u64, out: &mut Vec<u8>) {
    out.push((number as u8) << 3 | FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Nothing for zero, which is the default.
fn write_fixed64(number: u32, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        write_any_fixed64(number, value, out);
    }
}

fn write_flags(number: u32, flags: u32, out: &mut Vec<u8>) {
    if flags != 0 {
        out.push((number as u8) << 3 | VARINT);
        write_varint(out, u64::from(flags));
    }
}

fn write_packed(number: u32, values: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
    if values.len() > 0 {
        out.push((number as u8) << 3 | LEN);
        write_varint(out, 8 * values.len() as u64);
        values.for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
    }
}

fn write_buckets(number: u32, buckets: &Buckets, out: &mut Vec<u8>) {
    if *buckets == Buckets::default() {
        return;
    }
    let (mut message, mut packed) = (Vec::new(), Vec::new());
    if buckets.offset != 0 {
        message.push(1 << 3 | VARINT);
        write_varint(&mut message, unzigzag(buckets.offset));
    }
    buckets.counts.iter().for_each(|count| write_varint(&mut packed, *count));
    if !packed.is_empty() {
        write_len_field(&mut message, 2, &packed);
    }
    write_len_field(out, number, &message);
}
