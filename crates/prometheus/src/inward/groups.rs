//! Series by resource, scope and metric.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;

use sluice_otlp::wire::{Fields, write_len_field, write_message};

use crate::build::attribute;
use crate::kind::Kind;
use crate::point::Shape;
use crate::settings::Version;

use super::histogram::{self, Form};
use super::memory::{Attributes, Memory};
use super::message::{Labels, Series};
use super::points::Points;
use super::{Read, ReadError, WrittenCounts};

const TARGET_INFO: &[u8] = b"target_info";
const CUMULATIVE: [u8; 2] = [2 << 3, 2];
const MONOTONIC: [u8; 2] = [3 << 3, 1];

/// Labels that no attribute of a point is.
pub(super) fn is_elsewhere(name: &[u8]) -> bool {
    let names: [&[u8]; 5] =
        [b"__name__", b"job", b"instance", b"otel_scope_name", b"otel_scope_version"];
    names.contains(&name)
}

fn label<'a>(labels: &Labels<'a>, name: &[u8]) -> &'a [u8] {
    let found = labels.binary_search_by(|(own, _)| (*own).cmp(name));
    found.map_or(&[], |at| labels[at].1)
}

/// A metric. Series of one name differ in it if their kinds do.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct MetricKey<'a> {
    scope: usize,
    name: &'a [u8],
    shape: u8,
    kind: u8,
}

struct Metric<'a> {
    key: MetricKey<'a>,
    shape: Shape,
    kind: Kind,
    help: Box<[u8]>,
    unit: Box<[u8]>,
}

/// The series of a request.
#[derive(Default)]
pub(super) struct Groups<'a> {
    resources: Numbered<(&'a [u8], &'a [u8])>,
    /// Resource, name and version.
    scopes: Numbered<(usize, &'a [u8], &'a [u8])>,
    metric_numbers: HashMap<MetricKey<'a>, usize>,
    metrics: Vec<Metric<'a>>,
    series: Vec<Placed>,
    /// Exemplars that stand in series of their own.
    lone: Lone,
}

/// A series of a metric.
struct Placed {
    metric: usize,
    range: Range<usize>,
    /// Of several metrics, the first one has the exemplars.
    has_exemplars: bool,
}

/// Series with exemplars only, as Prometheus sends them: they belong to the points of series with
/// the same labels.
#[derive(Default)]
pub(super) struct Lone {
    hasher: RandomState,
    /// By the hash of the labels, when the points are written.
    series: Vec<(u64, Range<usize>)>,
}

impl Lone {
    fn add(&mut self, labels: &Labels<'_>, range: Range<usize>) {
        self.series.push((self.hasher.hash_one(labels), range));
    }

    /// Takes those of these labels out.
    pub(super) fn take(&mut self, labels: &Labels<'_>) -> Vec<Range<usize>> {
        if self.series.is_empty() {
            return Vec::new();
        }
        let hash = self.hasher.hash_one(labels);
        let start = self.series.partition_point(|(own, _)| *own < hash);
        let of_labels = self.series.iter_mut().skip(start).take_while(|(own, _)| *own == hash);
        let ranges = of_labels.map(|(_, range)| std::mem::take(range));
        // They are taken together: if the first one is, the others are not looked at again.
        ranges.take_while(|range| !range.is_empty()).collect()
    }

    /// Series that no point took.
    fn left(&self) -> usize {
        self.series.iter().filter(|(_, range)| !range.is_empty()).count()
    }
}

/// Keys with numbers in the order in which they come.
struct Numbered<K> {
    numbers: HashMap<K, usize>,
    keys: Vec<K>,
}

impl<K> Default for Numbered<K> {
    fn default() -> Self {
        Numbered { numbers: HashMap::new(), keys: Vec::new() }
    }
}

impl<K: Copy + std::hash::Hash + Eq> Numbered<K> {
    fn number(&mut self, key: K) -> usize {
        let next = self.keys.len();
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.keys.push(key);
        }
        number
    }
}

