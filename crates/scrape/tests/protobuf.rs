//! Pages of protobuf, written by another implementation of the wire format.

mod support;

use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogramDataPoint, HistogramDataPoint, Metric, metric,
};
use prost::Message;
use sluice_scrape::{Counts, Format, Limits, Report, ScrapeError, Scraper, Target};
use support::{START_MS, decode, metrics, numbers, take, target, text};

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(double, tag = "2")]
    value: f64,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

/// A gauge, a counter, or one of unknown type.
#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(message, optional, tag = "2")]
    exemplar: Option<Exemplar>,
    #[prost(message, optional, tag = "3")]
    start: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Quantile {
    #[prost(double, tag = "1")]
    quantile: f64,
    #[prost(double, tag = "2")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    quantile: Vec<Quantile>,
    #[prost(message, optional, tag = "4")]
    start: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    bound: f64,
    #[prost(message, optional, tag = "3")]
    exemplar: Option<Exemplar>,
    #[prost(double, tag = "4")]
    count_float: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(double, tag = "4")]
    count_float: f64,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(double, tag = "8")]
    zero_count_float: f64,
    #[prost(message, repeated, tag = "9")]
    negative_span: Vec<Span>,
    #[prost(sint64, repeated, packed = "false", tag = "10")]
    negative_delta: Vec<i64>,
    #[prost(double, repeated, packed = "false", tag = "11")]
    negative_count: Vec<f64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<Span>,
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
    #[prost(double, repeated, tag = "14")]
    positive_count: Vec<f64>,
    #[prost(message, optional, tag = "15")]
    start: Option<Timestamp>,
    #[prost(message, repeated, tag = "16")]
    exemplars: Vec<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "4")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "5")]
    untyped: Option<Number>,
    #[prost(int64, tag = "6")]
    time_ms: i64,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Family {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Sample>,
    #[prost(string, tag = "5")]
    unit: String,
}

const COUNTER: i32 = 0;
const GAUGE: i32 = 1;
const SUMMARY: i32 = 2;
const UNTYPED: i32 = 3;
const HISTOGRAM: i32 = 4;
const GAUGE_HISTOGRAM: i32 = 5;

fn page(families: &[Family]) -> Vec<u8> {
    families.iter().flat_map(Message::encode_length_delimited_to_vec).collect()
}

fn family(name: &str, kind: i32, metric: Vec<Sample>) -> Family {
    let unit = if name.ends_with("_bytes") { "bytes" } else { "" };
    let (name, help, unit) = (name.to_owned(), format!("Help of {name}"), unit.to_owned());
    Family { name, help, kind, metric, unit }
}

fn labels(pairs: &[(&str, &str)]) -> Vec<LabelPair> {
    pairs
        .iter()
        .map(|(name, value)| LabelPair { name: (*name).to_owned(), value: (*value).to_owned() })
        .collect()
}

fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 500_000_000 })
}

fn number(value: f64) -> Option<Number> {
    Some(Number { value, ..Number::default() })
}

fn histogram_family(histogram: Histogram) -> Family {
    family("h", HISTOGRAM, vec![Sample { histogram: Some(histogram), ..Sample::default() }])
}

fn convert_with(target: Target, families: &[Family]) -> Vec<Metric> {
    let mut scraper = Scraper::new(target);
    let page = page(families);
    let mut first = None;
    // A second scrape says the same.
    for _ in 0..2 {
        let outcome = take(&mut scraper, &page, Format::Protobuf, START_MS);
        assert_eq!(outcome.result, Ok(()));
        let found = metrics(&decode(&scraper.finish(&Report::default())).resource_metrics);
        assert_eq!(*first.get_or_insert_with(|| found.clone()), found);
    }
    first.expect("was scraped")
}

fn convert(families: &[Family]) -> Vec<Metric> {
    convert_with(target(), families)
}

fn exponential(metric: &Metric) -> &ExponentialHistogramDataPoint {
    match metric.data.as_ref() {
        Some(metric::Data::ExponentialHistogram(histogram)) => &histogram.data_points[0],
        other => panic!("no exponential histogram: {other:?}"),
    }
}

