use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use prost::Message;
use sluice_otlp::Signal;

use super::messages::{
    Exemplar, ExemplarV2, Histogram, Label, MetadataV2, MetricMetadata, RequestV2, Sample, Span,
    TimeSeries, TimeSeriesV2, WriteRequest,
};
use crate::Version;
use crate::inward::{Memory, Read, ReadError, WrittenCounts, read};
use crate::series::STALE;

const LIMIT: usize = 1 << 20;

fn labels(pairs: &[(&str, &str)]) -> Vec<Label> {
    let label = |(name, value): &(&str, &str)| Label {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    pairs.iter().map(label).collect()
}

fn sample(value: f64, timestamp: i64) -> Sample {
    Sample { value, timestamp, start: 0 }
}

fn series(pairs: &[(&str, &str)], samples: &[Sample]) -> TimeSeries {
    TimeSeries { labels: labels(pairs), samples: samples.to_vec(), ..TimeSeries::default() }
}

fn read_v1(memory: &Memory, timeseries: Vec<TimeSeries>) -> (ExportMetricsServiceRequest, Read) {
    decoded(Version::V1, memory, &WriteRequest { timeseries, metadata: vec![] }.encode_to_vec())
}

fn decoded(
    version: Version,
    memory: &Memory,
    message: &[u8],
) -> (ExportMetricsServiceRequest, Read) {
    let read = read(version, message, memory, LIMIT).expect("is read");
    sluice_otlp::scan(Signal::Metrics, &read.request).expect("is valid");
    (ExportMetricsServiceRequest::decode(&*read.request).expect("decodes"), read)
}

fn shown(attributes: &[KeyValue]) -> String {
    let one = |it: &KeyValue| match it.value.as_ref().and_then(|it| it.value.as_ref()) {
        Some(Value::StringValue(text)) => format!("{}={text}", it.key),
        other => format!("{}={other:?}", it.key),
    };
    attributes.iter().map(one).collect::<Vec<_>>().join(",")
}

fn metrics(request: &ExportMetricsServiceRequest) -> Vec<&Metric> {
    let scopes = request.resource_metrics.iter().flat_map(|it| &it.scope_metrics);
    scopes.flat_map(|scope| &scope.metrics).collect()
}

fn numbers(metric: &Metric) -> &[NumberDataPoint] {
    match metric.data.as_ref().expect("has data") {
        Data::Gauge(gauge) => &gauge.data_points,
        Data::Sum(sum) => &sum.data_points,
        other => panic!("{other:?}"),
    }
}

#[test]
fn series_are_grouped_by_target_scope_and_metric() {
    let (one, two) = (|| sample(1.0, 1000), sample(2.0, 2000));
    let target = |instance: &'static str, name: &'static str, code: &'static str| {
        [("__name__", name), ("code", code), ("instance", instance), ("job", "eu/shop")]
    };
    let scoped = [("__name__", "up"), ("job", "eu/shop"), ("otel_scope_name", "lib")];
    let (request, read) = read_v1(
        &Memory::default(),
        vec![
            series(&target("a", "up", "1"), &[one(), two]),
            series(&target("b", "up", "1"), &[one()]),
            series(&target("a", "down", "1"), &[one()]),
            series(&target("a", "up", "2"), &[one()]),
            series(&scoped, &[one()]),
        ],
    );
    let found: Vec<String> = request
        .resource_metrics
        .iter()
        .map(|resource| {
            let attributes = &resource.resource.as_ref().expect("a resource").attributes;
            let scopes = resource.scope_metrics.iter().map(|scope| {
                let metrics = scope.metrics.iter().map(|metric| {
                    let points = numbers(metric).iter().map(|it| shown(&it.attributes));
                    format!("{}({})", metric.name, points.collect::<Vec<_>>().join(" "))
                });
                let name = scope.scope.as_ref().map_or("", |scope| &scope.name);
                format!("{name}[{}]", metrics.collect::<Vec<_>>().join(" "))
            });
            format!("{} {}", shown(attributes), scopes.collect::<Vec<_>>().join(" "))
        })
        .collect();
    let service = "service.namespace=eu,service.name=shop";
    assert_eq!(
        found,
        [
            format!("service.instance.id=a,{service} [up(code=1 code=1 code=2) down(code=1)]"),
            format!("service.instance.id=b,{service} [up(code=1)]"),
            format!("{service} lib[up()]"),
        ]
    );
    assert_eq!(read.written, WrittenCounts { samples: 6, histograms: 0, exemplars: 0 });
    assert_eq!(numbers(metrics(&request)[0])[1].time_unix_nano, 2_000_000_000);
}

