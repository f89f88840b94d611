use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar as OtlpExemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Summary,
    SummaryDataPoint, exemplar,
};
use prost::Message;

use super::build::{
    CUMULATIVE, SECOND_NS, attribute, counter, gauge, histogram, histogram_point, metric, number,
    request, scope, service, text,
};
use super::messages::{
    Histogram, Label, MetricMetadata, RequestV2, Span, TimeSeries, WriteRequest, labels_of,
};
use crate::series::STALE;
use crate::{
    Counts, CustomBuckets, Pattern, ResourceLabels, Settings, Strategy, Version, WriteError, write,
};

fn bare() -> Settings {
    Settings { target_info: false, ..Settings::default() }
}

fn v1(settings: &Settings, request: &[u8]) -> WriteRequest {
    let written = write(settings, request).expect("is written").parts.concat();
    WriteRequest::decode(&*written).expect("decodes")
}

fn v2(settings: &Settings, request: &[u8]) -> RequestV2 {
    let settings = Settings { version: Version::V2, ..settings.clone() };
    let written = write(&settings, request).expect("is written").parts.concat();
    RequestV2::decode(&*written).expect("decodes")
}

/// `name{a="b"} value@time`, one a series.
fn shown(series: &[TimeSeries]) -> Vec<String> {
    let one = |series: &TimeSeries| {
        let labels = labels_of(&series.labels);
        let pairs = labels.iter().filter(|(name, _)| **name != "__name__");
        let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
        let samples: Vec<String> =
            series.samples.iter().map(|it| format!("{}@{}", it.value, it.timestamp)).collect();
        format!("{}{{{}}} {}", labels["__name__"], pairs.join(","), samples.join(" "))
    };
    series.iter().map(one).collect()
}

fn both(settings: &Settings, request: &[u8]) -> Vec<String> {
    let (first, second) = (v1(settings, request), v2(settings, request));
    let shown_first = shown(&first.timeseries);
    assert_eq!(shown_first, shown(&second.as_v1()));
    shown_first
}

#[test]
fn points_become_series() {
    let points = [number(&[text("http.method", "GET"), text("Zone", "z")], 1.5)];
    let metrics = vec![
        gauge("cpu.use", "1", &points),
        counter("requests", "", &[number(&[], 3.0)]),
        histogram("took", &[histogram_point(&[text("path", "/")])]),
    ];
    let request = request(&service(), None, metrics);
    let common = "instance=a:80,job=eu/shop";
    let expected = [
        format!("cpu_use_ratio{{Zone=z,http_method=GET,{common}}} 1.5@2000"),
        format!("requests_total{{{common}}} 3@2000"),
        format!("took_seconds_sum{{{common},path=/}} 21.5@2000"),
        format!("took_seconds_count{{{common},path=/}} 6@2000"),
        format!("took_seconds_bucket{{{common},le=0.5,path=/}} 1@2000"),
        format!("took_seconds_bucket{{{common},le=10,path=/}} 3@2000"),
        format!("took_seconds_bucket{{{common},le=+Inf,path=/}} 6@2000"),
    ];
    assert_eq!(both(&bare(), &request), expected);
    let counts = write(&bare(), &request).expect("is written").counts;
    assert_eq!(counts, Counts { points: 3, samples: 7, ..Counts::default() });
}

#[test]
fn labels_come_from_scopes_resources_and_settings_by_rank() {
    let attributes = [
        text("a.b", "one"),
        text("a/b", "two"),
        text("a_b", "one"),
        text("job", "own"),
        text("empty", ""),
        text("region", "here"),
        attribute("count", Value::IntValue(-7)),
        text("__name__", "no"),
        text("otel_scope_name", "no"),
    ];
    let mut resource = service();
    resource.extend([text("host.name", "h1"), text("region", "there")]);
    let metrics = vec![gauge("up", "", &[number(&attributes, 1.0)])];
    let request = request(&resource, Some(scope("lib", "1.2")), metrics);
    let external = |name: &str| (name.to_owned(), "external".to_owned());
    let settings = Settings { external_labels: vec![external("job"), external("zone")], ..bare() };
    let series = both(&settings, &request);
    let expected = "up{a_b=one;two;one,count=-7,instance=a:80,job=eu/shop,otel_scope_name=lib,\
                    otel_scope_version=1.2,region=here,zone=external} 1@2000";
    assert_eq!(series, [expected]);
    let settings = Settings {
        scope_info: false,
        resource_labels: ResourceLabels::Matching {
            included: vec![Pattern::new("*")],
            excluded: vec![Pattern::new("service.*")],
        },
        ..bare()
    };
    let expected = "up{a_b=one;two;one,count=-7,host_name=h1,instance=a:80,job=eu/shop,\
                    otel_scope_name=no,region=there} 1@2000";
    assert_eq!(both(&settings, &request), [expected]);
}