fn classic(metric: &Metric) -> &HistogramDataPoint {
    match metric.data.as_ref() {
        Some(metric::Data::Histogram(histogram)) => &histogram.data_points[0],
        other => panic!("no histogram: {other:?}"),
    }
}

#[test]
fn numbers_are_taken_with_their_labels_and_times() {
    let a_b = labels(&[("b", "1"), ("a", "x"), ("empty", "")]);
    let exemplar = Exemplar { label: labels(&[("c", "d")]), value: 2.0, timestamp: at(7) };
    let counter = Number { value: 3.0, exemplar: Some(exemplar), start: at(5) };
    let found = convert(&[
        family(
            "c_bytes",
            COUNTER,
            vec![
                Sample { label: a_b, counter: Some(counter), ..Sample::default() },
                Sample { counter: number(4.0), time_ms: 9000, ..Sample::default() },
            ],
        ),
        family("g", GAUGE, vec![Sample { gauge: number(5.0), ..Sample::default() }]),
        family("u.t", UNTYPED, vec![Sample { untyped: number(6.0), ..Sample::default() }]),
        family("none", GAUGE, vec![]),
    ]);
    let names: Vec<(&str, &str, &str)> =
        found.iter().map(|metric| (&*metric.name, &*metric.description, &*metric.unit)).collect();
    let expected =
        [("c_bytes", "Help of c_bytes", "By"), ("g", "Help of g", ""), ("u.t", "Help of u.t", "")];
    assert_eq!(names, expected);
    let values: Vec<(String, Option<f64>)> = numbers(&found).into_iter().collect();
    let expected = [("c_bytes{a=x,b=1}", 3.0), ("c_bytes{}", 4.0), ("g{}", 5.0), ("u.t{}", 6.0)];
    assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), Some(value))));
    let Some(metric::Data::Sum(sum)) = &found[0].data else { panic!("no sum") };
    assert!(sum.is_monotonic);
    let [first, second] = &sum.data_points[..] else { panic!("two points") };
    assert_eq!((first.start_time_unix_nano, second.start_time_unix_nano), (5_500_000_000, 0));
    assert_eq!(second.time_unix_nano, 9_000_000_000);
    assert_eq!(text(&first.exemplars[0].filtered_attributes), "c=d");
    assert_eq!(first.exemplars[0].time_unix_nano, 7_500_000_000);
}

#[test]
fn summaries_and_classic_histograms_are_put_together() {
    let quantile = [(0.5, 1.0), (0.9, 2.0)];
    let quantile = quantile.map(|(quantile, value)| Quantile { quantile, value }).to_vec();
    let summary = Summary { count: 7, sum: 8.5, quantile, start: at(1) };
    let bucket = [(1.0, 2), (2.0, 5)].map(|(bound, count)| Bucket {
        bound,
        count,
        exemplar: Some(Exemplar { value: bound, ..Exemplar::default() }),
        ..Bucket::default()
    });
    let histogram = Histogram {
        count: 9,
        sum: 10.5,
        bucket: bucket.to_vec(),
        start: at(2),
        ..Histogram::default()
    };
    let found = convert(&[
        family("s", SUMMARY, vec![Sample { summary: Some(summary), ..Sample::default() }]),
        histogram_family(histogram),
    ]);
    let Some(metric::Data::Summary(summary)) = &found[0].data else { panic!("no summary") };
    let point = &summary.data_points[0];
    assert_eq!((point.count, point.sum, point.start_time_unix_nano), (7, 8.5, 1_500_000_000));
    let quantiles: Vec<(f64, f64)> =
        point.quantile_values.iter().map(|value| (value.quantile, value.value)).collect();
    assert_eq!(quantiles, [(0.5, 1.0), (0.9, 2.0)]);
    let point = classic(&found[1]);
    assert_eq!((point.count, point.sum), (9, Some(10.5)));
    assert_eq!((&*point.explicit_bounds, &*point.bucket_counts), (&[1.0, 2.0][..], &[2, 3, 4][..]));
    assert_eq!(point.start_time_unix_nano, 2_500_000_000);
    assert_eq!(point.exemplars.len(), 2);
    assert_eq!(point.exemplars[0].time_unix_nano, START_MS as u64 * 1_000_000);
}