impl<'a> Groups<'a> {
    /// Places a series. Its samples are counted when they are written, but those of `target_info`.
    pub(super) fn add(
        &mut self,
        version: Version,
        series: &Result<Series<'a>, &'static str>,
        memory: &Memory,
        written: &mut WrittenCounts,
    ) -> Result<(), &'static str> {
        let series = series.as_ref().map_err(|reason| *reason)?;
        let labels = &series.labels;
        let name = label(labels, b"__name__");
        if name.is_empty() {
            return Err("a series has no name");
        }
        let target = (label(labels, b"job"), label(labels, b"instance"));
        if name == TARGET_INFO {
            let own = |name: &[u8]| !matches!(name, b"__name__" | b"job" | b"instance");
            let own = labels.iter().filter(|(name, _)| own(name));
            let attributes: Attributes =
                own.map(|(name, value)| ((*name).into(), (*value).into())).collect();
            memory.remember_target(target, attributes);
            let mut fields = Fields::of(series.bytes);
            while let Ok(Some(_)) = fields.next_message(2) {
                written.samples += 1;
            }
            return Ok(());
        }
        let resource = self.resources.number(target);
        let (scope, scope_version) =
            (label(labels, b"otel_scope_name"), label(labels, b"otel_scope_version"));
        let scope = self.scopes.number((resource, scope, scope_version));
        let about = match version {
            Version::V1 => find(memory, name),
            Version::V2 => (series.kind, series.help.into(), series.unit.into()),
        };
        let mut add = |shape: Shape, kind: Kind| {
            let key = MetricKey { scope, name, shape: shape as u8, kind: kind as u8 };
            let next = self.metrics.len();
            let number = *self.metric_numbers.entry(key).or_insert(next);
            if number == next {
                let (_, help, unit) = about.clone();
                self.metrics.push(Metric { key, shape, kind, help, unit });
            }
            let range = series.range.clone();
            let has_exemplars = self.series.last().is_none_or(|last| last.range != range);
            self.series.push(Placed { metric: number, range, has_exemplars });
        };
        let (histograms, exemplars) = if version == Version::V1 { (4, 3) } else { (3, 4) };
        let (mut has_samples, mut forms) = (false, [false; 2]);
        let (mut has_histograms, mut has_exemplars) = (false, false);
        let mut reason = None;
        let mut fields = Fields::of(series.bytes);
        while let Ok(Some(field)) = fields.next_field() {
            has_samples |= field.is_message(2);
            has_exemplars |= field.is_message(exemplars);
            if field.is_message(histograms) {
                has_histograms = true;
                match histogram::form(&series.bytes[field.content()]) {
                    Ok(Ok(form)) => forms[form as usize] = true,
                    Ok(Err(why)) => reason = Some(why),
                    // It is met again when its points are written.
                    Err(_) => {}
                }
            }
        }
        if !has_samples && !has_histograms {
            return match version {
                _ if has_exemplars => {
                    self.lone.add(labels, series.range.clone());
                    Ok(())
                }
                Version::V1 => Ok(()),
                Version::V2 => Err("a series has no sample"),
            };
        }
        if has_samples {
            match about.0 {
                Kind::Counter => add(Shape::Sum, Kind::Counter),
                // A part of a metric that stands in several series.
                Kind::Histogram | Kind::Summary | Kind::GaugeHistogram => {
                    add(Shape::Gauge, Kind::Unknown);
                }
                kind @ (Kind::Info | Kind::StateSet) => add(Shape::Sum, kind),
                kind => add(Shape::Gauge, kind),
            }
        }
        let kind = if about.0 == Kind::GaugeHistogram { about.0 } else { Kind::Histogram };
        if forms[Form::Exponential as usize] {
            add(Shape::Exponential, kind);
        }
        if forms[Form::Explicit as usize] {
            add(Shape::Histogram, kind);
        }
        reason.map_or(Ok(()), Err)
    }

    /// Writes the request.
    pub(super) fn write(
        &mut self,
        version: Version,
        message: &[u8],
        symbols: &[&[u8]],
        memory: &Memory,
        limit_bytes: usize,
        read: &mut Read,
    ) -> Result<(), ReadError> {
        let mut lone = std::mem::take(&mut self.lone);
        lone.series.sort_unstable_by_key(|(hash, range)| (*hash, range.start));
        let (scopes, resources) = (&self.scopes.keys, &self.resources.keys);
        let (metrics, mut series) = (&self.metrics, std::mem::take(&mut self.series));
        let scope_of = |number: usize| metrics[number].key.scope;
        let resource_of = |number: usize| scopes[scope_of(number)].0;
        series.sort_by_key(|it| (resource_of(it.metric), scope_of(it.metric), it.metric));
        let mut points = Points::new(version, message, symbols, limit_bytes, lone);
        let mut out = std::mem::take(&mut read.request);
        for of_resource in series.chunk_by(|a, b| resource_of(a.metric) == resource_of(b.metric)) {
            write_message(&mut out, 1, 3, |out| {
                let target = resources[resource_of(of_resource[0].metric)];
                write_message(out, 1, 1, |out| write_resource(out, target, memory));
                let is_scope = |a: &Placed, b: &Placed| scope_of(a.metric) == scope_of(b.metric);
                for of_scope in of_resource.chunk_by(is_scope) {
                    write_message(out, 2, 3, |out| {
                        let (_, name, version) = scopes[scope_of(of_scope[0].metric)];
                        write_scope(out, name, version);
                        for of_metric in of_scope.chunk_by(|a, b| a.metric == b.metric) {
                            let metric = &metrics[of_metric[0].metric];
                            write_message(out, 2, 2, |out| {
                                write_metric(out, metric, |out| {
                                    for Placed { range, has_exemplars, .. } in of_metric {
                                        let exemplars = *has_exemplars;
                                        points.write(out, metric.shape, range, exemplars, read);
                                    }
                                });
                            });
                        }
                    });
                }
            });
            if let Some(error) = points.error() {
                return Err(error);
            }
        }
        if version == Version::V2 {
            let without_points = "exemplars have no sample of their series in the request";
            (0..points.end().left()).for_each(|_| read.refuse(without_points));
        }
        read.request = out;
        Ok(())
    }
}