#[test]
fn a_resource_becomes_target_info() {
    let mut resource = service();
    resource.push(text("host.name", "h1"));
    let points = [number(&[], 1.0), number(&[], 2.0)];
    let metrics = vec![gauge("a", "", &points[..1]), gauge("b", "", &points[1..])];
    let twice = request(&resource, None, metrics).repeat(2);
    let settings = Settings { namespace: "ns".to_owned(), ..Settings::default() };
    let series = both(&settings, &twice);
    let info = "ns_target_info{host_name=h1,instance=a:80,job=eu/shop} 1@2000";
    assert_eq!(series.iter().filter(|series| *series == info).count(), 1, "{series:?}");
    assert_eq!(series.len(), 5);
    // Without more than its name, or without a name, it says nothing.
    for resource in [service(), vec![text("host.name", "h1")]] {
        let request = request(&resource, None, vec![gauge("a", "", &points[..1])]);
        assert_eq!(both(&Settings::default(), &request).len(), 1);
    }
}

#[test]
fn summaries_have_quantiles() {
    let point = SummaryDataPoint {
        attributes: vec![text("quantile", "no"), text("b", "c")],
        time_unix_nano: 2 * SECOND_NS,
        count: 4,
        sum: 8.0,
        quantile_values: vec![
            ValueAtQuantile { quantile: 0.5, value: 1.0 },
            ValueAtQuantile { quantile: 1.0, value: 3.0 },
        ],
        ..SummaryDataPoint::default()
    };
    let data = Data::Summary(Summary { data_points: vec![point] });
    let request = request(&[], None, vec![metric("s", "", data)]);
    let expected = [
        "s_sum{b=c} 8@2000",
        "s_count{b=c} 4@2000",
        "s{b=c,quantile=0.5} 1@2000",
        "s{b=c,quantile=1} 3@2000",
    ];
    assert_eq!(both(&bare(), &request), expected);
}

#[test]
fn exponential_histograms_become_native_ones() {
    let buckets = |offset, counts: &[u64]| Some(Buckets { offset, bucket_counts: counts.to_vec() });
    let point = |flags| ExponentialHistogramDataPoint {
        start_time_unix_nano: SECOND_NS,
        time_unix_nano: 2 * SECOND_NS,
        count: 11,
        sum: Some(5.0),
        scale: 1,
        zero_count: 2,
        positive: buckets(-1, &[4, 2]),
        negative: buckets(0, &[3]),
        flags,
        ..ExponentialHistogramDataPoint::default()
    };
    let data = Data::ExponentialHistogram(ExponentialHistogram {
        data_points: vec![point(0), point(1)],
        aggregation_temporality: CUMULATIVE,
    });
    let request = request(&[], None, vec![metric("h", "", data)]);
    let series = v1(&bare(), &request).timeseries;
    let expected = Histogram {
        count: Some(11),
        sum: 5.0,
        schema: 1,
        zero_threshold: 1e-128,
        zero_count: Some(2),
        positive_spans: vec![Span { offset: 0, length: 2 }],
        positive_deltas: vec![4, -2],
        negative_spans: vec![Span { offset: 1, length: 1 }],
        negative_deltas: vec![3],
        timestamp: 2000,
        ..Histogram::default()
    };
    assert_eq!(series[0].histograms, std::slice::from_ref(&expected));
    assert_eq!(series[1].histograms[0].sum.to_bits(), STALE.to_bits());
    assert_eq!(labels_of(&series[0].labels)["__name__"], "h");
    let series = v2(&bare(), &request).as_v1();
    assert_eq!(series[0].histograms, [Histogram { start: 1000, ..expected }]);
}