#[test]
fn metadata_of_one_request_is_for_those_behind_it() {
    let memory = Memory::default();
    let about = |kind, name: &str| MetricMetadata {
        kind,
        name: name.to_owned(),
        help: "Help.".to_owned(),
        unit: "bytes".to_owned(),
    };
    let metadata = vec![about(1, "io_bytes"), about(3, "took"), about(6, "build_info")];
    let told = WriteRequest { metadata, timeseries: vec![] }.encode_to_vec();
    assert_eq!(decoded(Version::V1, &memory, &told).1.written, WrittenCounts::default());
    let names = ["io_bytes_total", "took_bucket", "build_info", "other"];
    let all = names.map(|name| series(&[("__name__", name)], &[sample(1.0, 1)]));
    let (request, _) = read_v1(&memory, all.to_vec());
    let found: Vec<(&str, &str, bool, String)> = metrics(&request)
        .iter()
        .map(|it| {
            let is_counter = matches!(&it.data, Some(Data::Sum(sum)) if sum.is_monotonic);
            (&*it.name, &*it.unit, is_counter, shown(&it.metadata))
        })
        .collect();
    let kind = |name: &str| format!("prometheus.type={name}");
    assert_eq!(
        found,
        [
            ("io_bytes_total", "bytes", true, kind("counter")),
            ("took_bucket", "bytes", false, kind("unknown")),
            ("build_info", "bytes", false, kind("info")),
            ("other", "", false, kind("unknown")),
        ]
    );
}

#[test]
fn target_info_becomes_attributes_of_the_resource() {
    let memory = Memory::default();
    let target = |name: &'static str| [("__name__", name), ("instance", "a"), ("job", "shop")];
    let mut info = target("target_info").to_vec();
    info.insert(1, ("host_name", "h1"));
    let one = [sample(1.0, 1)];
    let all = vec![series(&target("up"), &one), series(&info, &one)];
    let expected = "service.instance.id=a,service.name=shop,host_name=h1";
    let behind = vec![series(&target("up"), &one)];
    for (all, samples) in [(all, 2), (behind, 1)] {
        let (request, read) = read_v1(&memory, all);
        let resources = &request.resource_metrics;
        let attributes = &resources[0].resource.as_ref().expect("a resource").attributes;
        assert_eq!((shown(attributes), resources.len()), (expected.to_owned(), 1));
        assert_eq!(read.written.samples, samples);
    }
}

#[test]
fn ends_and_exemplars_are_kept() {
    let mut one = series(&[("__name__", "up")], &[sample(1.0, 1), sample(STALE, 2)]);
    let pairs = [("trace_id", &*"01".repeat(16)), ("user", "u")];
    one.exemplars = vec![Exemplar { labels: labels(&pairs), value: 5.0, timestamp: 3 }];
    let (request, read) = read_v1(&Memory::default(), vec![one]);
    let points = numbers(metrics(&request)[0]);
    assert_eq!((points[0].flags, points[1].flags, points[1].value), (0, 1, None));
    let exemplar = &points[0].exemplars[0];
    assert_eq!(exemplar.trace_id, [1; 16]);
    assert_eq!(shown(&exemplar.filtered_attributes), "user=u");
    assert_eq!((exemplar.time_unix_nano, points[1].exemplars.len()), (3_000_000, 0));
    assert_eq!(read.written.exemplars, 1);
}

