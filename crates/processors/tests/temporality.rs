//! `cumulative_to_delta` and `delta_to_cumulative` beside those of a real Collector: the same
//! series, with resets, gaps, points out of order and repeated ones, give the same points.

#[path = "../../otlp/tests/support/mod.rs"]
mod support;

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fastrand::Rng;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, ExponentialHistogramDataPoint, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use sluice_config::read_text;
use sluice_flow::Metadata;
use sluice_otlp::json::{from_json, to_json};
use sluice_otlp::{Signal, count, scan};
use sluice_processors::{PROCESSORS, Processor, ProcessorConfig};
use support::collector::Collector;

const LIMIT_BYTES: usize = 64 << 20;
const REQUESTS: usize = 150;
const SEEDS: u64 = 3;
const SECOND: u64 = 1_000_000_000;
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

fn processor(kind: &str, yaml: &str) -> Box<dyn Processor> {
    let (settings, diagnostics) =
        read_text("processors.test", yaml, |fields| PROCESSORS.read(kind, fields));
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let Some(ProcessorConfig::Edits(build)) = settings else { panic!("{kind} edits") };
    build(Signal::Metrics).expect("fits metrics").processor
}

fn process(processor: &dyn Processor, request: &ExportMetricsServiceRequest) -> Bytes {
    let bytes = Bytes::from(request.encode_to_vec());
    let edited = processor.process(Signal::Metrics, &bytes, &Metadata::default(), usize::MAX);
    let edited = edited.expect("is valid").expect("is without limit").unwrap_or(bytes);
    assert_eq!(scan(Signal::Metrics, &edited), count(Signal::Metrics, &edited));
    edited
}

/// The Collector's answer comes with a marker that no processor changes: a request of which it
/// drops everything is not exported.
fn marker() -> ResourceMetrics {
    let point = NumberDataPoint { value: Some(Number::AsInt(1)), ..Default::default() };
    let gauge = opentelemetry_proto::tonic::metrics::v1::Gauge { data_points: vec![point] };
    of_metrics(vec![], vec![metric("marker", Data::Gauge(gauge))])
}

fn of_metrics(attributes: Vec<KeyValue>, metrics: Vec<Metric>) -> ResourceMetrics {
    let scope = Some(InstrumentationScope { name: "s".to_owned(), ..Default::default() });
    let scope_metrics = vec![ScopeMetrics { scope, metrics, ..Default::default() }];
    let resource = Some(Resource { attributes, ..Default::default() });
    ResourceMetrics { resource, scope_metrics, ..Default::default() }
}

fn metric(name: &str, data: Data) -> Metric {
    Metric { name: name.to_owned(), data: Some(data), ..Default::default() }
}

fn attribute(key: &str, value: i64) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::IntValue(value)) });
    KeyValue { key: key.to_owned(), value, ..Default::default() }
}

/// Series whose values mostly grow.
struct Series {
    rng: Rng,
    start: u64,
    time: u64,
    total: u64,
}

impl Series {
    /// Moves on by a time and a number that are mostly greater than zero.
    fn step(&mut self) -> (u64, u64) {
        let rng = &mut self.rng;
        self.time += rng.u64(1..30) * SECOND;
        self.total += rng.u64(0..9);
        let late = rng.u8(..8) == 0;
        let time = if late { self.time - rng.u64(0..40) * SECOND } else { self.time };
        match rng.u8(..20) {
            0 => (self.start, self.total) = (self.time, 1),
            1 => self.total = 0,
            2 => self.start -= SECOND,
            _ => {}
        }
        (time, self.total)
    }

    fn attributes(&mut self) -> Vec<KeyValue> {
        let mut attributes = vec![attribute("a", self.rng.i64(0..2)), attribute("b", 7)];
        self.rng.shuffle(&mut attributes);
        attributes
    }

    /// One of the flags in twelve says that there is no value.
    fn flags(&mut self) -> u32 {
        u32::from(self.rng.u8(..12) == 0)
    }

    fn number(&mut self, is_double: bool) -> NumberDataPoint {
        let (time, total) = self.step();
        let nan = is_double && self.rng.u8(..15) == 0;
        let value = match is_double {
            true if nan => Number::AsDouble(f64::NAN),
            true => Number::AsDouble(total as f64 / 4.0),
            false => Number::AsInt(total as i64),
        };
        NumberDataPoint {
            attributes: self.attributes(),
            start_time_unix_nano: self.start,
            time_unix_nano: time,
            value: Some(value),
            flags: self.flags(),
            ..Default::default()
        }
    }

    fn histogram(&mut self) -> HistogramDataPoint {
        let (time, total) = self.step();
        let mut bounds = vec![1.0, 5.0];
        if self.rng.u8(..15) == 0 {
            bounds[1] = 6.0;
        }
        let counts = vec![total, total / 2, total / 3];
        HistogramDataPoint {
            attributes: self.attributes(),
            start_time_unix_nano: self.start,
            time_unix_nano: time,
            count: counts.iter().sum(),
            sum: (self.rng.u8(..9) > 0).then_some(total as f64),
            min: Some(1.0),
            max: (self.rng.u8(..9) > 0).then_some(total as f64),
            bucket_counts: counts,
            explicit_bounds: bounds,
            flags: self.flags(),
            ..Default::default()
        }
    }

