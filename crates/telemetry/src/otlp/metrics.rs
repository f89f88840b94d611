//! Reports of metrics. A reader keeps the counters of its last report: it reports differences, or
//! tells when a counter began again.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_config::document::Temporality;
use sluice_otlp::AnyValue;
use sluice_otlp::wire::write_len_field;

use super::{Resource, write_attribute, write_fixed64, write_varint_field};
use crate::exposition::{Families, Family, Sample, TARGET_INFO};
use crate::table::{Declared, MetricKind};

const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;
/// Metrics that the Collector reads only when it reports: never deltas with `lowmemory`.
const OF_PROCESS: &str = "otelcol_process_";

/// One reader's reports.
pub struct Reports {
    resource: Resource,
    temporality: Temporality,
    began: SystemTime,
    last: Option<SystemTime>,
    counters: HashMap<SeriesKey, Counter>,
}

/// The name of a metric, and the labels of one of its series.
type SeriesKey = (String, Vec<(&'static str, String)>);

#[derive(Clone, Copy)]
struct Counter {
    value: f64,
    /// It counts from here.
    since: SystemTime,
    /// Time of the last report that had it.
    seen: SystemTime,
}

/// An encoded report.
pub struct Report {
    pub request: Vec<u8>,
    pub points: u32,
}

impl Reports {
    /// `began`: the start of the process, where all counters were zero.
    pub fn new(resource: Resource, temporality: Temporality, began: SystemTime) -> Reports {
        Reports { resource, temporality, began, last: None, counters: HashMap::new() }
    }

    /// The report of what was collected at `now`.
    pub fn next(&mut self, families: &Families, now: SystemTime) -> Report {
        let (mut metrics, mut points) = (Vec::new(), 0);
        for (name, family) in families.iter().filter(|(name, _)| *name != TARGET_INFO) {
            metrics.push(self.metric(name, family, now));
            points += family.samples.len() as u32;
        }
        self.counters.retain(|_, counter| counter.seen == now);
        self.last = Some(now);
        Report { request: self.resource.request(metrics.iter().map(Vec::as_slice)), points }
    }

    #[cfg(test)]
    pub(super) fn series_kept(&self) -> usize {
        self.counters.len()
    }

    fn metric(&mut self, name: &str, family: &Family, now: SystemTime) -> Vec<u8> {
        let Family { declared, samples } = family;
        let is_delta = match self.temporality {
            Temporality::Cumulative => false,
            Temporality::Delta => true,
            Temporality::LowMemory => !name.starts_with(OF_PROCESS),
        } && declared.kind == MetricKind::Counter;
        let mut data = Vec::new();
        for sample in samples {
            let (mut value, mut since) = (sample.value, None);
            if declared.kind == MetricKind::Counter {
                let (before, began) = self.count(name, sample, now);
                since = Some(if is_delta { self.last.unwrap_or(self.began) } else { began });
                value -= if is_delta { before } else { 0.0 };
            } else if declared.kind == MetricKind::UpDownCounter {
                since = Some(self.began);
            }
            let point = point(sample, value, is_float(name, declared), since, now);
            write_len_field(&mut data, 1, &point);
        }
        if declared.kind != MetricKind::Gauge {
            write_varint_field(&mut data, 2, if is_delta { DELTA } else { CUMULATIVE });
        }
        if declared.kind == MetricKind::Counter {
            write_varint_field(&mut data, 3, 1);
        }
        let mut metric = Vec::new();
        write_len_field(&mut metric, 1, name.as_bytes());
        write_len_field(&mut metric, 2, declared.meaning.as_bytes());
        write_len_field(&mut metric, 3, unit(name, declared).as_bytes());
        write_len_field(&mut metric, if declared.kind == MetricKind::Gauge { 5 } else { 7 }, &data);
        metric
    }

    /// Notes the value of a counter. Returns the one before, and the time from which it counts: one
    /// that is new or went back has begun again after the last report.
    fn count(&mut self, name: &str, sample: &Sample, now: SystemTime) -> (f64, SystemTime) {
        let new = Counter { value: 0.0, since: self.last.unwrap_or(self.began), seen: now };
        let key = (name.to_owned(), sample.labels.clone());
        let counter = self.counters.entry(key).or_insert(new);
        if sample.value < counter.value {
            *counter = new;
        }
        let before = counter.value;
        (counter.value, counter.seen) = (sample.value, now);
        (before, counter.since)
    }
}

fn point(
    sample: &Sample,
    value: f64,
    is_float: bool,
    since: Option<SystemTime>,
    now: SystemTime,
) -> Vec<u8> {
    let mut point = Vec::new();
    if let Some(since) = since {
        write_fixed64(&mut point, 2, nanoseconds(since));
    }
    write_fixed64(&mut point, 3, nanoseconds(now));
    match is_float {
        true => write_fixed64(&mut point, 4, value.to_bits()),
        false => write_fixed64(&mut point, 6, (value as i64) as u64),
    }
    for (name, value) in &sample.labels {
        write_attribute(&mut point, 7, name, &AnyValue::String(value.clone()));
    }
    point
}

pub(super) fn nanoseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

fn is_float(name: &str, declared: &Declared) -> bool {
    declared.unit == "seconds" || name.ends_with("_seconds")
}

/// In UCUM, as OTLP has it: of things that are counted the singular, in braces.
fn unit(name: &str, declared: &Declared) -> &'static str {
    const COUNTED: [(&str, &str); 8] = [
        ("spans", "{span}"),
        ("metric_points", "{datapoint}"),
        ("log_records", "{record}"),
        ("items", "{item}"),
        ("requests", "{request}"),
        ("frames", "{frame}"),
        ("files", "{file}"),
        ("letters", "{letter}"),
    ];
    match declared.unit {
        "bytes" => "By",
        "seconds" => "s",
        _ if is_float(name, declared) => "s",
        _ => COUNTED.iter().find(|(end, _)| name.ends_with(end)).map_or("", |(_, unit)| unit),
    }
}
