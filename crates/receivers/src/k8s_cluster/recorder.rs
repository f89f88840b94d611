//! Requests of OTLP from tables of metrics and attributes, of which options choose.
//!
//! It knows no component: a table says which metrics there are, a [`Choice`] which are sent. For
//! each resource its attributes and points are given in any order; metrics come in the table's.

use std::ops::Range;

use sluice_config::{Fields, Pattern, nearest};
use sluice_otlp::wire::{varint_len, write_len_field, write_message, write_varint};
use sluice_prometheus::build::{attribute, double, fixed64};

/// The kinds of metrics that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Gauge,
    /// Cumulative and not monotonic.
    Sum,
}

pub(super) struct MetricRow {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) description: &'static str,
    pub(super) shape: Shape,
    /// Unless options say otherwise.
    pub(super) is_sent: bool,
}

/// An attribute of a resource.
pub(super) struct AttributeRow {
    pub(super) name: &'static str,
    /// Unless options say otherwise.
    pub(super) is_sent: bool,
}

/// Which metrics and attributes are sent.
#[derive(Clone)]
pub(super) struct Choice {
    rows: &'static [MetricRow],
    attribute_rows: &'static [AttributeRow],
    metrics: Vec<bool>,
    attributes: Vec<AttributeChoice>,
}

#[derive(Clone)]
struct AttributeChoice {
    is_sent: bool,
    /// Resources whose value matches none are left out, unless this is empty.
    include: Vec<Filter>,
    /// Resources whose value matches one are left out.
    exclude: Vec<Filter>,
}

#[derive(Clone)]
enum Filter {
    Strict(String),
    Regexp(Pattern),
}

impl Filter {
    fn matches(&self, value: &str) -> bool {
        match self {
            Filter::Strict(text) => text == value,
            Filter::Regexp(pattern) => pattern.matches(value.as_bytes()),
        }
    }
}

impl AttributeChoice {
    fn leaves_out(&self, value: &str) -> bool {
        let matches = |filters: &[Filter]| filters.iter().any(|it| it.matches(value));
        (!self.include.is_empty() && !matches(&self.include)) || matches(&self.exclude)
    }
}

impl Choice {
    /// Reads `metrics` and `resource_attributes`.
    pub(super) fn read(
        fields: &mut Fields<'_>,
        rows: &'static [MetricRow],
        attribute_rows: &'static [AttributeRow],
    ) -> Choice {
        let metrics = rows.iter().map(|row| row.is_sent).collect();
        let attributes = attribute_rows
            .iter()
            .map(|row| row.is_sent)
            .map(|is_sent| AttributeChoice { is_sent, include: Vec::new(), exclude: Vec::new() })
            .collect();
        let mut choice = Choice { rows, attribute_rows, metrics, attributes };
        let unset = "Unset: as the table above says.";
        let doc = "Metrics by their names.";
        fields.named_sections("metrics", doc, |name, fields| {
            let at = choice.rows.iter().position(|row| row.name == name);
            let is_sent = at.is_none_or(|at| choice.metrics[at]);
            let doc = format!("Send it. {unset}");
            let is_sent = fields.boolean("enabled", is_sent, &doc);
            let instead = "take attributes off with a processor";
            fields.not_yet("attributes", instead);
            fields.not_yet("aggregation_strategy", instead);
            match at {
                Some(at) => choice.metrics[at] = is_sent,
                None => unknown(fields, "metric", name, rows.iter().map(|row| row.name)),
            }
        });
        let doc = "Attributes of resources by their names.";
        fields.named_sections("resource_attributes", doc, |name, fields| {
            let at = choice.attribute_rows.iter().position(|row| row.name == name);
            let is_sent = at.is_none_or(|at| choice.attributes[at].is_sent);
            let doc = format!("Send it. {unset}");
            let is_sent = fields.boolean("enabled", is_sent, &doc);
            let doc = "Resources whose value matches none of these are left out.";
            let include = read_filters(fields, "metrics_include", doc);
            let doc = "Resources whose value matches one of these are left out.";
            let exclude = read_filters(fields, "metrics_exclude", doc);
            match at {
                Some(at) => choice.attributes[at] = AttributeChoice { is_sent, include, exclude },
                None => {
                    let names = attribute_rows.iter().map(|row| row.name);
                    unknown(fields, "resource attribute", name, names);
                }
            }
        });
        choice
    }