    fn exponential(&mut self) -> ExponentialHistogramDataPoint {
        let (time, total) = self.step();
        let offset = self.rng.i32(-3..3) * i32::from(self.rng.u8(..4) == 0);
        let counts = vec![total, 0, total / 2, total];
        let far = if self.rng.u8(..6) == 0 { 300 } else { 0 };
        ExponentialHistogramDataPoint {
            attributes: self.attributes(),
            start_time_unix_nano: self.start,
            time_unix_nano: time,
            count: 2 * counts.iter().sum::<u64>() + 1,
            sum: Some(total as f64),
            scale: if self.rng.u8(..6) == 0 { 2 } else { 3 },
            zero_count: 1,
            zero_threshold: if self.rng.u8(..9) == 0 { 0.4 } else { 0.0 },
            positive: Some(Buckets { offset: offset + far, bucket_counts: counts.clone() }),
            negative: Some(Buckets { offset, bucket_counts: counts }),
            max: Some(total as f64),
            flags: self.flags(),
            ..Default::default()
        }
    }

    fn request(&mut self, temporality: i32) -> ExportMetricsServiceRequest {
        let sum = |data_points, is_monotonic| {
            Data::Sum(Sum { data_points, aggregation_temporality: temporality, is_monotonic })
        };
        let points = self.rng.usize(1..4);
        let ints = (0..points).map(|_| self.number(false)).collect();
        let doubles = (0..points).map(|_| self.number(true)).collect();
        let others = vec![self.number(false)];
        let histograms = (0..points).map(|_| self.histogram()).collect();
        let exponentials = (0..points).map(|_| self.exponential()).collect();
        let mut metrics = vec![
            metric("int", sum(ints, true)),
            metric("double", sum(doubles, true)),
            metric("other", sum(others, false)),
            metric(
                "histogram",
                Data::Histogram(Histogram {
                    data_points: histograms,
                    aggregation_temporality: temporality,
                }),
            ),
            metric(
                "exponential",
                Data::ExponentialHistogram(ExponentialHistogram {
                    data_points: exponentials,
                    aggregation_temporality: temporality,
                }),
            ),
        ];
        self.rng.shuffle(&mut metrics);
        let resource = vec![attribute("r", self.rng.i64(0..2))];
        let resource_metrics = vec![of_metrics(resource, metrics), marker()];
        ExportMetricsServiceRequest { resource_metrics }
    }
}

/// In the form in which equal points are equal: absent messages and empty ones are the same, and so
/// are all numbers that are none.
fn normalised(request: &[u8]) -> Vec<String> {
    let mut request = ExportMetricsServiceRequest::decode(request).expect("is valid");
    let resources = request.resource_metrics.iter_mut();
    let scopes = resources.flat_map(|it| &mut it.scope_metrics);
    for metric in scopes.flat_map(|it| &mut it.metrics) {
        match &mut metric.data {
            Some(Data::ExponentialHistogram(it)) => {
                for point in &mut it.data_points {
                    point.attributes.sort_by(|one, other| one.key.cmp(&other.key));
                    point.positive.get_or_insert_default();
                    point.negative.get_or_insert_default();
                    // Two libraries' exponential functions differ in the last digits.
                    let digits = format!("{:.12e}", point.zero_threshold);
                    point.zero_threshold = digits.parse().expect("is a number");
                }
            }
            Some(Data::Sum(it)) => {
                for point in &mut it.data_points {
                    point.attributes.sort_by(|one, other| one.key.cmp(&other.key));
                }
            }
            Some(Data::Histogram(it)) => {
                for point in &mut it.data_points {
                    point.attributes.sort_by(|one, other| one.key.cmp(&other.key));
                }
            }
            _ => {}
        }
    }
    request.resource_metrics.iter().map(|it| format!("{it:#?}")).collect()
}

fn both_agree(kind: &str, options: &str, temporality: i32) {
    for seed in 0..SEEDS {
        agree(kind, options, temporality, seed);
    }
}

fn agree(kind: &str, options: &str, temporality: i32, seed: u64) {
    let processors = format!("{{ {kind}: {options} }}");
    let Some(collector) = Collector::start_with(&processors, &format!("[{kind}]")) else {
        eprintln!("skipped: no Collector is installed (tests/components/install otelcol)");
        return;
    };
    let ours = processor(kind, options);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("is after 1970").as_nanos();
    // Some series begin before the processors, some after.
    let start = now as u64 - 300 * SECOND;
    let mut series = Series { rng: Rng::with_seed(seed), start, time: start, total: 5 };
    let mut last = None;
    let mut points = 0;
    for index in 0..REQUESTS {
        let mut request = series.request(temporality);
        if series.rng.u8(..10) == 0
            && let Some(last) = last.take()
        {
            // A sender that has had no answer comes again.
            request = last;
        }
        let ours = process(&*ours, &request);
        let (mut json, bytes) = (Vec::new(), request.encode_to_vec());
        to_json(Signal::Metrics, &bytes, LIMIT_BYTES, &mut json).expect("is valid");
        let theirs = collector.pass(Signal::Metrics, &json).expect("is accepted");
        let theirs = from_json(Signal::Metrics, &theirs, LIMIT_BYTES).expect("is valid");
        let (left, right) = (normalised(&ours), normalised(&theirs));
        let input = format!("{:#?}", request);
        assert!(
            left == right,
            "seed {seed}, {index}: {input}\nours: {}\ntheirs: {}",
            left[0],
            right[0]
        );
        points += count(Signal::Metrics, &ours).expect("is valid") - 1;
        last = Some(request);
    }
    assert!(points as usize > REQUESTS, "enough is compared: {points}");
}

#[test]
fn deltas_are_those_of_the_collector() {
    for options in [
        "{ initial_value: auto }",
        "{ initial_value: keep }",
        "{ initial_value: drop }",
        "{ include: { metrics: ['^(int|his)'], match_type: regexp }, \
           exclude: { metric_types: [histogram] } }",
    ] {
        both_agree("cumulative_to_delta", options, CUMULATIVE);
    }
}

#[test]
fn sums_are_those_of_the_collector() {
    for options in ["{}", "{ max_streams: 5 }"] {
        both_agree("delta_to_cumulative", options, DELTA);
    }
}