#[test]
fn explicit_buckets_become_native_ones_if_that_is_wanted() {
    let request = request(&[], None, vec![histogram("h", &[histogram_point(&[])])]);
    for (custom_buckets, native, samples) in
        [(CustomBuckets::Classic, 0, 5), (CustomBuckets::Native, 1, 0), (CustomBuckets::Both, 1, 5)]
    {
        let settings = Settings { custom_buckets, ..bare() };
        let series = v1(&settings, &request).timeseries;
        let found: Vec<_> = series.iter().flat_map(|series| &series.histograms).collect();
        assert_eq!(found.len(), native, "{custom_buckets:?}");
        assert_eq!(series.iter().map(|it| it.samples.len()).sum::<usize>(), samples);
        for found in found {
            assert_eq!((found.schema, &*found.custom_values), (-53, &[0.5, 10.0][..]));
            assert_eq!(found.positive_deltas, [1, 1, 1]);
        }
        assert_eq!(v2(&settings, &request).as_v1().len(), series.len());
    }
}

#[test]
fn ended_series_get_the_stale_value() {
    let mut ended = number(&[], 1.0);
    ended.flags = 1;
    let mut ended_histogram = histogram_point(&[]);
    ended_histogram.flags = 1;
    let metrics = vec![gauge("g", "", &[ended]), histogram("h", &[ended_histogram])];
    let series = v1(&bare(), &request(&[], None, metrics)).timeseries;
    assert_eq!(series.len(), 6);
    for series in series {
        assert_eq!(series.samples[0].value.to_bits(), 0x7ff0_0000_0000_0002);
    }
}

fn exemplar(value: f64, attributes: &[(&str, &str)]) -> OtlpExemplar {
    OtlpExemplar {
        filtered_attributes: attributes.iter().map(|(key, value)| text(key, value)).collect(),
        time_unix_nano: 2 * SECOND_NS,
        span_id: vec![0xab; 8],
        trace_id: vec![0x01; 16],
        value: Some(exemplar::Value::AsDouble(value)),
    }
}

#[test]
fn exemplars_stay_with_their_series() {
    let mut point = histogram_point(&[]);
    point.exemplars = vec![exemplar(7.0, &[("user", "u1")]), exemplar(70.0, &[])];
    let mut count = number(&[], 1.0);
    count.exemplars = vec![exemplar(1.0, &[("long", &"x".repeat(100))])];
    let metrics = vec![histogram("h", &[point]), counter("c", "", &[count])];
    let request = request(&[], None, metrics);
    for series in [v1(&bare(), &request).timeseries, v2(&bare(), &request).as_v1()] {
        let found: Vec<(String, f64, String)> = series
            .iter()
            .flat_map(|series| series.exemplars.iter().map(move |it| (series, it)))
            .map(|(series, exemplar)| {
                let labels = labels_of(&series.labels);
                let bound = labels.get("le").unwrap_or(&"none").to_string();
                let pairs = labels_of(&exemplar.labels);
                let names: Vec<&str> = pairs.keys().copied().collect();
                assert_eq!(pairs["trace_id"], "01".repeat(16));
                assert_eq!((pairs["span_id"], exemplar.timestamp), (&*"ab".repeat(8), 2000));
                (bound, exemplar.value, names.join(","))
            })
            .collect();
        let expected = [
            ("10".to_owned(), 7.0, "span_id,trace_id,user".to_owned()),
            ("+Inf".to_owned(), 70.0, "span_id,trace_id".to_owned()),
            ("none".to_owned(), 1.0, "span_id,trace_id".to_owned()),
        ];
        assert_eq!(found, expected);
    }
}