/// The metadata of a metric whose name may have suffixes.
fn find(memory: &Memory, name: &[u8]) -> (Kind, Box<[u8]>, Box<[u8]>) {
    const SUFFIXES: [&[u8]; 4] = [b"_total", b"_bucket", b"_sum", b"_count"];
    let stems = SUFFIXES.iter().filter_map(|suffix| name.strip_suffix(*suffix));
    let found = std::iter::once(name).chain(stems).find_map(|name| memory.metric(name));
    found.map_or_else(Default::default, |it| (it.kind, it.help.clone(), it.unit.clone()))
}

fn write_resource(out: &mut Vec<u8>, (job, instance): (&[u8], &[u8]), memory: &Memory) {
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    let (whole, instance_text) = (text(job), text(instance));
    let parts = whole.split_once('/').filter(|(_, name)| !name.contains('/'));
    let (namespace, name) = parts.unwrap_or(("", whole));
    let of_name = [
        ("service.instance.id", instance_text),
        ("service.namespace", namespace),
        ("service.name", name),
    ];
    for (key, value) in of_name {
        if !value.is_empty() {
            attribute(out, 1, key, value);
        }
    }
    if let Some(target) = memory.target((job, instance)) {
        let is_other = |key: &str| of_name.iter().all(|(own, _)| *own != key);
        let pairs = target.iter().map(|(name, value)| (text(name), text(value)));
        for (name, value) in pairs.filter(|(name, _)| is_other(name)) {
            attribute(out, 1, name, value);
        }
    }
}

fn write_scope(out: &mut Vec<u8>, name: &[u8], version: &[u8]) {
    write_message(out, 1, 1, |out| {
        for (number, text) in [(1, name), (2, version)] {
            if !text.is_empty() {
                write_len_field(out, number, text);
            }
        }
    });
}

fn write_metric(out: &mut Vec<u8>, metric: &Metric<'_>, points: impl FnOnce(&mut Vec<u8>)) {
    let texts = [(1, metric.key.name), (2, &*metric.help), (3, &*metric.unit)];
    for (number, text) in texts {
        if !text.is_empty() {
            write_len_field(out, number, text);
        }
    }
    let number = match metric.shape {
        Shape::Gauge => 5,
        Shape::Sum => 7,
        Shape::Histogram => 9,
        Shape::Exponential => 10,
        Shape::Summary => 11,
    };
    write_message(out, number, 2, |out| {
        points(out);
        if !matches!(metric.shape, Shape::Gauge | Shape::Summary) {
            out.extend_from_slice(&CUMULATIVE);
        }
        if metric.kind == Kind::Counter {
            out.extend_from_slice(&MONOTONIC);
        }
    });
    attribute(out, 12, "prometheus.type", metric.kind.as_str());
}
