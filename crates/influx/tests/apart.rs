//! Points that InfluxDB would take for one get times of their own.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Histogram, HistogramDataPoint};
use proptest::prelude::*;
use prost::Message as _;
use sluice_influx::{
    Builder, Form, K6_COUNTERS, Limits, Moved, NoRoom, Precision, Reader, Settings, set_apart,
    write_as,
};
use sluice_otlp::{Signal, SplitLimits, parts};
use support::read;

const LIMIT_BYTES: usize = 1 << 20;

/// The request of a body, in which k6's counters are sums.
fn request(body: &str) -> Vec<u8> {
    let sums = K6_COUNTERS.iter().map(|name| (*name).to_owned()).collect();
    let mut builder = Builder::new(&Settings { sums });
    let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
    reader.read(body.as_bytes(), |line| builder.add(line, 7));
    reader.finish(|line| builder.add(line, 7));
    builder.take(&[("service.name", "k6"), ("influxdb.database", "db")])
}

fn lines(request: &[u8], precision: Precision) -> String {
    let form = Form { limit_bytes: LIMIT_BYTES, precision, needs_times: true };
    let mut out = Vec::new();
    let written = write_as(&form, request, &mut out).expect("is written");
    assert_eq!(written.left_out, 0);
    String::from_utf8(out).expect("text")
}

fn apart(request: &[u8], moved: Moved, precision: Precision) -> Option<Vec<u8>> {
    let changed = set_apart(request, moved, precision, LIMIT_BYTES).expect("a valid request");
    changed.expect("has room")
}

/// The sum of what InfluxDB keeps: of a series and a time the last value.
fn sum(lines: &str) -> f64 {
    let mut kept = BTreeMap::new();
    for line in lines.lines() {
        let (points, faults) = read(line.as_bytes());
        assert_eq!(faults.count, 0, "{faults}");
        for point in points {
            let value = line.split("value=").nth(1).and_then(|rest| rest.split(' ').next());
            let value: f64 = value.expect("a value").parse().expect("a number");
            let mut tags = point.tags;
            tags.sort();
            kept.insert((point.measurement, tags, point.time_ns), value);
        }
    }
    kept.values().sum()
}

/// Guarantee: increments of one series and time move to the next free times, those of other series
/// and gauges do not; what is no tag does not tell them apart, and the order of tags neither.
#[test]
fn only_what_would_be_lost_is_moved() {
    let body = "http_reqs,a=1,b=2 url=\"x\",value=1 100\n\
        http_reqs,b=2,a=1 url=\"y\",value=2 100\n\
        http_reqs,a=1,b=2 value=4 101\n\
        http_reqs,a=1,b=2 value=8 100\n\
        http_reqs,a=1,b=3 value=16 100\n\
        iterations,a=1,b=2 value=32 100\n\
        vus,a=1,b=2 value=1 100\n\
        vus,a=1,b=2 value=2 100\n";
    let changed = apart(&request(body), Moved::Deltas, Precision::Nanoseconds).expect("changes");
    let written = lines(&changed, Precision::Nanoseconds);
    let times = written.lines().map(|line| {
        let value = line.split("value=").nth(1).expect("a value");
        (line.split(',').next().expect("a name"), value)
    });
    let times: BTreeSet<_> = times.collect();
    let expected = BTreeSet::from([
        ("http_reqs", "1 100"),
        ("http_reqs", "2 102"),
        ("http_reqs", "4 101"),
        ("http_reqs", "8 103"),
        ("http_reqs", "16 100"),
        ("iterations", "32 100"),
        ("vus", "1 100"),
        ("vus", "2 100"),
    ]);
    assert_eq!(times, expected, "{written}");
    let all = apart(&request(body), Moved::All, Precision::Nanoseconds).expect("changes");
    assert!(lines(&all, Precision::Nanoseconds).contains("value=2 101"));
    let clear = "http_reqs value=1 100\nhttp_reqs value=1 101\nvus value=1 5\nvus value=1 5\n";
    assert_eq!(apart(&request(clear), Moved::Deltas, Precision::Nanoseconds), None);
    assert_eq!(apart(b"", Moved::All, Precision::Nanoseconds), None);
}