    /// Whether a metric is sent whose name begins so.
    pub(super) fn has(&self, prefix: &str) -> bool {
        let mut sent = self.rows.iter().zip(&self.metrics).filter(|(_, is_sent)| **is_sent);
        sent.any(|(row, _)| row.name.starts_with(prefix))
    }
}

fn unknown(
    fields: &mut Fields<'_>,
    what: &str,
    name: &str,
    names: impl Iterator<Item = &'static str> + Clone,
) {
    if !fields.is_describing() {
        let message = format!("is no {what} of this receiver");
        match nearest(name, names) {
            Some(near) => fields.error_with_hint(&message, &format!("did you mean `{near}`?")),
            None => fields.error_with_hint(&message, "its page lists all of them"),
        }
    }
}

fn read_filters(fields: &mut Fields<'_>, key: &str, doc: &str) -> Vec<Filter> {
    let filters = fields.sections(key, doc, |fields| {
        let strict = fields.non_empty_string("strict", "The whole value.");
        let doc = "Matches anywhere in the value.";
        let regexp = fields.parsed("regexp", "a regular expression", None, doc, Pattern::new);
        match (strict, regexp) {
            (Some(text), None) => Some(Filter::Strict(text)),
            (None, Some(pattern)) => Some(Filter::Regexp(pattern)),
            (None, None) if fields.is_describing() || fields.is_given("regexp") => None,
            _ => {
                fields.error("needs either `strict` or `regexp`");
                None
            }
        }
    });
    filters.into_iter().flatten().collect()
}

/// A point's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Int(i64),
    Double(f64),
}

/// The parts of a request that are the same for all resources.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) choice: &'a Choice,
    pub(super) scope: &'static str,
    pub(super) version: &'static str,
    pub(super) schema_url: &'static str,
    /// Nanoseconds since 1970.
    pub(super) start_ns: u64,
    pub(super) time_ns: u64,
}

