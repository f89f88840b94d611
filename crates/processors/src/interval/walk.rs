//! A request without the points that the aggregator takes.

use std::sync::Arc;

use bytes::Bytes;
use sluice_otlp::wire::{FIXED64, Field, Fields, LEN, Malformed, VARINT, write_len_field};

use super::aggregate::Aggregator;
use super::cell::{Fate, Group, NUMBER_LEN, Sample};
use super::fields;
use super::numbers::Number;
use super::options::{Options, Statistic, Statistics};

pub(super) const GAUGE: u32 = 5;
pub(super) const SUM: u32 = 7;
const HISTOGRAM: u32 = 9;
const EXPONENTIAL: u32 = 10;
const SUMMARY: u32 = 11;
const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;
const METADATA: u32 = 12;
/// The flag of a point without a value, which ends a series in Prometheus.
const NO_RECORDED_VALUE: u64 = 1;

/// The request that is left, or nothing if it stays as it is.
pub(super) fn walk(
    request: &Bytes,
    aggregator: &mut Aggregator,
) -> Result<Option<Bytes>, Malformed> {
    let mut walk = Walk {
        request,
        aggregator,
        resource: Vec::new(),
        scope: Vec::new(),
        key: Vec::new(),
        texts: Vec::new(),
        attributes: Vec::new(),
        point_key: Vec::new(),
    };
    let mut out = Vec::new();
    let is_changed = messages(request, 1, &mut out, |content, out| walk.resource(content, out))?;
    Ok(is_changed.then(|| out.into()))
}

struct Walk<'r, 'a> {
    request: &'r Bytes,
    aggregator: &'a mut Aggregator,
    /// The fields around the scopes and the metrics at hand.
    resource: Vec<u8>,
    scope: Vec<u8>,
    /// Of the metric at hand.
    key: Vec<u8>,
    /// Attributes of the metric at hand that tell no series apart.
    texts: Vec<Box<[u8]>>,
    /// Encoded attributes of the point at hand.
    attributes: Vec<&'r [u8]>,
    point_key: Vec<u8>,
}

/// Copies the fields of a message, but lets `visit` write the messages with this number: it
/// answers whether it wrote something else than was there. True if something changed.
fn messages<'r>(
    content: &'r [u8],
    number: u32,
    out: &mut Vec<u8>,
    mut visit: impl FnMut(&'r [u8], &mut Vec<u8>) -> Result<bool, Malformed>,
) -> Result<bool, Malformed> {
    let (mut fields, mut start, mut is_changed) = (Fields::of(content), 0, false);
    while let Some(field) = fields.next_field()? {
        let end = field.content().end;
        let before = out.len();
        let differs = field.is_message(number) && visit(&content[field.content()], out)?;
        if !differs {
            out.truncate(before);
            out.extend_from_slice(&content[start..end]);
        }
        is_changed |= differs;
        start = end;
    }
    Ok(is_changed)
}

/// The fields of a message that do not have this number, into `out`. Answers whether there is one
/// that has it.
fn around(content: &[u8], number: u32, out: &mut Vec<u8>) -> Result<bool, Malformed> {
    out.clear();
    let (mut fields, mut start, mut has_some) = (Fields::of(content), 0, false);
    while let Some(field) = fields.next_field()? {
        let end = field.content().end;
        if field.is_message(number) {
            has_some = true;
        } else {
            out.extend_from_slice(&content[start..end]);
        }
        start = end;
    }
    Ok(has_some)
}