/// A native histogram with integers, with floats, and with custom buckets.
fn histograms() -> [Histogram; 4] {
    let spans = vec![Span { offset: 1, length: 2 }, Span { offset: 1, length: 1 }];
    let whole = Histogram {
        count: Some(9),
        sum: 5.0,
        schema: 2,
        zero_threshold: 0.5,
        zero_count: Some(2),
        positive_spans: spans.clone(),
        positive_deltas: vec![1, 1, 2],
        timestamp: 1000,
        ..Histogram::default()
    };
    let float = Histogram {
        count: None,
        count_float: Some(9.0),
        zero_count: None,
        zero_count_float: Some(2.0),
        positive_deltas: vec![],
        positive_counts: vec![1.0, 2.0, 4.0],
        ..whole.clone()
    };
    let custom = Histogram {
        count: Some(6),
        schema: -53,
        positive_spans: vec![Span { offset: 0, length: 1 }, Span { offset: 1, length: 1 }],
        positive_deltas: vec![2, 2],
        custom_values: vec![1.0, 2.0],
        zero_count: None,
        zero_threshold: 0.0,
        ..whole.clone()
    };
    let ended = Histogram { sum: STALE, ..whole.clone() };
    [whole, float, custom, ended]
}

#[test]
fn native_histograms_become_exponential_or_explicit_ones() {
    let [whole, float, custom, ended] = histograms();
    let histograms = vec![whole, float, custom, ended];
    let series =
        TimeSeries { labels: labels(&[("__name__", "h")]), histograms, ..TimeSeries::default() };
    let (request, read) = read_v1(&Memory::default(), vec![series]);
    assert_eq!(read.written.histograms, 4);
    let found = metrics(&request);
    let Some(Data::ExponentialHistogram(exponential)) = &found[0].data else { panic!("{found:?}") };
    for point in &exponential.data_points[..2] {
        assert_eq!((point.count, point.scale, point.zero_count), (9, 2, 2));
        let positive = point.positive.as_ref().expect("has buckets");
        assert_eq!((positive.offset, &*positive.bucket_counts), (0, &[1, 2, 0, 4][..]));
    }
    assert_eq!(exponential.data_points[2].flags, 1);
    let Some(Data::Histogram(explicit)) = &found[1].data else { panic!("{found:?}") };
    let point = &explicit.data_points[0];
    assert_eq!((point.count, point.sum), (6, Some(5.0)));
    assert_eq!((&*point.explicit_bounds, &*point.bucket_counts), (&[1.0, 2.0][..], &[2, 0, 4][..]));
}

#[test]
fn version_2_brings_its_metadata() {
    let symbols = ["", "__name__", "io_total", "code", "200", "Help.", "bytes", "trace_id", "07"];
    let request = RequestV2 {
        symbols: symbols.map(str::to_owned).to_vec(),
        timeseries: vec![TimeSeriesV2 {
            labels: vec![1, 2, 3, 4],
            samples: vec![Sample { value: 5.0, timestamp: 2000, start: 1000 }],
            exemplars: vec![ExemplarV2 { labels: vec![7, 8], value: 1.0, timestamp: 2000 }],
            metadata: Some(MetadataV2 { kind: 1, help: 5, unit: 6 }),
            ..TimeSeriesV2::default()
        }],
    };
    let (request, read) = decoded(Version::V2, &Memory::default(), &request.encode_to_vec());
    let metric = metrics(&request)[0];
    assert_eq!((&*metric.description, &*metric.unit), ("Help.", "bytes"));
    let point = &numbers(metric)[0];
    assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1_000_000_000, 2_000_000_000));
    assert_eq!((shown(&point.attributes), point.exemplars.len()), ("code=200".to_owned(), 1));
    assert_eq!(read.written, WrittenCounts { samples: 1, histograms: 0, exemplars: 1 });
}