/// Scenario: times are written in milliseconds. Guarantee: points are told apart by milliseconds,
/// too, since those that are cut to the same one would be one.
#[test]
fn a_longer_unit_has_longer_steps() {
    let body = "http_reqs value=1 5000000\nhttp_reqs value=2 5999999\nhttp_reqs value=4 6500000\n";
    let changed = apart(&request(body), Moved::Deltas, Precision::Milliseconds).expect("changes");
    let written = lines(&changed, Precision::Milliseconds);
    for line in ["value=1 5\n", "value=2 7\n", "value=4 6\n"] {
        assert!(written.contains(line), "{written}");
    }
}

/// Guarantee: points of the last time that InfluxDB knows, and without a time, stay as they are;
/// where memory is short, nothing is done.
#[test]
fn there_is_an_end_of_time_and_of_memory() {
    let last = i64::MAX - 1;
    let body = format!("http_reqs value=1 {last}\nhttp_reqs value=2 {last}\n");
    let changed = apart(&request(&body), Moved::Deltas, Precision::Nanoseconds);
    assert_eq!(changed.as_deref(), Some(&*request(&body)));
    let body = "http_reqs value=1 5\nhttp_reqs value=2 5\n";
    for limit_bytes in [0, 24, 60] {
        let changed = set_apart(&request(body), Moved::All, Precision::Nanoseconds, limit_bytes);
        assert_eq!(changed, Ok(Err(NoRoom)), "{limit_bytes}");
    }
    assert!(set_apart(b"\x0a\xff", Moved::All, Precision::Nanoseconds, LIMIT_BYTES).is_err());
}

/// Scenario: histograms of deltas, and cumulative ones. Guarantee: only the former are moved.
#[test]
fn histograms_of_deltas_are_told_apart_too() {
    let point = HistogramDataPoint {
        time_unix_nano: 5,
        count: 1,
        sum: Some(1.0),
        ..HistogramDataPoint::default()
    };
    let mut message =
        ExportMetricsServiceRequest::decode(&*request("http_reqs value=1 5\n")).expect("metrics");
    for (aggregation_temporality, is_moved) in [(1, true), (2, false)] {
        let data_points = vec![point.clone(), point.clone()];
        let histogram = Histogram { data_points, aggregation_temporality };
        let metric = &mut message.resource_metrics[0].scope_metrics[0].metrics[0];
        metric.data = Some(Data::Histogram(histogram));
        let changed = apart(&message.encode_to_vec(), Moved::Deltas, Precision::Nanoseconds);
        assert_eq!(changed.is_some(), is_moved);
    }
}

proptest! {
    /// Guarantee: whatever collides, InfluxDB has the whole sum; the result is the same each time,
    /// also for the result itself, and in whatever parts it is written.
    #[test]
    fn sums_are_right(
        samples in prop::collection::vec((0..3_u8, 0..12_i64, 1..9_u32), 1..60),
        precision in prop_oneof![Just(Precision::Nanoseconds), Just(Precision::Microseconds)],
        part in 1..20_usize,
    ) {
        let step = if precision == Precision::Nanoseconds { 1 } else { 400 };
        let body: String = samples
            .iter()
            .map(|(tag, time, value)| format!("http_reqs,t={tag} value={value} {}\n", time * step))
            .collect();
        let before = request(&body);
        let changed = apart(&before, Moved::Deltas, precision);
        prop_assert_eq!(&apart(&before, Moved::Deltas, precision), &changed);
        let after = changed.unwrap_or(before);
        prop_assert_eq!(apart(&after, Moved::Deltas, precision), None);
        let expected: f64 = samples.iter().map(|(_, _, value)| f64::from(*value)).sum();
        prop_assert_eq!(sum(&lines(&after, precision)), expected);
        let limits = SplitLimits { max_items: part, max_bytes: usize::MAX };
        let mut all = String::new();
        for part in parts(Signal::Metrics, &after.into(), limits).expect("can be cut") {
            all.push_str(&lines(&part.expect("a part").bytes(), precision));
        }
        prop_assert_eq!(sum(&all), expected);
    }
}
