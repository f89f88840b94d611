//! An OTLP request from the points of a scrape.

use std::collections::HashMap;

use sluice_otlp::wire::{varint_len, write_len_field, write_message};
use sluice_prometheus::build::{attribute, double, fixed64, native_content};

use crate::metadata::{Metadata, Role};
use crate::points::{MetricPoints, Parts, Point, Points, Resource, Scope, attribute_ids};
use crate::table::Table;
use crate::unit::{trim_suffixes, ucum};
use sluice_prometheus::Kind;

const CUMULATIVE: [u8; 2] = [2 << 3, 2];
const NO_RECORDED_VALUE: u8 = 1;

/// The kinds of metrics that OTLP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Gauge,
    /// Not monotonic.
    Sum,
    Counter,
    Histogram,
    Exponential,
    Summary,
}

impl Shape {
    pub(crate) fn of(kind: Kind, role: Role) -> Shape {
        match kind {
            Kind::Counter => Shape::Counter,
            Kind::Info | Kind::StateSet => Shape::Sum,
            Kind::Histogram if role == Role::Native => Shape::Exponential,
            Kind::Histogram => Shape::Histogram,
            Kind::Summary => Shape::Summary,
            Kind::Unknown | Kind::Gauge | Kind::GaugeHistogram => Shape::Gauge,
        }
    }

    fn metric_field(self) -> u8 {
        match self {
            Shape::Gauge => 5,
            Shape::Sum | Shape::Counter => 7,
            Shape::Histogram => 9,
            Shape::Exponential => 10,
            Shape::Summary => 11,
        }
    }

    pub(crate) fn attributes_field(self) -> u8 {
        match self {
            Shape::Gauge | Shape::Sum | Shape::Counter | Shape::Summary => 7,
            Shape::Histogram => 9,
            Shape::Exponential => 1,
        }
    }

    pub(crate) fn exemplars_field(self) -> Option<u8> {
        match self {
            Shape::Gauge | Shape::Sum | Shape::Counter => Some(5),
            Shape::Histogram => Some(8),
            Shape::Exponential => Some(11),
            Shape::Summary => None,
        }
    }

    fn flags_field(self) -> u8 {
        match self {
            Shape::Gauge | Shape::Sum | Shape::Counter | Shape::Summary => 8,
            Shape::Histogram | Shape::Exponential => 10,
        }
    }
}

fn text(out: &mut Vec<u8>, field: u32, text: &str) {
    if !text.is_empty() {
        write_len_field(out, field, text.as_bytes());
    }
}

impl Points {
    /// Writes all points of this scrape as one request; answers how many.
    pub(crate) fn write(&mut self, metadata: &Metadata, trim: bool, out: &mut Vec<u8>) -> u32 {
        let mut items = 0;
        let Points { resources, homes, metrics, points, attributes, order, .. } = self;
        let mut wanted: Vec<(u32, u32, u32)> = Vec::with_capacity(order.len());
        for id in order.iter() {
            let metric = metrics.get_mut(*id);
            metric.points.retain(|point| points.get(*point).is_whole(metric.shape));
            if !metric.points.is_empty() {
                items += metric.points.len() as u32;
                wanted.push((homes.get(metric.home).resource, metric.home, *id));
            }
        }
        // The order of the page stays within each scope.
        wanted.sort_by_key(|(resource, home, _)| (*resource, *home));
        for wanted in wanted.chunk_by(|left, right| left.0 == right.0) {
            let resource = wanted[0].0;
            let width = resources.get(resource).width;
            let width = write_message(out, 1, width, |out| {
                write_message(out, 1, 2, |out| resource_content(out, resources.get(resource)));
                for wanted in wanted.chunk_by(|left, right| left.1 == right.1) {
                    let home = homes.get_mut(wanted[0].1);
                    home.width = write_message(out, 2, home.width, |out| {
                        write_message(out, 1, 1, |out| scope_content(out, &home.scope));
                        for (.., id) in wanted {
                            let metric = metrics.get_mut(*id);
                            let known = (&*points, &*attributes);
                            metric.width = write_message(out, 2, metric.width, |out| {
                                metric_content(out, metric, known, metadata, trim);
                            });
                        }
                        text(out, 3, &home.scope.schema_url);
                    });
                }
            });
            resources.get_mut(resource).width = width;
        }
        self.drop_natives();
        items
    }
}

fn resource_content(out: &mut Vec<u8>, resource: &Resource) {
    // Of several attributes of a name, the last one counts.
    let names = resource.info.iter().enumerate().map(|(place, (name, _))| (&**name, place));
    let last: HashMap<&str, usize> = names.collect();
    for (name, value) in &resource.attributes {
        if !last.contains_key(name.as_str()) {
            attribute(out, 1, name, value);
        }
    }
    for (place, (name, value)) in resource.info.iter().enumerate() {
        if last.get(&**name) == Some(&place) {
            attribute(out, 1, name, value);
        }
    }
}