/// Guarantee: a series at fault costs no other one.
#[test]
fn series_at_fault_are_left_out_and_counted() {
    let good = series(&[("__name__", "up")], &[sample(1.0, 1)]);
    let twice = series(&[("__name__", "up"), ("a", "1"), ("a", "2")], &[sample(1.0, 1)]);
    let nameless = series(&[("a", "1")], &[sample(1.0, 1)]);
    let with = |histogram| TimeSeries {
        labels: labels(&[("__name__", "h")]),
        histograms: vec![histogram],
        ..TimeSeries::default()
    };
    let [whole, float, custom, _] = histograms();
    let negative = Histogram { positive_deltas: vec![1, -5, 9], ..whole.clone() };
    let uneven = Histogram { positive_deltas: vec![1], ..whole.clone() };
    let unknown = Histogram { schema: 53, ..whole.clone() };
    let not_a_number = Histogram { count_float: Some(f64::NAN), ..float };
    let unbound = Histogram { custom_values: vec![1.0], ..custom.clone() };
    let unordered = Histogram { custom_values: vec![2.0, 1.0], ..custom.clone() };
    let zero = Histogram { zero_count: Some(1), count: Some(7), ..custom.clone() };
    let below = Histogram { negative_spans: vec![Span { offset: 0, length: 0 }], ..custom };
    let back = vec![Span { offset: 1, length: 2 }, Span { offset: -1, length: 1 }];
    let back = Histogram { positive_spans: back, ..whole.clone() };
    let fewer = Histogram { count: Some(8), ..whole.clone() };
    let more = Histogram { count: Some(10), ..whole.clone() };
    let fewer_numbers = Histogram { sum: f64::NAN, ..fewer.clone() };
    let wide = vec![Span { offset: 0, length: 1 }, Span { offset: i32::MAX, length: 2 }];
    let wide = Histogram { positive_spans: wide, ..whole };
    let more_faults = [zero, below, back, fewer, more, fewer_numbers].map(with).to_vec();
    let faults =
        [negative, uneven, unknown, not_a_number, unbound, unordered, wide].map(with).to_vec();
    let empty_name = series(&[("__name__", "up"), ("", "1")], &[sample(1.0, 1)]);
    let own_faults = vec![good.clone(), twice, nameless, empty_name];
    let all: Vec<_> = [own_faults, faults, more_faults].concat();
    let (request, read) = read_v1(&Memory::default(), all);
    assert_eq!((read.invalid, read.written.samples, read.written.histograms), (16, 1, 0));
    assert_eq!(numbers(metrics(&request)[0]).len(), 1);
    assert_eq!(read.reason, Some("a label stands twice"));

    let out_of_bounds = |labels: Vec<u32>, help| TimeSeriesV2 {
        labels,
        metadata: Some(MetadataV2 { kind: 1, help, unit: 0 }),
        samples: vec![sample(1.0, 1)],
        ..TimeSeriesV2::default()
    };
    let request = RequestV2 {
        symbols: ["", "__name__", "up"].map(str::to_owned).to_vec(),
        timeseries: vec![
            out_of_bounds(vec![1, 2], 0),
            out_of_bounds(vec![1, 3], 0),
            out_of_bounds(vec![1], 0),
            out_of_bounds(vec![1, 2], 3),
            TimeSeriesV2 { samples: vec![], ..out_of_bounds(vec![1, 2], 0) },
        ],
    };
    let (_, read) = decoded(Version::V2, &Memory::default(), &request.encode_to_vec());
    assert_eq!((read.invalid, read.written.samples), (4, 1));
}

