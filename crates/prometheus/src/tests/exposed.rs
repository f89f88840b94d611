use std::time::Duration;

use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, Sum, Summary, SummaryDataPoint, exemplar,
};

use super::build::{
    CUMULATIVE, SECOND_NS, counter, gauge, histogram, histogram_point, metric, number, request,
    scope, service, text,
};
use crate::exposed::{Added, Exposed, ExposedLimits, Page, PageFormat};
use crate::{Settings, Strategy};

const DELTA: i32 = 1;
const START: Duration = Duration::from_secs(1000);
const EXPIRATION: Duration = Duration::from_secs(300);
const TEXT: Page = Page { format: PageFormat::Text, timestamps: false, escapes: true };

fn settings() -> Settings {
    let (target_external_labels, scope_schema_url) = (false, true);
    Settings { target_external_labels, scope_schema_url, ..Settings::default() }
}

fn limited(settings: Settings, series: usize, bytes: usize) -> Exposed {
    Exposed::new(settings, ExposedLimits { expiration: EXPIRATION, series, bytes })
}

fn exposed() -> Exposed {
    limited(settings(), 1000, 1 << 20)
}

fn add(exposed: &mut Exposed, metrics: Vec<Metric>) -> Added {
    exposed.add(&request(&[], None, metrics), START).expect("is valid")
}

fn page(exposed: &mut Exposed, page: Page) -> String {
    String::from_utf8(exposed.page(page, START)).expect("text")
}

/// The samples of a page of text.
fn samples(exposed: &mut Exposed) -> Vec<String> {
    let page = page(exposed, TEXT);
    page.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn sum(temporality: i32, is_monotonic: bool, points: Vec<NumberDataPoint>) -> Metric {
    let (data_points, aggregation_temporality) = (points, temporality);
    metric("s", "", Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic }))
}

fn spanning(start: u64, end: u64, value: f64) -> NumberDataPoint {
    let (start_time_unix_nano, time_unix_nano) = (start * SECOND_NS, end * SECOND_NS);
    NumberDataPoint { start_time_unix_nano, time_unix_nano, ..number(&[], value) }
}