impl<'r> Walk<'r, '_> {
    fn resource(&mut self, content: &'r [u8], out: &mut Vec<u8>) -> Result<bool, Malformed> {
        let mut own = std::mem::take(&mut self.resource);
        around(content, 2, &mut own)?;
        self.resource = own;
        let mut left = Vec::new();
        let visit = |content: &'r [u8], out: &mut Vec<u8>| self.scope(content, out);
        let is_changed = messages(content, 2, &mut left, visit)?;
        if is_changed && left.len() > self.resource.len() {
            write_len_field(out, 1, &left);
        }
        Ok(is_changed)
    }

    fn scope(&mut self, content: &'r [u8], out: &mut Vec<u8>) -> Result<bool, Malformed> {
        let mut own = std::mem::take(&mut self.scope);
        around(content, 2, &mut own)?;
        self.scope = own;
        let mut left = Vec::new();
        let visit = |content: &'r [u8], out: &mut Vec<u8>| self.metric(content, out);
        let is_changed = messages(content, 2, &mut left, visit)?;
        if is_changed && left.len() > self.scope.len() {
            write_len_field(out, 2, &left);
        }
        Ok(is_changed)
    }

    fn metric(&mut self, content: &'r [u8], out: &mut Vec<u8>) -> Result<bool, Malformed> {
        let Some(metric) = Metric::read(content)? else { return Ok(false) };
        let Some(group) = self.group(&metric) else {
            self.aggregator.counts.refused += metric.points;
            return Ok(false);
        };
        if group.fate == Fate::Passes {
            return Ok(false);
        }
        self.texts.clear();
        if let Fate::Numbers(statistics) = &group.fate
            && statistics.field.is_some()
        {
            let texts = fields::texts(&metric.metadata).into_iter();
            self.texts.extend(texts.map(<Box<[u8]>>::from));
        }
        self.point_key.clear();
        self.point_key.extend_from_slice(&group.number.to_le_bytes());
        let mut left = Vec::new();
        let visit = |content: &'r [u8], _: &mut Vec<u8>| self.point(&group, content);
        let is_changed = messages(metric.data, 1, &mut left, visit)?;
        if is_changed && left.len() > group.data_rest.len() {
            let mut own = metric.header;
            write_len_field(&mut own, metric.number, &left);
            write_len_field(out, 2, &own);
        }
        Ok(is_changed)
    }

    fn group(&mut self, metric: &Metric<'_>) -> Option<Arc<Group>> {
        self.key.clear();
        let number = [metric.number as u8];
        // `cpu_idle` is the field `idle` of `cpu`, or the field `value` of `cpu_idle`. Descriptions
        // and other metadata are those of the first: they tell no series apart.
        let field = fields::own_field(&metric.metadata).unwrap_or_default();
        let kind = fields::own_type(&metric.metadata).unwrap_or_default();
        let parts: [&[u8]; 6] =
            [&self.resource, &self.scope, metric.name, &metric.unit, &number, &metric.data_rest];
        for part in parts.into_iter().chain([field, kind]) {
            self.key.extend_from_slice(&(part.len() as u64).to_le_bytes());
            self.key.extend_from_slice(part);
        }
        let (resource, scope) = (&self.resource, &self.scope);
        self.aggregator.group(&self.key, |options, number| Group {
            number,
            fate: metric.fate(options),
            resource: resource.as_slice().into(),
            scope: scope.as_slice().into(),
            name: metric.name.into(),
            measurement: measurement_of(metric.name, &metric.metadata),
            rest: metric.rest.as_slice().into(),
            unit: metric.unit.as_slice().into(),
            metadata: metric.metadata.as_slice().into(),
            data: metric.number,
            data_rest: metric.data_rest.as_slice().into(),
            is_monotonic: metric.is_monotonic,
        })
    }

    /// True if the aggregator has taken the point.
    fn point(&mut self, group: &Arc<Group>, content: &'r [u8]) -> Result<bool, Malformed> {
        let attributes_number = match group.data {
            HISTOGRAM => 9,
            EXPONENTIAL => 1,
            _ => 7,
        };
        let (mut time, mut number, mut flags) = (0, None, 0);
        self.attributes.clear();
        let (mut fields, mut start) = (Fields::of(content), 0);
        while let Some(field) = fields.next_field()? {
            let end = field.content().end;
            match (field.number, field.wire_type) {
                (3, FIXED64) => time = fixed64(content, &field),
                (number, LEN) if number == attributes_number => {
                    let key = || fields::key_of(&content[field.content()]);
                    let is_text = |text: &[u8]| key() == Some(text);
                    if !self.texts.iter().any(|text| is_text(text)) {
                        self.attributes.push(&content[start..end]);
                    }
                }
                (4, FIXED64) => number = Some(Number::Double(double(content, &field))),
                (6, FIXED64) => number = Some(Number::Int(fixed64(content, &field) as i64)),
                (8, VARINT) => flags = field.varint(content),
                _ => {}
            }
            start = end;
        }
        let sample = match group.fate {
            Fate::Numbers(_) => match number {
                Some(Number::Double(value)) if value.is_nan() => None,
                Some(number) if flags & NO_RECORDED_VALUE == 0 => Some(Sample::Number(number)),
                _ => None,
            },
            Fate::KeepsLast | Fate::Passes => Some(Sample::Whole(self.request.slice_ref(content))),
        };
        let Some(sample) = sample else {
            self.aggregator.counts.passed += 1;
            return Ok(false);
        };
        if !self.attributes.is_sorted() {
            self.attributes.sort_unstable();
        }
        self.point_key.truncate(NUMBER_LEN);
        for attribute in &self.attributes {
            self.point_key.extend_from_slice(attribute);
        }
        let is_taken = self.aggregator.stage(group, &self.point_key, time, sample);
        Ok(is_taken && !group.keeps_points())
    }
}