/// Writes a request, resource by resource.
pub(super) struct Recorder<'a> {
    frame: Frame<'a>,
    request: Vec<u8>,
    items: u32,
    /// Of the resource that is being written.
    resource: Vec<u8>,
    entity: Vec<u8>,
    /// Each point's metric, and its bytes.
    points: Vec<(usize, Range<usize>)>,
    bytes: Vec<u8>,
    /// Metrics that no table has.
    own: Vec<u8>,
    own_items: u32,
    is_left_out: bool,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(frame: Frame<'a>) -> Recorder<'a> {
        Recorder {
            frame,
            request: Vec::new(),
            items: 0,
            resource: Vec::new(),
            entity: Vec::new(),
            points: Vec::new(),
            bytes: Vec::new(),
            own: Vec::new(),
            own_items: 0,
            is_left_out: false,
        }
    }

    /// Length of the request so far, in bytes.
    pub(super) fn len(&self) -> usize {
        self.request.len()
    }

    /// The request and its points. The next one begins.
    pub(super) fn take(&mut self) -> (Vec<u8>, u32) {
        (std::mem::take(&mut self.request), std::mem::take(&mut self.items))
    }

    /// The entity that the resource is: an attribute that identifies it, and others that describe
    /// it. Without the former they are attributes like others.
    pub(super) fn entity<A: Into<usize> + Copy>(
        &mut self,
        kind: &str,
        (id, value): (A, &str),
        descriptions: &[(A, &str)],
    ) {
        self.attribute(id, value);
        descriptions.iter().for_each(|(name, value)| self.attribute(*name, value));
        let choice = self.frame.choice;
        let sent = |it: A| {
            choice.attributes[it.into()].is_sent.then(|| choice.attribute_rows[it.into()].name)
        };
        let Some(id) = sent(id) else { return };
        write_message(&mut self.entity, 3, 1, |out| {
            write_len_field(out, 2, kind.as_bytes());
            write_len_field(out, 3, id.as_bytes());
            for name in descriptions.iter().filter_map(|(name, _)| sent(*name)) {
                write_len_field(out, 4, name.as_bytes());
            }
        });
    }

    /// Each attribute once. What is not sent is left out.
    pub(super) fn attribute(&mut self, name: impl Into<usize>, value: &str) {
        if let Some(name) = self.chosen(name.into(), value) {
            attribute(&mut self.resource, 1, name, value);
        }
    }

    pub(super) fn flag(&mut self, name: impl Into<usize>, value: bool) {
        if let Some(name) = self.chosen(name.into(), if value { "true" } else { "false" }) {
            write_message(&mut self.resource, 1, 1, |out| {
                write_len_field(out, 1, name.as_bytes());
                write_len_field(out, 2, &[2 << 3, u8::from(value)]);
            });
        }
    }

    fn chosen(&mut self, at: usize, value: &str) -> Option<&'static str> {
        let choice = &self.frame.choice.attributes[at];
        self.is_left_out |= choice.is_sent && choice.leaves_out(value);
        choice.is_sent.then(|| self.frame.choice.attribute_rows[at].name)
    }

    pub(super) fn int(&mut self, metric: impl Into<usize>, value: i64) {
        self.point(metric, Value::Int(value), &[]);
    }

    pub(super) fn double(&mut self, metric: impl Into<usize>, value: f64) {
        self.point(metric, Value::Double(value), &[]);
    }

    /// A point of a metric of the table, with its attributes.
    pub(super) fn point(
        &mut self,
        metric: impl Into<usize>,
        value: Value,
        attributes: &[(&str, &str)],
    ) {
        let metric = metric.into();
        if self.frame.choice.metrics[metric] {
            let (from, Frame { start_ns, time_ns, .. }) = (self.bytes.len(), self.frame);
            point(&mut self.bytes, start_ns, time_ns, value, attributes);
            self.points.push((metric, from..self.bytes.len()));
        }
    }

    /// A gauge that no table has, without a start time.
    pub(super) fn own_gauge(&mut self, name: &str, unit: &str, description: &str, value: Value) {
        let time_ns = self.frame.time_ns;
        write_message(&mut self.own, 2, 2, |out| {
            described(out, name, unit, description);
            write_message(out, 5, 1, |out| {
                write_message(out, 1, 1, |out| point(out, 0, time_ns, value, &[]));
            });
        });
        self.own_items += 1;
    }

    /// The resource is complete. One without points is left out.
    pub(super) fn finish(&mut self) {
        let items = self.points.len() as u32 + self.own_items;
        if items > 0 && !self.is_left_out {
            self.points.sort_by_key(|(metric, _)| *metric);
            let Recorder { frame, request, resource, entity, points, bytes, own, .. } = self;
            let whole = resource.len() + entity.len();
            write_message(request, 1, 2, |out| {
                write_message(out, 1, varint_len(whole), |out| {
                    out.extend_from_slice(resource);
                    out.extend_from_slice(entity);
                });
                write_message(out, 2, 2, |out| {
                    write_message(out, 1, 1, |out| {
                        write_len_field(out, 1, frame.scope.as_bytes());
                        write_len_field(out, 2, frame.version.as_bytes());
                    });
                    out.extend_from_slice(own);
                    for points in points.chunk_by(|left, right| left.0 == right.0) {
                        metric(out, &frame.choice.rows[points[0].0], points, bytes);
                    }
                });
                write_len_field(out, 3, frame.schema_url.as_bytes());
            });
            self.items += items;
        }
        self.resource.clear();
        self.entity.clear();
        self.points.clear();
        self.bytes.clear();
        self.own.clear();
        (self.own_items, self.is_left_out) = (0, false);
    }
}

fn metric(out: &mut Vec<u8>, row: &MetricRow, points: &[(usize, Range<usize>)], bytes: &[u8]) {
    write_message(out, 2, 2, |out| {
        described(out, row.name, row.unit, row.description);
        let field = if row.shape == Shape::Gauge { 5 } else { 7 };
        write_message(out, field, 1, |out| {
            for (_, range) in points {
                write_len_field(out, 1, &bytes[range.clone()]);
            }
            if row.shape == Shape::Sum {
                // The temporality, cumulative.
                out.push(2 << 3);
                write_varint(out, 2);
            }
        });
    });
}

fn described(out: &mut Vec<u8>, name: &str, unit: &str, description: &str) {
    for (field, text) in [(1, name), (2, description), (3, unit)] {
        if !text.is_empty() {
            write_len_field(out, field, text.as_bytes());
        }
    }
}

fn point(
    out: &mut Vec<u8>,
    start_ns: u64,
    time_ns: u64,
    value: Value,
    attributes: &[(&str, &str)],
) {
    if start_ns > 0 {
        fixed64(out, 2, start_ns);
    }
    fixed64(out, 3, time_ns);
    match value {
        Value::Double(value) => double(out, 4, value),
        Value::Int(value) => fixed64(out, 6, value as u64),
    }
    for (name, value) in attributes {
        attribute(out, 7, name, value);
    }
}