/// Guarantee: values that are no number are in no bucket, and a resolution that is reserved becomes
/// the highest that is stored.
#[test]
fn native_histograms_are_judged_as_in_prometheus() {
    let [whole, ..] = histograms();
    let not_numbers = Histogram { sum: f64::NAN, count: Some(12), ..whole.clone() };
    let fine = Histogram { schema: 9, ..whole };
    let histograms = vec![not_numbers, fine];
    let series =
        TimeSeries { labels: labels(&[("__name__", "h")]), histograms, ..TimeSeries::default() };
    let (request, read) = read_v1(&Memory::default(), vec![series]);
    assert_eq!((read.invalid, read.written.histograms), (0, 2));
    let found = metrics(&request);
    let Some(Data::ExponentialHistogram(exponential)) = &found[0].data else { panic!("{found:?}") };
    assert_eq!(exponential.data_points[0].count, 12);
    let point = &exponential.data_points[1];
    let positive = point.positive.as_ref().expect("has buckets");
    assert_eq!((point.scale, &*positive.bucket_counts), (8, &[3, 4][..]));
}

/// Scenario: a series has its exemplars in another one with the same labels, as Prometheus sends
/// them, before or behind its samples. Guarantee: the first point of the series gets them, once.
/// Without a point they are lost, which a sender of 2.0 is told.
#[test]
fn exemplars_of_series_of_their_own_find_their_points() {
    let exemplar = |value| Exemplar { labels: labels(&[("user", "u")]), value, timestamp: 3 };
    let with = |pairs: &[(&str, &str)], value| TimeSeries {
        exemplars: vec![exemplar(value)],
        ..series(pairs, &[])
    };
    let (up, other) = ([("__name__", "up"), ("a", "1")], [("__name__", "up"), ("a", "2")]);
    let two = [sample(1.0, 1), sample(1.0, 2)];
    let all = vec![with(&up, 5.0), series(&up, &two), with(&other, 6.0), with(&up, 7.0)];
    let (request, read) = read_v1(&Memory::default(), all);
    assert_eq!((read.invalid, read.written.samples, read.written.exemplars), (0, 2, 2));
    let points = numbers(metrics(&request)[0]);
    let counts: Vec<usize> = points.iter().map(|point| point.exemplars.len()).collect();
    assert_eq!(counts, [2, 0]);

    let [histogram, ..] = histograms();
    let symbols = ["", "__name__", "h", "other"].map(str::to_owned).to_vec();
    let exemplar = |labels| ExemplarV2 { labels, value: 1.0, timestamp: 3 };
    let timeseries = vec![
        TimeSeriesV2 {
            labels: vec![1, 2],
            samples: vec![sample(1.0, 1)],
            histograms: vec![histogram],
            exemplars: vec![exemplar(vec![]), exemplar(vec![1, 9])],
            ..TimeSeriesV2::default()
        },
        TimeSeriesV2 {
            labels: vec![1, 3],
            exemplars: vec![exemplar(vec![])],
            ..TimeSeriesV2::default()
        },
    ];
    let request = RequestV2 { symbols, timeseries }.encode_to_vec();
    let (_, read) = decoded(Version::V2, &Memory::default(), &request);
    let expected = WrittenCounts { samples: 1, histograms: 1, exemplars: 1 };
    assert_eq!((read.invalid, read.written), (2, expected));
}

/// Guarantee: the labels of a series, which each of its samples has, cannot make a request large
/// without bound.
#[test]
fn a_request_is_bounded() {
    let long = "x".repeat(10_000);
    let samples = vec![sample(1.0, 1); 10_000];
    let series = series(&[("__name__", "up"), ("a", &long)], &samples);
    let message = WriteRequest { timeseries: vec![series], metadata: vec![] }.encode_to_vec();
    let error = read(Version::V1, &message, &Memory::default(), LIMIT).expect_err("is too large");
    assert_eq!(error, ReadError::TooLarge { limit_bytes: LIMIT });
}