/// Guarantee: the page that the Collector's exporter serves, but for labels without a value.
#[test]
fn a_page_is_as_the_collectors() {
    let mut settings = settings();
    settings.namespace = "test".to_owned();
    settings.external_labels = vec![("foo".to_owned(), "bar".to_owned())];
    let mut exposed = limited(settings, 1000, 1 << 20);
    let os = |os: &str, value| number(&[text("arch", "x86"), text("os", os)], value);
    let mut took = histogram_point(&[]);
    took.count = 2_000_000;
    let metrics = vec![
        counter("this/one(where)", "By", &[os("windows", 99.0), os("linux", 100.0)]),
        gauge("load", "1", &[number(&[text("a\"b", "x\\y\n\"z")], 1_277_952.0)]),
        histogram("took", &[took]),
    ];
    let mut resource = service();
    resource.push(text("host.name", "h1"));
    let request = request(&resource, Some(scope("lib", "1.2")), metrics);
    let added = exposed.add(&request, START).expect("is valid");
    assert_eq!(added, Added { points: 4, ..Added::default() });
    let common = "instance=\"a:80\",job=\"eu/shop\"";
    let scope = "otel_scope_name=\"lib\",otel_scope_version=\"1.2\"";
    let of_took = format!("foo=\"bar\",{common},{scope}");
    let expected = format!(
        "\
# HELP test_load_ratio Help.
# TYPE test_load_ratio gauge
test_load_ratio{{a_b=\"x\\\\y\\n\\\"z\",foo=\"bar\",{common},{scope}}} 1.277952e+06
# HELP test_target_info Target metadata
# TYPE test_target_info gauge
test_target_info{{host_name=\"h1\",{common}}} 1
# HELP test_this_one_where_bytes_total Help.
# TYPE test_this_one_where_bytes_total counter
test_this_one_where_bytes_total{{arch=\"x86\",foo=\"bar\",{common},os=\"linux\",{scope}}} 100
test_this_one_where_bytes_total{{arch=\"x86\",foo=\"bar\",{common},os=\"windows\",{scope}}} 99
# HELP test_took_seconds Help.
# TYPE test_took_seconds histogram
test_took_seconds_bucket{{{of_took},le=\"0.5\"}} 1
test_took_seconds_bucket{{{of_took},le=\"10\"}} 3
test_took_seconds_bucket{{{of_took},le=\"+Inf\"}} 2e+06
test_took_seconds_sum{{{of_took}}} 21.5
test_took_seconds_count{{{of_took}}} 2e+06
"
    );
    assert_eq!(page(&mut exposed, TEXT), expected);
    let timed = page(&mut exposed, Page { timestamps: true, ..TEXT });
    assert!(timed.contains("1.277952e+06 2000\n"), "{timed}");
    assert!(timed.contains(&format!("{common}}} 1\n")), "target_info has no time: {timed}");
}

#[test]
fn openmetrics_has_exemplars_and_no_suffix_in_metadata() {
    let exemplar = |value, nanos| Exemplar {
        time_unix_nano: 3 * SECOND_NS + nanos,
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        value: Some(exemplar::Value::AsDouble(value)),
        ..Exemplar::default()
    };
    let mut counted = number(&[], 7.0);
    counted.exemplars = vec![exemplar(1.0, 0), exemplar(2.0, 5)];
    let mut took = histogram_point(&[text("le", "no")]);
    took.exemplars = vec![exemplar(0.5, 0), exemplar(7.0, 0), exemplar(8.0, 0), exemplar(99.0, 0)];
    let mut exposed = exposed();
    let ids = format!("{{span_id=\"{}\",trace_id=\"{}\"}}", "02".repeat(8), "01".repeat(16));
    add(&mut exposed, vec![counter("c", "", &[counted]), histogram("took", &[took])]);
    let open = Page { format: PageFormat::OpenMetrics, timestamps: true, ..TEXT };
    let expected = format!(
        "\
# HELP c Help.
# TYPE c counter
c_total 7 2.000 # {ids} 2.0 3.000000005
# HELP took_seconds Help.
# TYPE took_seconds histogram
took_seconds_bucket{{le=\"0.5\"}} 1 2.000 # {ids} 0.5 3.000000000
took_seconds_bucket{{le=\"10.0\"}} 3 2.000 # {ids} 8.0 3.000000000
took_seconds_bucket{{le=\"+Inf\"}} 6 2.000 # {ids} 99.0 3.000000000
took_seconds_sum 21.5 2.000
took_seconds_count 6 2.000
# EOF
"
    );
    assert_eq!(page(&mut exposed, open), expected);
}

#[test]
fn the_latest_point_of_a_series_counts_and_an_end_removes_it() {
    let mut exposed = exposed();
    let at = |time, value| spanning(1, time, value);
    add(&mut exposed, vec![sum(CUMULATIVE, true, vec![at(5, 1.0), at(7, 3.0), at(6, 2.0)])]);
    assert_eq!(samples(&mut exposed), ["s_total 3"]);
    let mut ended = at(8, 0.0);
    ended.flags = 1;
    let added = add(
        &mut exposed,
        vec![sum(
            CUMULATIVE,
            true,
            vec![ended, { NumberDataPoint { attributes: vec![text("a", "b")], ..at(8, 4.0) } }],
        )],
    );
    assert_eq!((added.points, added.refused), (2, 0));
    assert_eq!(samples(&mut exposed), ["s_total{a=\"b\"} 4"]);
}

/// Guarantee: sums as in the Collector's `accumulator_test.go`.
#[test]
fn changes_of_sums_add_up_from_where_the_last_ended() {
    let mut exposed = exposed();
    let deltas = vec![spanning(1, 2, 11.0), spanning(2, 3, 22.0), spanning(3, 4, 33.0)];
    add(&mut exposed, vec![sum(DELTA, true, deltas)]);
    assert_eq!(samples(&mut exposed), ["s_total 66"]);
    // After a gap the sender has begun anew.
    add(&mut exposed, vec![sum(DELTA, true, vec![spanning(5, 6, 1.0)])]);
    assert_eq!(samples(&mut exposed), ["s_total 1"]);
    let refused = |metric| add(&mut self::exposed(), vec![metric]);
    let added = refused(sum(DELTA, false, vec![spanning(1, 2, 1.0)]));
    assert!(added.refused == 1 && added.reason.contains("non-monotonic sum"), "{added:?}");
    assert_eq!(refused(sum(0, true, vec![spanning(1, 2, 1.0)])).refused, 1);
}

fn changes(points: &[(u64, u64, [u64; 3], [f64; 2])]) -> Metric {
    let point =
        |(start, end, counts, bounds): &(u64, u64, [u64; 3], [f64; 2])| HistogramDataPoint {
            start_time_unix_nano: start * SECOND_NS,
            time_unix_nano: end * SECOND_NS,
            count: counts.iter().sum(),
            sum: Some(10.0),
            bucket_counts: counts.to_vec(),
            explicit_bounds: bounds.to_vec(),
            ..HistogramDataPoint::default()
        };
    let data_points = points.iter().map(point).collect();
    let data = Histogram { data_points, aggregation_temporality: DELTA };
    metric("h", "", Data::Histogram(data))
}

/// Guarantee: histograms as in the Collector's `accumulator_test.go`.
#[test]
fn changes_of_histograms_add_up_unless_they_overlap() {
    const BOUNDS: [f64; 2] = [1.0, 2.0];
    let mut exposed = exposed();
    let both = changes(&[(1, 2, [1, 2, 3], BOUNDS), (2, 3, [4, 5, 6], BOUNDS)]);
    assert_eq!(add(&mut exposed, vec![both]).refused, 0);
    let twice = ["h_bucket{le=\"1\"} 5", "h_bucket{le=\"2\"} 12", "h_bucket{le=\"+Inf\"} 21"];
    assert_eq!(samples(&mut exposed)[..4], [&twice[..], &["h_sum 20"]].concat());
    let overlaps = changes(&[(2, 4, [9, 9, 9], BOUNDS)]);
    let added = add(&mut exposed, vec![overlaps]);
    assert!(added.refused == 1 && added.reason.contains("begins before"), "{added:?}");
    assert_eq!(samples(&mut exposed)[..3], twice);
    let other_bounds = changes(&[(3, 4, [1, 1, 1], [1.0, 5.0])]);
    add(&mut exposed, vec![other_bounds]);
    assert_eq!(samples(&mut exposed)[1], "h_bucket{le=\"5\"} 2");
    add(&mut exposed, vec![changes(&[(7, 8, [0, 0, 1], BOUNDS)])]);
    assert_eq!(samples(&mut exposed)[2], "h_bucket{le=\"+Inf\"} 1");
}

fn native(start: u64, scale: i32, positive: (i32, &[u64]), negative: (i32, &[u64])) -> Metric {
    let buckets =
        |(offset, counts): (i32, &[u64])| Some(Buckets { offset, bucket_counts: counts.to_vec() });
    let point = ExponentialHistogramDataPoint {
        start_time_unix_nano: start * SECOND_NS,
        time_unix_nano: (start + 1) * SECOND_NS,
        count: 6,
        sum: Some(3.5),
        scale,
        zero_count: 1,
        positive: buckets(positive),
        negative: buckets(negative),
        ..ExponentialHistogramDataPoint::default()
    };
    let data_points = vec![point];
    let data = ExponentialHistogram { data_points, aggregation_temporality: DELTA };
    metric("n", "", Data::ExponentialHistogram(data))
}

/// Guarantee: the buckets of the Collector's test "AccumulateAlignedMergesAndDownscales".
#[test]
fn changes_of_exponential_histograms_add_up_at_the_lower_resolution() {
    let mut exposed = exposed();
    add(&mut exposed, vec![native(1, 2, (-2, &[1, 2, 3]), (0, &[4]))]);
    add(&mut exposed, vec![native(2, 1, (-1, &[4, 5]), (0, &[1, 1]))]);
    let page = exposed.page(Page { format: PageFormat::Protobuf, ..TEXT }, START);
    // Schema 1 and the zero bucket, negative 5 and 1, positive 7 and 8.
    let threshold = 1e-128_f64.to_le_bytes();
    let negative: &[u8] = &[0x38, 2, 0x4a, 4, 8, 2, 16, 2, 0x50, 10, 0x50, 7];
    let positive: &[u8] = &[0x62, 4, 8, 0, 16, 2, 0x68, 14, 0x68, 2];
    let expected = [&[0x28, 2, 0x31], &threshold[..], negative, positive].concat();
    assert!(page.windows(expected.len()).any(|it| it == expected), "{page:02x?}");
    assert_eq!(samples(&mut exposed), ["n_bucket{le=\"+Inf\"} 12", "n_sum 7", "n_count 12"]);
    let added = add(&mut exposed, vec![native(3, -5, (0, &[1]), (0, &[]))]);
    assert!(added.reason.contains("scale must be >= -4, was -5"), "{added:?}");
}

/// Guarantee: buckets at both ends of what numbers allow take no memory between them.
#[test]
fn buckets_far_apart_do_not_fill_the_memory() {
    let mut exposed = exposed();
    add(&mut exposed, vec![native(1, 8, (i32::MIN, &[1]), (0, &[]))]);
    add(&mut exposed, vec![native(2, 8, (i32::MAX, &[1]), (0, &[]))]);
    assert!(exposed.bytes() < 10_000, "{}", exposed.bytes());
    assert_eq!(samples(&mut exposed)[2], "n_count 6", "the new one stands alone");
}

#[test]
fn a_conflict_of_types_is_counted_in_the_collectors_words() {
    let mut exposed = exposed();
    add(&mut exposed, vec![gauge("x", "", &[number(&[], 1.0)])]);
    let second = metric(
        "x",
        "",
        Data::Histogram(Histogram {
            data_points: vec![histogram_point(&[]), histogram_point(&[])],
            aggregation_temporality: CUMULATIVE,
        }),
    );
    let added = add(&mut exposed, vec![second, gauge("x", "", &[number(&[], 2.0)])]);
    let reason = "instrument type conflict, using existing type definition. instrument: x, \
                  existing: GAUGE, dropped: HISTOGRAM"
        .to_owned();
    assert_eq!(added, Added { points: 3, refused: 2, reason });
    assert_eq!(samples(&mut exposed), ["x 2"]);
}

/// Guarantee: what expires leaves the page, and takes nothing of the limits any more, also where no
/// page is asked for.
#[test]
fn series_expire() {
    let mut exposed = exposed();
    let named = |name: &str| gauge(name, "", &[number(&[], 1.0)]);
    let request = |name: &str| request(&service(), None, vec![named(name)]);
    exposed.add(&request("old"), START).expect("is valid");
    let later = START + Duration::from_secs(1);
    exposed.add(&request("new"), later).expect("is valid");
    let all = |exposed: &mut Exposed, now| {
        let page = String::from_utf8(exposed.page(TEXT, now)).expect("text");
        ["old{", "new{", "target_info{"].map(|it| page.contains(it))
    };
    assert_eq!(all(&mut exposed, START + EXPIRATION), [true, true, true]);
    let after = START + EXPIRATION + Duration::from_millis(1);
    assert_eq!(all(&mut exposed, after), [false, true, true]);
    exposed.expire(later + EXPIRATION + Duration::from_millis(1));
    assert_eq!((exposed.series(), exposed.bytes()), (0, 0));
    assert!(exposed.page(TEXT, later).is_empty());
}

#[test]
fn an_ended_series_gives_its_room_back() {
    let mut exposed = exposed();
    let mut point = histogram_point(&[text("a", "b")]);
    add(&mut exposed, vec![histogram("h", &[point.clone()])]);
    point.flags = 1;
    add(&mut exposed, vec![histogram("h", &[point])]);
    assert_eq!((exposed.series(), exposed.bytes()), (0, 0));
}

#[test]
fn target_info_has_the_last_attributes_of_a_target() {
    let mut exposed = exposed();
    for host in ["h1", "h2"] {
        let resource = [&service()[..], &[text("host.name", host)]].concat();
        let request = request(&resource, None, vec![gauge("x", "", &[number(&[], 1.0)])]);
        exposed.add(&request, START).expect("is valid");
    }
    let info = "target_info{host_name=\"h2\",instance=\"a:80\",job=\"eu/shop\"} 1";
    let samples = samples(&mut exposed);
    assert_eq!(samples.iter().filter(|it| it.contains("target_info")).collect::<Vec<_>>(), [info]);
    let no_instance = request(&service()[..2], None, vec![gauge("x", "", &[number(&[], 1.0)])]);
    let mut exposed = self::exposed();
    exposed.add(&no_instance, START).expect("is valid");
    assert_eq!(self::samples(&mut exposed), ["x{job=\"eu/shop\"} 1"]);
}

/// Guarantee: beyond the bounds points are counted, those of known series still count, and no page
/// is longer than its part of the bound.
#[test]
fn the_bounds_hold() {
    let points: Vec<_> =
        (0..500).map(|index| number(&[text("i", &format!("\"{index}\n"))], 1.0)).collect();
    let mut few = limited(settings(), 100, usize::MAX);
    let added = add(&mut few, vec![gauge("x", "", &points)]);
    assert_eq!((added.points, added.refused), (500, 400));
    assert!(added.reason.contains("at most 100 series"), "{}", added.reason);
    assert_eq!(add(&mut few, vec![gauge("x", "", &points[..100])]).refused, 0);
    let mut small = limited(settings(), usize::MAX, 100_000);
    let metrics = vec![gauge("x", "", &points), histogram("h", &[histogram_point(&[])])];
    let added = add(&mut small, metrics);
    assert!((1..500).contains(&added.refused), "{added:?}");
    assert!(small.bytes() <= 100_000);
    for format in [PageFormat::Text, PageFormat::OpenMetrics, PageFormat::Protobuf] {
        let page = small.page(Page { format, timestamps: true, ..TEXT }, START);
        assert!(page.len() < 20_000 && !page.is_empty(), "{}", page.len());
    }
}

#[test]
fn summaries_have_their_quantiles_in_order() {
    let quantile = |quantile, value| ValueAtQuantile { quantile, value };
    let point = SummaryDataPoint {
        attributes: vec![text("quantile", "no"), text("b", "c")],
        time_unix_nano: 2 * SECOND_NS,
        count: 4,
        sum: 8.0,
        quantile_values: vec![quantile(0.99, 3.0), quantile(0.5, 9.0), quantile(0.5, 1.0)],
        ..SummaryDataPoint::default()
    };
    let mut exposed = exposed();
    let data = Data::Summary(Summary { data_points: vec![point] });
    add(&mut exposed, vec![metric("s", "", data)]);
    let expected = [
        "s{b=\"c\",quantile=\"0.5\"} 1",
        "s{b=\"c\",quantile=\"0.99\"} 3",
        "s_sum{b=\"c\"} 8",
        "s_count{b=\"c\"} 4",
    ];
    assert_eq!(samples(&mut exposed), expected);
}

/// Guarantee: the pages of the Collector's test of translation strategies.
#[test]
fn names_are_escaped_for_readers_of_old_and_quoted_for_others() {
    let strategy = Strategy::NoUtf8EscapingWithSuffixes;
    let mut exposed = limited(Settings { strategy, ..settings() }, 100, 1 << 20);
    let points = [number(&[text("a.b", "c"), text("a/b", "d"), text("os", "x")], 1.0)];
    add(&mut exposed, vec![counter("this/one/there(where)", "By", &points)]);
    assert_eq!(samples(&mut exposed), ["this_one_there_where__bytes_total{a_b=\"c\",os=\"x\"} 1"]);
    let quoted = page(&mut exposed, Page { escapes: false, ..TEXT });
    let expected = "# HELP \"this/one/there(where)_bytes_total\" Help.\n\
                    # TYPE \"this/one/there(where)_bytes_total\" counter\n\
                    {\"this/one/there(where)_bytes_total\",\"a.b\"=\"c\",\"a/b\"=\"d\",\
                    os=\"x\"} 1\n";
    assert_eq!(quoted, expected);
}

#[test]
fn metrics_that_were_scraped_without_a_type_stay_without() {
    let mut untold = gauge("u", "", &[number(&[], 1.0)]);
    untold.metadata = vec![text("prometheus.type", "unknown")];
    let empty = metric("e", "", Data::Gauge(Gauge::default()));
    let mut exposed = exposed();
    add(&mut exposed, vec![untold, empty]);
    let page = page(&mut exposed, TEXT);
    assert_eq!(page, "# HELP u Help.\n# TYPE u untyped\nu 1\n");
}

/// Guarantee: a request that breaks off takes nothing away from the page.
#[test]
fn a_malformed_request_leaves_the_page_whole() {
    let mut exposed = exposed();
    add(&mut exposed, vec![gauge("x", "", &[number(&[], 1.0)])]);
    let whole = request(&[], None, vec![gauge("x", "", &[number(&[], 2.0), number(&[], 3.0)])]);
    for end in 0..whole.len() {
        let _ = exposed.add(&whole[..end], START);
        assert_eq!(samples(&mut exposed).len(), 1, "{end}");
    }
}