#[test]
fn metadata_is_told_in_both_versions() {
    let metrics = vec![counter("io", "By", &[number(&[], 1.0)]), gauge("g", "", &[])];
    let request = request(&[], None, metrics);
    assert_eq!(v1(&bare(), &request).metadata, []);
    let settings = Settings { send_metadata: true, ..bare() };
    let told = v1(&settings, &request.repeat(2)).metadata;
    let (help, unit) = ("Help.".to_owned(), "bytes".to_owned());
    let io = MetricMetadata { kind: 1, name: "io_bytes_total".to_owned(), help, unit };
    assert_eq!(told.len(), 2);
    assert_eq!(told[0], io);
    let found = v2(&bare(), &request);
    let told = found.timeseries[0].metadata.expect("is there");
    assert_eq!((told.kind, found.text(told.help), found.text(told.unit)), (1, "Help.", "bytes"));
    assert_eq!(found.symbols[0], "");
    assert_eq!(found.timeseries[0].samples[0].start, 1000);
}

#[test]
fn names_may_stay_as_they_are() {
    let metrics = vec![counter("a.b", "s", &[number(&[text("c.d", "e")], 1.0)])];
    let request = request(&[], None, metrics);
    for (strategy, expected) in [
        (Strategy::NoTranslation, "a.b{c.d=e} 1@2000"),
        (Strategy::NoUtf8EscapingWithSuffixes, "a.b_seconds_total{c.d=e} 1@2000"),
        (Strategy::UnderscoreEscapingWithoutSuffixes, "a_b{c_d=e} 1@2000"),
    ] {
        assert_eq!(both(&Settings { strategy, ..bare() }, &request), [expected]);
    }
}

/// Guarantee: a point that is left out is counted.
#[test]
fn points_that_cannot_be_expressed_are_counted() {
    let mut delta = counter("d", "", &[number(&[], 1.0), number(&[], 2.0)]);
    if let Some(Data::Sum(sum)) = &mut delta.data {
        sum.aggregation_temporality = 1;
    }
    let many: Vec<_> = (0..3000).map(|index| text(&format!("k{index}"), "v")).collect();
    let metrics =
        vec![delta, gauge("字", "", &[number(&[], 1.0)]), gauge("m", "", &[number(&many, 1.0)])];
    let written = write(&bare(), &request(&[], None, metrics)).expect("is written");
    assert_eq!(written.counts, Counts { points: 4, dropped: 4, ..Counts::default() });
    assert!(written.parts.is_empty());
}

/// Guarantee: a request that becomes too large is refused before it takes more memory, whatever
/// makes it large.
#[test]
fn a_message_is_bounded() {
    let settings = Settings { limit_bytes: 100_000, ..bare() };
    let points: Vec<_> = (0..10_000).map(|_| number(&[text("key", "value")], 1.0)).collect();
    let many_points = request(&service(), None, vec![gauge("g", "", &points)]);
    let mut wide = histogram_point(&[text("long", &"x".repeat(50_000))]);
    wide.bucket_counts = vec![1; 10_001];
    wide.explicit_bounds = (0..10_000).map(f64::from).collect();
    let many_buckets = request(&[], None, vec![histogram("h", &[wide])]);
    for version in [Version::V1, Version::V2] {
        let settings = Settings { version, ..settings.clone() };
        let found = write(&settings, &many_points).expect_err("is too large");
        assert_eq!(found, WriteError::TooLarge { limit_bytes: 100_000 });
    }
    let found = write(&settings, &many_buckets).expect_err("is too large");
    assert_eq!(found, WriteError::TooLarge { limit_bytes: 1_600_000 });
}

#[test]
fn layouts_of_other_resources_are_not_mixed_up() {
    let of = |resource: &[_], keys: &[&str]| {
        let attributes: Vec<_> = keys.iter().map(|key| text(key, "v")).collect();
        request(resource, None, vec![gauge("g", "", &[number(&attributes, 1.0)])])
    };
    let other = [text("service.name", "other")];
    let requests = [
        of(&service(), &["a", "b"]),
        of(&other, &["a", "b"]),
        of(&other, &["b", "a"]),
        of(&[], &["a"]),
        of(&service(), &["a", "b"]),
    ];
    let alone: Vec<String> = requests.iter().flat_map(|it| both(&bare(), it)).collect();
    assert_eq!(both(&bare(), &requests.concat()), alone);
    let label = |name: &str| Label { name: name.to_owned(), value: "v".to_owned() };
    assert!(labels_of(&[label("a"), label("b")]).contains_key("a"));
}