/// A histogram that is native and classic: 1, 3, 0 and 2 from 1 on, and 4 at -1.
fn native() -> Histogram {
    Histogram {
        count: 13,
        sum: 20.5,
        schema: 2,
        zero_threshold: 0.001,
        zero_count: 3,
        positive_span: vec![Span { offset: 1, length: 2 }, Span { offset: 1, length: 1 }],
        positive_delta: vec![1, 2, -1],
        negative_span: vec![Span { offset: -1, length: 1 }],
        negative_delta: vec![4],
        bucket: vec![Bucket { count: 13, bound: 5.0, ..Bucket::default() }],
        start: at(3),
        exemplars: vec![
            Exemplar { value: 1.0, timestamp: at(4), ..Exemplar::default() },
            Exemplar { value: 2.0, timestamp: None, ..Exemplar::default() },
        ],
        ..Histogram::default()
    }
}

#[test]
fn a_native_histogram_is_exponential() {
    let found = convert(&[histogram_family(native())]);
    assert_eq!((found.len(), &*found[0].name), (1, "h"));
    assert_eq!(text(&found[0].metadata), "prometheus.type=histogram");
    let point = exponential(&found[0]);
    assert_eq!((point.count, point.sum, point.scale), (13, Some(20.5), 2));
    assert_eq!((point.zero_count, point.zero_threshold), (3, 0.001));
    let positive = point.positive.as_ref().expect("has buckets");
    assert_eq!((positive.offset, &*positive.bucket_counts), (0, &[1, 3, 0, 2][..]));
    let negative = point.negative.as_ref().expect("has buckets");
    assert_eq!((negative.offset, &*negative.bucket_counts), (-2, &[4][..]));
    assert_eq!((point.start_time_unix_nano, point.exemplars.len()), (3_500_000_000, 1));
}

#[test]
fn a_native_histogram_of_fractions_is_cut_to_whole_counts() {
    let found = convert(&[histogram_family(Histogram {
        count_float: 13.5,
        zero_count_float: 3.5,
        positive_delta: vec![],
        positive_count: vec![1.5, 3.0, 2.9],
        negative_delta: vec![],
        negative_count: vec![4.0],
        ..native()
    })]);
    let point = exponential(&found[0]);
    assert_eq!((point.count, point.zero_count), (13, 3));
    let positive = point.positive.as_ref().expect("has buckets");
    assert_eq!(positive.bucket_counts, [1, 3, 0, 2]);
}

#[test]
fn a_histogram_is_native_or_classic_as_is_wanted() {
    let page = [histogram_family(native())];
    let found = convert_with(Target { native_histograms: false, ..target() }, &page);
    assert_eq!(found.len(), 1);
    assert_eq!(classic(&found[0]).bucket_counts, [13, 0]);
    let found = convert_with(Target { always_classic_histograms: true, ..target() }, &page);
    assert_eq!(found.len(), 2);
    assert_eq!(exponential(&found[0]).count, 13);
    assert_eq!(classic(&found[1]).count, 13);
    // A span without a bucket says that an empty histogram is native.
    let empty = Histogram { positive_span: vec![Span::default()], ..Histogram::default() };
    let found = convert(&[histogram_family(empty)]);
    let point = exponential(&found[0]);
    assert_eq!((point.count, point.positive.is_none()), (0, true));
}

/// Guarantee: what is scraped of a classic histogram, of one that is native too, and of one that is
/// only native is as in the tables of Prometheus' tests: classic, native, converted.
#[test]
fn histograms_are_taken_and_converted_as_in_prometheus() {
    let (sum, bucket) = (20.5, native().bucket);
    let classic_only = Histogram { count: 13, sum, bucket, ..Histogram::default() };
    let native_only = Histogram { bucket: vec![], ..native() };
    // A classic one is its count, its sum and two buckets.
    for (histogram, samples) in
        [(classic_only, [4, 4, 1, 5]), (native(), [1, 5, 1, 5]), (native_only, [1; 4])]
    {
        let page = page(&[histogram_family(histogram)]);
        let options = [(false, false), (true, false), (false, true), (true, true)];
        for ((always_classic_histograms, custom_histograms), samples) in
            options.into_iter().zip(samples)
        {
            let target =
                Target { always_classic_histograms, custom_histograms, ..support::target() };
            let outcome = take(&mut Scraper::new(target), &page, Format::Protobuf, START_MS);
            assert_eq!((outcome.counts.scraped, outcome.result), (samples, Ok(())));
        }
    }
}