fn scope_content(out: &mut Vec<u8>, scope: &Scope) {
    text(out, 1, &scope.name);
    text(out, 2, &scope.version);
    for (name, value) in &scope.attributes {
        attribute(out, 3, name, value);
    }
}

fn metric_content(
    out: &mut Vec<u8>,
    metric: &MetricPoints,
    (points, attributes): (&Table<Point>, &Table<()>),
    metadata: &Metadata,
    trim: bool,
) {
    let (help, unit) = metadata.describe(&metric.about);
    let is_sum = matches!(metric.shape, Shape::Sum | Shape::Counter);
    text(out, 1, if trim { trim_suffixes(&metric.name, is_sum, unit) } else { &metric.name });
    text(out, 2, help);
    text(out, 3, &ucum(unit));
    write_message(out, u32::from(metric.shape.metric_field()), metric.width, |out| {
        for id in &metric.points {
            let point = points.get(*id);
            write_message(out, 1, varint_len(point.attribute_bytes as usize + 40), |out| {
                for attribute in attribute_ids(points.key(*id)) {
                    out.extend_from_slice(attributes.key(attribute));
                }
                point_content(out, metric.shape, point);
            });
        }
        match metric.shape {
            Shape::Gauge | Shape::Summary => {}
            Shape::Sum | Shape::Histogram | Shape::Exponential => {
                out.extend_from_slice(&CUMULATIVE);
            }
            Shape::Counter => {
                out.extend_from_slice(&CUMULATIVE);
                out.extend_from_slice(&[3 << 3, 1]);
            }
        }
    });
    attribute(out, 12, "prometheus.type", metric.kind.as_str());
}

fn point_content(out: &mut Vec<u8>, shape: Shape, point: &Point) {
    let stale = point.is_stale();
    if point.start_ns > 0 && shape != Shape::Gauge {
        fixed64(out, 2, point.start_ns);
    }
    fixed64(out, 3, point.time_ns());
    let none = Parts::default();
    let parts = point.parts.as_deref().unwrap_or(&none);
    match shape {
        Shape::Gauge | Shape::Sum | Shape::Counter if stale => {}
        Shape::Gauge | Shape::Sum | Shape::Counter => {
            double(out, 4, point.value.unwrap_or_default());
        }
        Shape::Histogram => histogram_content(out, parts, stale),
        Shape::Summary => summary_content(out, parts, stale),
        Shape::Exponential => {
            if let Some(native) = parts.native.as_ref().filter(|_| !stale) {
                native_content(out, native);
            }
        }
    }
    out.extend_from_slice(&parts.exemplars);
    if stale {
        out.extend_from_slice(&[shape.flags_field() << 3, NO_RECORDED_VALUE]);
    }
}

/// Count and sum of a histogram or summary.
fn totals(out: &mut Vec<u8>, parts: &Parts, stale: bool) {
    if !stale {
        fixed64(out, 4, parts.count.unwrap_or_default() as u64);
        if let Some(sum) = parts.sum {
            double(out, 5, sum);
        }
    }
}

/// Boundaries in order, each once: of several, the last on the page counts.
fn sorted(parts: &Parts) -> Vec<(f64, f64)> {
    let mut boundaries = parts.boundaries.clone();
    if !boundaries.is_sorted_by(|left, right| left.0 < right.0) {
        boundaries.reverse();
        boundaries.sort_by(|left, right| left.0.total_cmp(&right.0));
        boundaries.dedup_by(|next, kept| next.0 == kept.0);
    }
    boundaries
}

fn histogram_content(out: &mut Vec<u8>, parts: &Parts, stale: bool) {
    totals(out, parts, stale);
    let mut buckets = sorted(parts);
    // Without the last bucket: it holds all up to infinity, which is the count.
    if buckets.last().is_some_and(|(bound, _)| *bound == f64::INFINITY) {
        buckets.pop();
    }
    packed(out, 6, buckets.len() + 1, |out| {
        let mut below = 0.0;
        let all = parts.count.unwrap_or_default();
        for cumulative in buckets.iter().map(|(_, count)| *count).chain([all]) {
            let count = if stale { 0 } else { (cumulative - below) as u64 };
            out.extend_from_slice(&count.to_le_bytes());
            below = cumulative;
        }
    });
    if !buckets.is_empty() {
        packed(out, 7, buckets.len(), |out| {
            out.extend(buckets.iter().flat_map(|(bound, _)| bound.to_le_bytes()));
        });
    }
}

/// Numbers of eight bytes each.
fn packed(out: &mut Vec<u8>, field: u8, numbers: usize, content: impl FnOnce(&mut Vec<u8>)) {
    write_message(out, u32::from(field), varint_len(numbers * 8), content);
}

fn summary_content(out: &mut Vec<u8>, parts: &Parts, stale: bool) {
    totals(out, parts, stale);
    for (quantile, value) in sorted(parts) {
        write_message(out, 6, 1, |out| {
            double(out, 1, quantile);
            if !stale {
                double(out, 2, value);
            }
        });
    }
}
