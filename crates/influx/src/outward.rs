//! A request of OTLP metrics to lines.

use std::borrow::Cow;

use sluice_otlp::text::plain_double_text;
use sluice_otlp::wire::{Fields, Malformed};

use crate::line::Value;
use crate::line_writer::{LineWriter, Unwritable};
use crate::metadata::{BOOLEAN, DATABASE, RETENTION_POLICY, STRING, UNSIGNED};
use crate::point::{Attribute, Metric, Number, Point, Shape};
use crate::precision::{FIRST_NS, LAST_NS, Precision};

/// Tags of the scope's name and version.
const SCOPE_NAME: &[u8] = b"otel.scope.name";
const SCOPE_VERSION: &[u8] = b"otel.scope.version";

/// Counts of data points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// One line each.
    pub points: u64,
    /// Of these, exponential histograms: line protocol has no place for their buckets.
    pub without_buckets: u64,
    /// Points without a value, with one that is not finite, with a time that InfluxDB does not
    /// know, or of a metric whose name is none for a measurement.
    pub left_out: u64,
    /// Of these, points without a time: see [`Form::needs_times`].
    pub without_time: u64,
    /// Points that only say that their series has ended. They have no line.
    pub ends: u64,
}

impl Written {
    /// The difference to another state, from before.
    fn since(&self, before: &Written) -> Written {
        Written {
            points: self.points - before.points,
            without_buckets: self.without_buckets - before.without_buckets,
            left_out: self.left_out - before.left_out,
            without_time: self.without_time - before.without_time,
            ends: self.ends - before.ends,
        }
    }
}

/// The form of lines.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Length of all lines in bytes, which one line may exceed.
    pub limit_bytes: usize,
    /// Times are cut to this unit. `Auto` counts nanoseconds.
    pub precision: Precision,
    /// A point without a time is left out: InfluxDB would give it another one each time that it is
    /// written.
    pub needs_times: bool,
}

/// Why lines were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    Malformed(Malformed),
    /// The lines are longer than the limit.
    TooLong {
        limit_bytes: usize,
    },
}

impl From<Malformed> for WriteError {
    fn from(malformed: Malformed) -> WriteError {
        WriteError::Malformed(malformed)
    }
}

/// [`write_as`] with all times in nanoseconds, and points without a time as lines without one.
///
/// `limit_bytes`: length of `out`, which one line may exceed.
pub fn write(request: &[u8], limit_bytes: usize, out: &mut Vec<u8>) -> Result<Written, WriteError> {
    let form = Form { limit_bytes, precision: Precision::Nanoseconds, needs_times: false };
    write_as(&form, request, out)
}

/// Appends the lines of a request, whose points become a line each. Attributes of the resource and
/// the scope's name are tags, but those that [`DATABASE`] and [`RETENTION_POLICY`] name.
pub fn write_as(form: &Form, request: &[u8], out: &mut Vec<u8>) -> Result<Written, WriteError> {
    write_counted(form, request, out, &mut |_, _| {})
}

/// [`write_as`], which tells of each metric its measurement and what became of its points.
pub fn write_counted(
    form: &Form,
    request: &[u8],
    out: &mut Vec<u8>,
    count: &mut dyn FnMut(&[u8], Written),
) -> Result<Written, WriteError> {
    let mut writer = Writer { out, form: *form, written: Written::default(), count };
    let mut resources = Fields::of(request);
    while let Some(resource) = resources.next_message(1)? {
        writer.resource(&request[resource.content()])?;
    }
    Ok(writer.written)
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
    form: Form,
    written: Written,
    count: &'o mut dyn FnMut(&[u8], Written),
}

pub(crate) type Tag<'a> = (&'a [u8], Cow<'a, str>);

impl Writer<'_> {
    fn resource(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let mut tags = resource_tags(bytes)?;
        let mut scopes = Fields::of(bytes);
        while let Some(scope) = scopes.next_message(2)? {
            let content = &bytes[scope.content()];
            let own = tags.len();
            scope_tags(content, &mut tags)?;
            let mut point = Point::default();
            let mut metrics = Fields::of(content);
            while let Some(metric) = metrics.next_message(2)? {
                let metric = Metric::read(&content[metric.content()])?;
                self.metric(&metric, &tags, &mut point)?;
            }
            tags.truncate(own);
        }
        Ok(())
    }

    fn metric<'a>(
        &mut self,
        metric: &Metric<'a>,
        tags: &[Tag<'_>],
        point: &mut Point<'a>,
    ) -> Result<(), WriteError> {
        let Some(shape) = metric.shape else { return Ok(()) };
        let before = self.written;
        for data in &metric.data {
            let mut points = Fields::of(data);
            while let Some(field) = points.next_message(1)? {
                let limit_bytes = self.form.limit_bytes;
                if self.out.len() > limit_bytes {
                    return Err(WriteError::TooLong { limit_bytes });
                }
                point.read(shape, &data[field.content()])?;
                if point.is_stale {
                    self.written.ends += 1;
                    continue;
                }
                if point.time_ns.is_none() && self.form.needs_times {
                    self.written.without_time += 1;
                    self.written.left_out += 1;
                    continue;
                }
                match self.point(metric, shape, point, tags) {
                    Ok(true) => self.written.points += 1,
                    Ok(false) | Err(_) => self.written.left_out += 1,
                }
            }
        }
        (self.count)(metric.names().0, self.written.since(&before));
        Ok(())
    }

    /// Writes a point; false if there is nothing to write.
    fn point(
        &mut self,
        metric: &Metric<'_>,
        shape: Shape,
        point: &Point<'_>,
        more_tags: &[Tag<'_>],
    ) -> Result<bool, Unwritable> {
        let time = match point.time_ns {
            None => None,
            Some(time_ns) if (FIRST_NS..=LAST_NS).contains(&(time_ns as i64)) => {
                Some(self.form.precision.count(time_ns as i64))
            }
            Some(_) => return Ok(false),
        };
        let (measurement, field) = metric.names();
        let (strings, digits, tags) = sorted(metric, point, more_tags);
        let mut line = LineWriter::new(self.out, &String::from_utf8_lossy(measurement))?;
        for (key, value) in &tags {
            line.tag(key, value.as_bytes());
        }
        for string in strings {
            // The strings of a point matter less than its value.
            let _ = line.field(string.key, &Value::String(Cow::Borrowed(&string.value)));
        }
        match shape {
            Shape::Number => {
                if let Some(value) = value_of(metric, point.number, digits)
                    && line.field(field, &value).is_err()
                {
                    line.cancel();
                    return Ok(false);
                }
            }
            Shape::Histogram | Shape::Exponential | Shape::Summary => {
                distribution(&mut line, point);
                self.written.without_buckets += u64::from(shape == Shape::Exponential);
            }
        }
        Ok(line.end(time))
    }
}