#[test]
fn a_converted_histogram_has_its_bounds() {
    let bucket = [(1.0, 2), (2.0, 5)].map(|(bound, count)| Bucket {
        bound,
        count,
        exemplar: Some(Exemplar { value: bound, timestamp: at(3), ..Exemplar::default() }),
        ..Bucket::default()
    });
    let (bucket, none) = (bucket.to_vec(), Histogram::default);
    let histogram =
        || Histogram { count: 9, sum: 10.5, start: at(2), bucket: bucket.clone(), ..none() };
    let converted = Target { custom_histograms: true, ..target() };
    let page = [histogram_family(histogram())];
    let found = convert_with(converted.clone(), &page);
    assert_eq!(found, convert(&page));
    let both = Target { always_classic_histograms: true, ..converted.clone() };
    assert_eq!(convert_with(both, &page), found);
    let point = classic(&found[0]);
    assert_eq!((&*point.explicit_bounds, &*point.bucket_counts), (&[1.0, 2.0][..], &[2, 3, 4][..]));
    assert_eq!((point.start_time_unix_nano, point.exemplars.len()), (2_500_000_000, 2));
    // One that contradicts itself fails the page, as in Prometheus.
    let page = self::page(&[histogram_family(Histogram { count: 4, ..histogram() })]);
    let outcome = take(&mut Scraper::new(converted), &page, Format::Protobuf, START_MS);
    let error = outcome.result.expect_err("fails").to_string();
    assert!(error.contains("another count than its buckets"), "{error}");
}

/// Guarantee: a native histogram that has too many buckets gets a lower resolution. If none is low
/// enough, the page fails, and what it says of samples is as in Prometheus.
#[test]
fn a_native_histogram_has_a_limit_of_buckets() {
    let page = [
        histogram_family(native()),
        family("g", GAUGE, vec![Sample { gauge: number(1.0), ..Sample::default() }]),
    ];
    let limited = |native_buckets, native_schema| {
        let limits = Limits { native_buckets, ..Limits::default() };
        Target { limits, native_schema, ..target() }
    };
    for (buckets, schema, scale, positive, negative) in [
        (4, None, 2, &[1, 3, 0, 2][..], -2),
        (3, None, 1, &[4, 2], -1),
        (2, None, 0, &[6], -1),
        (0, Some(1), 1, &[4, 2], -1),
        (0, Some(3), 2, &[1, 3, 0, 2], -2),
        (2, Some(1), 0, &[6], -1),
    ] {
        let found = convert_with(limited(buckets, schema), &page);
        let point = exponential(&found[0]);
        assert_eq!((point.scale, point.count), (scale, 13), "{buckets} {schema:?}");
        let counts = &point.positive.as_ref().expect("has buckets").bucket_counts;
        assert_eq!(counts, positive, "{buckets} {schema:?}");
        assert_eq!(point.negative.as_ref().expect("has buckets").offset, negative);
    }
    let bytes = self::page(&page);
    let outcome = take(&mut Scraper::new(limited(1, None)), &bytes, Format::Protobuf, START_MS);
    assert_eq!(outcome.counts, Counts { scraped: 2, kept: 2, ..Counts::default() });
    let error = outcome.result.expect_err("fails");
    assert_eq!(error, ScrapeError::Buckets { metric: "h".to_owned(), limit: 1 });
}