/// The measurement of a metric with this name and encoded metadata.
pub(super) fn measurement_of(name: &[u8], metadata: &[u8]) -> Box<[u8]> {
    let mut metric = Vec::new();
    write_len_field(&mut metric, 1, name);
    metric.extend_from_slice(metadata);
    sluice_influx::measurement(&metric).unwrap_or(name).into()
}

fn fixed64(content: &[u8], field: &Field) -> u64 {
    content[field.content()].try_into().map_or(0, u64::from_le_bytes)
}

fn double(content: &[u8], field: &Field) -> f64 {
    f64::from_bits(fixed64(content, field))
}

/// A metric of a request.
struct Metric<'r> {
    name: &'r [u8],
    /// All fields but that with the points.
    header: Vec<u8>,
    rest: Vec<u8>,
    unit: Vec<u8>,
    metadata: Vec<u8>,
    /// Number and content of the field with the points, and what it has beside them.
    number: u32,
    data: &'r [u8],
    data_rest: Vec<u8>,
    points: u64,
    temporality: u64,
    is_monotonic: bool,
}

impl<'r> Metric<'r> {
    /// Nothing if it has no points. Neither if its points come in two fields, which protobuf would
    /// merge and no sender makes: they pass.
    fn read(content: &'r [u8]) -> Result<Option<Metric<'r>>, Malformed> {
        let (name, header, rest, unit, metadata) = Default::default();
        let (data, data_rest): (&[u8], Vec<u8>) = Default::default();
        let (number, points, temporality, is_monotonic) = (0, 0, 0, false);
        let mut metric = Metric {
            name,
            header,
            rest,
            unit,
            metadata,
            number,
            data,
            data_rest,
            points,
            temporality,
            is_monotonic,
        };
        let (mut fields, mut start) = (Fields::of(content), 0);
        while let Some(field) = fields.next_field()? {
            let end = field.content().end;
            let whole = &content[start..end];
            start = end;
            let is_data = [GAUGE, SUM, HISTOGRAM, EXPONENTIAL, SUMMARY].contains(&field.number);
            if is_data && field.wire_type == LEN {
                if metric.number != 0 {
                    return Ok(None);
                }
                (metric.number, metric.data) = (field.number, &content[field.content()]);
                continue;
            }
            metric.header.extend_from_slice(whole);
            match (field.number, field.wire_type) {
                (1, LEN) => metric.name = &content[field.content()],
                (3, LEN) => metric.unit.extend_from_slice(whole),
                (METADATA, LEN) => metric.metadata.extend_from_slice(whole),
                _ => metric.rest.extend_from_slice(whole),
            }
        }
        metric.read_data()?;
        Ok((metric.points > 0).then_some(metric))
    }

    fn read_data(&mut self) -> Result<(), Malformed> {
        let (mut fields, mut start) = (Fields::of(self.data), 0);
        while let Some(field) = fields.next_field()? {
            let end = field.content().end;
            if field.is_message(1) {
                self.points += 1;
            } else {
                self.data_rest.extend_from_slice(&self.data[start..end]);
            }
            match (field.number, field.wire_type) {
                (2, VARINT) => self.temporality = field.varint(self.data),
                (3, VARINT) => self.is_monotonic = field.varint(self.data) != 0,
                _ => {}
            }
            start = end;
        }
        Ok(())
    }

    fn fate(&self, options: &Options) -> Fate {
        let is_of_deltas = self.temporality == DELTA;
        let is_cumulative = self.temporality == CUMULATIVE;
        let rule = || {
            let statistics = options.rule(self.name)?.clone();
            let passes = statistics.field.is_some() && fields::is_no_number(&self.metadata);
            Some(if passes { Fate::Passes } else { Fate::Numbers(statistics) })
        };
        match self.number {
            GAUGE => rule().unwrap_or(match options.passes_gauges {
                true => Fate::Passes,
                false => Fate::KeepsLast,
            }),
            SUM if is_of_deltas => rule().unwrap_or_else(|| {
                if options.passes_deltas {
                    return Fate::Passes;
                }
                let kinds = vec![Statistic::Sum];
                Fate::Numbers(Arc::new(Statistics { kinds, ..Statistics::default() }))
            }),
            SUM | HISTOGRAM | EXPONENTIAL if is_cumulative => Fate::KeepsLast,
            SUMMARY if !options.passes_summaries => Fate::KeepsLast,
            _ => Fate::Passes,
        }
    }
}