/// The attributes of a `ResourceMetrics`, wherever they stand in it, but for those of the database.
pub(crate) fn resource_tags(bytes: &[u8]) -> Result<Vec<Tag<'_>>, Malformed> {
    let mut tags = Vec::new();
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next_message(1)? {
        let resource = &bytes[field.content()];
        let mut fields = Fields::of(resource);
        while let Some(field) = fields.next_message(1)? {
            let Attribute { key, value } = Attribute::read(&resource[field.content()])?;
            if key != DATABASE.as_bytes() && key != RETENTION_POLICY.as_bytes() {
                tags.push((key, value));
            }
        }
    }
    Ok(tags)
}

/// Adds the scope of a `ScopeMetrics`.
pub(crate) fn scope_tags<'a>(bytes: &'a [u8], tags: &mut Vec<Tag<'a>>) -> Result<(), Malformed> {
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next_message(1)? {
        let scope = &bytes[field.content()];
        let mut fields = Fields::of(scope);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 if field.is_message(1) => {
                    tags.push((SCOPE_NAME, String::from_utf8_lossy(&scope[field.content()])));
                }
                2 if field.is_message(2) => {
                    tags.push((SCOPE_VERSION, String::from_utf8_lossy(&scope[field.content()])));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Strings, the digits of a large number, and tags by their keys.
pub(crate) type Sorted<'p, 'a> = (Vec<&'p Attribute<'a>>, Option<u64>, Vec<(&'p [u8], &'p str)>);

/// The strings of a point, the digits of a large number, and all tags: sorted, as InfluxDB likes
/// them, and of equal keys the first one.
pub(crate) fn sorted<'p, 'a>(
    metric: &Metric<'_>,
    point: &'p Point<'a>,
    more_tags: &'p [Tag<'_>],
) -> Sorted<'p, 'a> {
    let (mut strings, mut digits) = (Vec::new(), None);
    let mut tags = Vec::with_capacity(point.attributes.len() + more_tags.len());
    for attribute in &point.attributes {
        if digits.is_none() && metric.told == "unsigned" && attribute.key == UNSIGNED.as_bytes() {
            digits = attribute.value.parse().ok();
        } else if let Some(name) = metric.strings.get(strings.len())
            && name.as_bytes() == attribute.key
        {
            strings.push(attribute);
        } else {
            tags.push((attribute.key, &*attribute.value));
        }
    }
    tags.extend(more_tags.iter().map(|(key, value)| (*key, &**value)));
    if !tags.is_sorted_by(|one, other| one.0 < other.0) {
        tags.sort_by_key(|(key, _)| *key);
        tags.dedup_by_key(|(key, _)| *key);
    }
    (strings, digits, tags)
}

fn value_of<'a>(metric: &Metric<'_>, number: Number, digits: Option<u64>) -> Option<Value<'a>> {
    Some(match (&*metric.told, number) {
        (_, Number::None) | (STRING, _) => return None,
        (BOOLEAN, Number::Int(value)) => Value::Boolean(value != 0),
        (BOOLEAN, Number::Double(value)) => Value::Boolean(value != 0.0),
        ("unsigned", Number::Int(value)) => Value::Unsigned(value as u64),
        ("unsigned", Number::Double(value)) => Value::Unsigned(digits.unwrap_or(value as u64)),
        (_, Number::Int(value)) => Value::Integer(value),
        (_, Number::Double(value)) => Value::Float(value),
    })
}

/// The fields of a histogram or a summary, as Telegraf's first schema for Prometheus has them.
fn distribution(line: &mut LineWriter<'_>, point: &Point<'_>) {
    let mut field = |key: &str, value: f64| {
        // A part that is not finite is left out; the others say enough.
        let _ = line.field(key.as_bytes(), &Value::Float(value));
    };
    field("count", point.count as f64);
    for (key, value) in [("sum", point.sum), ("min", point.min), ("max", point.max)] {
        if let Some(value) = value {
            field(key, value);
        }
    }
    let mut below = 0_u64;
    for (bound, count) in point.bounds.iter().zip(&point.counts) {
        below = below.saturating_add(*count);
        field(&plain_double_text(*bound), below as f64);
    }
    for (quantile, value) in &point.quantiles {
        field(&plain_double_text(*quantile), *value);
    }
}