#[test]
fn a_native_histogram_that_is_gone_is_stale() {
    let mut scraper = Scraper::new(target());
    let page = page(&[histogram_family(native())]);
    take(&mut scraper, &page, Format::Protobuf, START_MS);
    scraper.finish(&Report::default());
    scraper.absent(START_MS + 1);
    let found = metrics(&decode(&scraper.finish(&Report::default())).resource_metrics);
    let point = exponential(&found[0]);
    assert_eq!((point.flags, point.count, point.scale), (1, 0, 0));
}

#[test]
fn gauge_histograms_are_gauges() {
    let histogram = Histogram { count: 3, sum: 4.0, ..Histogram::default() };
    let sample = Sample { histogram: Some(histogram), ..Sample::default() };
    let found = convert(&[family("g", GAUGE_HISTOGRAM, vec![sample])]);
    let values: Vec<(String, Option<f64>)> = numbers(&found).into_iter().collect();
    let expected = [("g_count{}", 3.0), ("g_sum{}", 4.0), ("g{le=+Inf}", 3.0)];
    assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), Some(value))));
}

/// Guarantee: a page that is cut, or that contradicts itself, fails with its place.
#[test]
fn a_mistake_fails_the_page() {
    let whole = page(&[histogram_family(native())]);
    for len in 1..whole.len() {
        let outcome = take(&mut Scraper::new(target()), &whole[..len], Format::Protobuf, START_MS);
        assert!(matches!(outcome.result, Err(ScrapeError::Message { .. })), "{len}");
    }
    let reason = |family: Family| {
        let page = page(&[family]);
        let outcome = take(&mut Scraper::new(target()), &page, Format::Protobuf, START_MS);
        match outcome.result {
            Err(ScrapeError::Message { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let sample = || vec![Sample::default()];
    assert_eq!(reason(family("", GAUGE, sample())), "a metric has no name");
    assert!(reason(family("a", 6, sample())).contains("type"));
    let spans = Histogram { positive_delta: vec![1], ..native() };
    assert!(reason(histogram_family(spans)).contains("buckets"));
    let gap = Span { offset: i32::MAX, length: 1 };
    let hostile = Histogram {
        positive_span: vec![Span { offset: 0, length: 1 }, gap],
        positive_delta: vec![1, 1],
        ..native()
    };
    assert!(reason(histogram_family(hostile)).contains("too many"));
    assert!(reason(histogram_family(Histogram { schema: -53, ..native() })).contains("schema"));
}

/// Scenario: a target changes its format. Guarantee: its series go on, as the same points.
#[test]
fn a_change_of_format_ends_the_series_of_the_other() {
    let mut scraper = Scraper::new(target());
    take(&mut scraper, b"# TYPE g gauge\ng 1\n", Format::Text, START_MS);
    scraper.finish(&Report::default());
    let protobuf =
        page(&[family("g", GAUGE, vec![Sample { gauge: number(2.0), ..Sample::default() }])]);
    for _ in 0..2 {
        let outcome = take(&mut scraper, &protobuf, Format::Protobuf, START_MS + 1);
        assert_eq!(outcome.result, Ok(()));
        let found = metrics(&decode(&scraper.finish(&Report::default())).resource_metrics);
        assert_eq!(numbers(&found)["g{}"], Some(2.0));
        assert_eq!(numbers(&found).len(), 1);
    }
}

/// Scenario: a page of a few kilobytes, whose histograms have gaps of tens of thousands of buckets.
/// Guarantee: it fails before they take all memory.
#[test]
fn gaps_in_native_histograms_are_bounded() {
    let gaps = || Histogram {
        positive_span: vec![Span { offset: 0, length: 1 }, Span { offset: 60_000, length: 1 }],
        positive_delta: vec![1, 0],
        ..native()
    };
    let of = |histograms: usize| {
        let sample = |number: usize| Sample {
            label: labels(&[("number", &number.to_string())]),
            histogram: Some(gaps()),
            ..Sample::default()
        };
        let page = page(&[family("h", HISTOGRAM, (0..histograms).map(sample).collect())]);
        take(&mut Scraper::new(target()), &page, Format::Protobuf, START_MS).result
    };
    assert_eq!(of(100), Ok(()));
    let error = of(200).expect_err("fails").to_string();
    assert!(error.contains("the native histograms of the page have too many buckets"), "{error}");
}
