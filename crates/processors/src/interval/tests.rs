use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics,
    Sum, Summary, SummaryDataPoint,
};
use prost::Message;
use sluice_config::read_text;
use sluice_otlp::count;

use super::aggregate::Counts;
use super::*;

mod lines;
mod property;

const SECOND: u64 = 1_000_000_000;
/// A bucket of ten seconds begins here.
const BASE: u64 = 1_700_000_000 * SECOND;
const LIMIT_BYTES: usize = 1 << 20;
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

fn options(yaml: &str) -> Arc<Options> {
    let (options, diagnostics) = read_text("p", yaml, options::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    Arc::new(options)
}

fn text_value(text: &str) -> Value {
    Value::StringValue(text.to_owned())
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(text_value(value)) });
    KeyValue { key: key.to_owned(), value, ..Default::default() }
}

fn point(series: &str, time: u64, value: Number) -> NumberDataPoint {
    let attributes = vec![attribute("series", series)];
    NumberDataPoint { attributes, time_unix_nano: time, value: Some(value), ..Default::default() }
}

fn sum(name: &str, temporality: i32, data_points: Vec<NumberDataPoint>) -> Metric {
    let data = Sum { data_points, aggregation_temporality: temporality, is_monotonic: true };
    metric(name, Data::Sum(data))
}

fn gauge(name: &str, data_points: Vec<NumberDataPoint>) -> Metric {
    metric(name, Data::Gauge(Gauge { data_points }))
}

fn metric(name: &str, data: Data) -> Metric {
    let unit = "ms".to_owned();
    Metric { name: name.to_owned(), unit, data: Some(data), ..Default::default() }
}

fn request(metrics: Vec<Metric>) -> Bytes {
    let scope_metrics = vec![ScopeMetrics { metrics, ..Default::default() }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics, ..Default::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into()
}

/// A point of a number as it came out.
#[derive(Clone, Debug, PartialEq)]
struct Out {
    name: String,
    series: String,
    time: u64,
    start: u64,
    value: f64,
    is_sum: bool,
    unit: String,
    /// `sluice.quantiles` of its metric.
    note: String,
}

fn metrics_of(request: &[u8]) -> Vec<Metric> {
    let request = ExportMetricsServiceRequest::decode(request).expect("is valid");
    let scopes = request.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
    scopes.flat_map(|it| it.metrics).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        _ => String::new(),
    }
}

fn numbers_of(request: &[u8]) -> Vec<Out> {
    let mut out = Vec::new();
    for metric in metrics_of(request) {
        let (is_sum, points) = match metric.data {
            Some(Data::Sum(data)) => (true, data.data_points),
            Some(Data::Gauge(data)) => (false, data.data_points),
            _ => continue,
        };
        let note = metric.metadata.into_iter().find(|it| it.key == "sluice.quantiles");
        let note = text(note.and_then(|note| note.value));
        for point in points {
            let value = match point.value {
                Some(Number::AsInt(value)) => value as f64,
                Some(Number::AsDouble(value)) => value,
                None => f64::NAN,
            };
            let series = point.attributes.into_iter().next().and_then(|it| it.value);
            out.push(Out {
                name: metric.name.clone(),
                series: text(series),
                time: point.time_unix_nano,
                start: point.start_time_unix_nano,
                value,
                is_sum,
                unit: metric.unit.clone(),
                note: note.clone(),
            });
        }
    }
    out
}

/// An aggregator and its time.
struct Pipe {
    options: Arc<Options>,
    aggregator: Aggregator,
    now: u64,
}

impl Pipe {
    fn new(yaml: &str) -> Pipe {
        let (options, now) = (options(yaml), BASE);
        Pipe { aggregator: Aggregator::new(options.clone(), now), options, now }
    }

    /// The rest of a request, which is kept or refused.
    fn pass(&mut self, request: &Bytes, is_kept: bool) -> Bytes {
        self.aggregator.begin(&self.options, self.now);
        let left = walk::walk(request, &mut self.aggregator).expect("is valid");
        if is_kept {
            self.aggregator.keep();
        } else {
            self.aggregator.undo_to(0);
        }
        left.unwrap_or_else(|| request.clone())
    }

    fn put(&mut self, metrics: Vec<Metric>) -> Bytes {
        self.pass(&request(metrics), true)
    }

    /// Everything that is sealed.
    fn written(&mut self) -> Vec<Bytes> {
        let mut out = Vec::new();
        while let Some((bytes, items)) = self.aggregator.take(LIMIT_BYTES) {
            assert_eq!(count(Signal::Metrics, &bytes), Ok(items));
            self.aggregator.keep();
            out.push(bytes);
        }
        out
    }

    /// All that is due after this many seconds since the base.
    fn at(&mut self, seconds: u64) -> Vec<Out> {
        self.now = BASE + seconds * SECOND;
        self.aggregator.seal(self.now);
        self.written().iter().flat_map(|bytes| numbers_of(bytes)).collect()
    }

    fn all(&mut self) -> Vec<Out> {
        self.aggregator.seal_all();
        self.written().iter().flat_map(|bytes| numbers_of(bytes)).collect()
    }
}

fn brief(out: &[Out]) -> Vec<(&str, &str, u64, f64)> {
    let each = out.iter();
    let mut brief: Vec<_> =
        each.map(|it| (it.name.as_str(), it.series.as_str(), it.time - BASE, it.value)).collect();
    brief.sort_by(|one, other| one.partial_cmp(other).expect("no NaN"));
    brief
}

const TEN: &str = "{interval: 10s, allowed_lateness: 2s}";

/// Scenario: points of two metrics are taken, refused, and written in two turns, of which the first
/// is taken back. Guarantee: the ledger has each point once, by measurement: those taken, those
/// made of them, and in between those in buckets.
#[test]
fn points_are_counted_by_measurement() {
    let rules = "rules: [{metrics: [latency], match_type: strict, statistics: [count, max]}]";
    let mut pipe = Pipe::new(&format!("{{interval: 10s, allowed_lateness: 2s, {rules}}}"));
    let points = |series: &str, number: u64| -> Vec<_> {
        (0..number).map(|at| point(series, BASE + at, Number::AsInt(1))).collect()
    };
    let metrics = || {
        let two = [points("a", 3), points("b", 2)].concat();
        vec![sum("requests", DELTA, two), gauge("latency", points("a", 4))]
    };
    pipe.pass(&request(metrics()), false);
    pipe.put(metrics());
    pipe.put(vec![sum("requests", DELTA, points("a", 1))]);
    let aggregated = pipe.aggregator.aggregated.clone();
    let figures = || {
        let Aggregated { taken, replaced, made } = &*aggregated;
        [taken, replaced, made].map(|it| it.read())
    };
    let [taken, replaced, made] = figures();
    assert_eq!((taken.of("requests"), taken.of("latency"), taken.total()), (6, 4, 10));
    assert_eq!((replaced.total(), made.total()), (0, 0));
    pipe.aggregator.seal(BASE + 12 * SECOND);
    pipe.aggregator.take(LIMIT_BYTES).expect("is due");
    pipe.aggregator.undo_to(0);
    assert_eq!(figures()[2].total(), 0, "it was taken back");
    pipe.at(12);
    let [taken, replaced, made] = figures();
    assert_eq!((taken.total(), &replaced), (10, &taken));
    let names: Vec<_> = made.all().collect();
    assert_eq!(names, [("latency_count", 1), ("latency_max", 1), ("requests", 2)]);
}

/// Scenario: a Collector's configuration, with metrics of each kind. Guarantee: deltas are added
/// up, gauges, cumulative metrics and summaries keep their last point as it was, and what cannot
/// be aggregated passes at once.
#[test]
fn each_kind_is_aggregated_in_its_way() {
    let mut pipe = Pipe::new(TEN);
    let at = |second: u64| BASE + second * SECOND;
    let int = Number::AsInt;
    let histogram = |name: &str, temporality, time| {
        let data_points = vec![HistogramDataPoint { time_unix_nano: time, ..Default::default() }];
        let data = Histogram { data_points, aggregation_temporality: temporality };
        metric(name, Data::Histogram(data))
    };
    let summary = |time| {
        let point = SummaryDataPoint { time_unix_nano: time, count: time, ..Default::default() };
        metric("summary", Data::Summary(Summary { data_points: vec![point] }))
    };
    let mut last = point("a", at(7), int(7));
    last.start_time_unix_nano = 5;
    let left = pipe.put(vec![
        sum("delta", DELTA, vec![point("a", at(1), int(3)), point("b", at(2), int(1))]),
        sum("total", CUMULATIVE, vec![last.clone(), point("a", at(6), int(6))]),
        gauge("gauge", vec![point("a", at(2), Number::AsDouble(0.5))]),
        histogram("cumulative", CUMULATIVE, at(3)),
        histogram("of deltas", DELTA, at(3)),
        summary(at(4)),
    ]);
    let names: Vec<_> = metrics_of(&left).into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["of deltas"]);
    let left = pipe.put(vec![
        sum("delta", DELTA, vec![point("a", at(9), int(4))]),
        gauge("gauge", vec![point("a", at(1), int(9))]),
        histogram("cumulative", CUMULATIVE, at(8)),
        summary(at(3)),
    ]);
    assert!(left.is_empty());
    assert!(pipe.at(11).is_empty(), "late points may come");
    pipe.now = at(12);
    pipe.aggregator.seal(pipe.now);
    let written = pipe.written();
    let out: Vec<Out> = written.iter().flat_map(|bytes| numbers_of(bytes)).collect();
    let expected = [
        ("delta", "a", 10 * SECOND, 7.0),
        ("delta", "b", 10 * SECOND, 1.0),
        ("gauge", "a", 2 * SECOND, 0.5),
        ("total", "a", 7 * SECOND, 7.0),
    ];
    assert_eq!(brief(&out), expected);
    assert!(out.iter().all(|it| it.unit == "ms" && it.is_sum == (it.name != "gauge")));
    let start_of = |name: &str| out.iter().find(|it| it.name == name).map(|it| it.start);
    assert_eq!((start_of("delta"), start_of("total")), (Some(BASE), Some(5)));
    let metrics: Vec<Metric> = written.iter().flat_map(|it| metrics_of(it)).collect();
    let data =
        |name: &str| metrics.iter().find(|it| it.name == name).and_then(|it| it.data.clone());
    assert_eq!(data("cumulative"), histogram("cumulative", CUMULATIVE, at(8)).data);
    assert_eq!(data("summary"), summary(at(4)).data);
    assert_eq!(pipe.aggregator.usage(), (0, 0));
    let mut passing =
        Pipe::new("{interval: 10s, pass_through: {gauge: true, delta_sum: true, summary: true}}");
    let points = || vec![point("a", at(1), int(1))];
    let all = vec![summary(at(1)), gauge("gauge", points()), sum("sum", DELTA, points())];
    assert_eq!(passing.put(all.clone()), request(all));
}

/// Scenario: statistics as fields of line protocol, of a metric that came as a field, and of one
/// that did not. Guarantee: each has an ending, is a float, and says which field it is.
#[test]
fn statistics_can_be_fields_of_line_protocol() {
    let mut pipe = Pipe::new(
        "{interval: 10s, rules: [{metrics: [.], match_type: regexp, influxdb_field: value, \
         statistics: [sum, count, last], quantiles: [0.5]}]}",
    );
    let points = || vec![point("a", BASE + SECOND, Number::AsInt(4))];
    let mut idle = gauge("cpu_idle", points());
    idle.metadata = vec![attribute("influxdb.field", "idle")];
    pipe.put(vec![sum("reqs", DELTA, points()), idle]);
    pipe.now = BASE + 15 * SECOND;
    pipe.aggregator.seal(pipe.now);
    let mut found = Vec::new();
    for metric in pipe.written().iter().flat_map(|bytes| metrics_of(bytes)) {
        let field = metric.metadata.iter().find(|it| it.key == "influxdb.field").cloned();
        let (is_sum, points) = match metric.data {
            Some(Data::Sum(data)) => (true, data.data_points),
            Some(Data::Gauge(data)) => (false, data.data_points),
            other => panic!("{other:?}"),
        };
        let Some(Number::AsDouble(value)) = points[0].value else { panic!("{points:?}") };
        found.push((metric.name, text(field.and_then(|it| it.value)), is_sum, value));
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("cpu_idle_050", "idle_050", false, 4.0),
        ("cpu_idle_count", "idle_count", true, 1.0),
        ("cpu_idle_last", "idle_last", false, 4.0),
        ("cpu_idle_sum", "idle_sum", true, 4.0),
        ("reqs_value_050", "value_050", false, 4.0),
        ("reqs_value_count", "value_count", true, 1.0),
        ("reqs_value_last", "value_last", false, 4.0),
        ("reqs_value_sum", "value_sum", true, 4.0),
    ];
    let expected = expected
        .map(|(name, field, is_sum, value)| (name.to_owned(), field.to_owned(), is_sum, value));
    assert_eq!(found, expected);
}

/// Scenario: fields of line protocol with texts beside them, and of booleans. Guarantee: texts tell
/// no series apart, booleans pass, and with `keep_points` the request passes as it came, too.
#[test]
fn points_can_be_kept_and_texts_are_no_series() {
    let list = ArrayValue { values: vec![AnyValue { value: Some(text_value("url")) }] };
    let strings = Some(AnyValue { value: Some(Value::ArrayValue(list)) });
    let key = "influxdb.strings".to_owned();
    let strings = KeyValue { key, value: strings, ..Default::default() };
    let of_url = |url: &str, value| {
        let mut point = point("a", BASE + SECOND, Number::AsDouble(value));
        point.attributes.insert(0, attribute("url", url));
        point
    };
    let mut durations = gauge("m", vec![of_url("x", 1.0), of_url("y", 2.0)]);
    durations.metadata = vec![strings];
    let mut boolean = gauge("m_ok", vec![point("a", BASE + SECOND, Number::AsInt(1))]);
    boolean.metadata = vec![attribute("influxdb.type", "boolean")];
    let metrics = vec![durations, boolean.clone()];
    for (keeps, left) in [(true, request(metrics.clone())), (false, request(vec![boolean]))] {
        let mut pipe = Pipe::new(&format!(
            "{{interval: 10s, rules: [{{metrics: [.], match_type: regexp, influxdb_field: value, \
             keep_points: {keeps}, statistics: [sum]}}]}}"
        ));
        assert_eq!(pipe.put(metrics.clone()), left, "{keeps}");
        let out = pipe.at(15);
        assert_eq!(brief(&out), [("m_value_sum", "a", 10 * SECOND, 3.0)], "{keeps}");
    }
}

/// Guarantee: each statistic is a metric with its name, type and unit, the sum of a sum and the
/// last point of a gauge keep the name, and exact quantiles are marked as such.
#[test]
fn rules_make_metrics_of_statistics() {
    let all = "statistics: [sum, count, min, max, mean, first, last], quantiles: [0.5, 0.9]";
    let mut pipe = Pipe::new(&format!(
        "{{interval: 10s, rules: [{{metrics: [.], match_type: regexp, {all}}}]}}"
    ));
    let points = || {
        [(3, 4), (1, 2), (2, 9)]
            .map(|(second, value)| point("a", BASE + second * SECOND, Number::AsInt(value)))
    };
    pipe.put(vec![gauge("g", points().into()), sum("s", DELTA, points().into())]);
    let out = pipe.at(15);
    let found = |name: &str| {
        let found: Vec<&Out> = out.iter().filter(|it| it.name == name).collect();
        assert_eq!(found.len(), 1, "{name}: {out:?}");
        assert_eq!(found[0].time, BASE + 10 * SECOND);
        (found[0].value, found[0].is_sum)
    };
    for (name, value, is_sum) in [
        ("g", 4.0, false),
        ("g_sum", 15.0, true),
        ("g_count", 3.0, true),
        ("g_min", 2.0, false),
        ("g_max", 9.0, false),
        ("g_mean", 5.0, false),
        ("g_first", 2.0, false),
        ("g_p50", 4.0, false),
        ("g_p90", 9.0, false),
        ("s", 15.0, true),
        ("s_last", 4.0, false),
    ] {
        assert_eq!(found(name), (value, is_sum), "{name}");
    }
    assert_eq!(out.len(), 18);
    let unit = |name: &str| out.iter().find(|it| it.name == name).map(|it| it.unit.as_str());
    assert_eq!((unit("g_max"), unit("g_count")), (Some("ms"), Some("")));
    let note = |name: &str| out.iter().find(|it| it.name == name).map(|it| it.note.as_str());
    assert_eq!((note("g_p50"), note("g_max")), (Some("exact"), Some("")));
}

/// Scenario: more values than are kept. Guarantee: the quantile is within 1 %, says that it is an
/// estimate and is counted.
#[test]
fn estimates_say_so() {
    let mut pipe = Pipe::new(
        "{interval: 10s, quantile_values: 100, \
         rules: [{metrics: [g], match_type: strict, quantiles: [0.99]}]}",
    );
    let value = |value: u32| Number::AsDouble(f64::from(value));
    let points = (1..=1000).map(|index| point("a", BASE + SECOND, value(index))).collect();
    pipe.put(vec![gauge("g", points), gauge("g", vec![point("b", BASE + SECOND, value(5))])]);
    let out = pipe.at(15);
    let of = |series: &str| out.iter().find(|it| it.series == series).expect("is written");
    assert!((of("a").value / 990.0 - 1.0).abs() < 0.0101, "{out:?}");
    assert_eq!((of("a").note.as_str(), of("b").note.as_str()), ("estimate", "exact"));
    assert_eq!((of("b").value, pipe.aggregator.counts.estimated), (5.0, 1));
}

/// Scenario: points come after their bucket was written, again and again. Guarantee: none is lost,
/// they are gathered once more, and each part of the bucket has a time of its own in it.
#[test]
fn late_points_become_points_of_their_own() {
    let mut pipe = Pipe::new(TEN);
    let delta = |value| vec![sum("d", DELTA, vec![point("a", BASE + 5 * SECOND, value)])];
    pipe.put(delta(Number::AsInt(1)));
    assert_eq!(brief(&pipe.at(12)), [("d", "a", 10 * SECOND, 1.0)]);
    pipe.put(vec![gauge("g", vec![point("a", BASE + 12 * SECOND, Number::AsInt(0))])]);
    for (part, begins) in [(1, 13), (2, 26)] {
        pipe.at(begins);
        pipe.put(delta(Number::AsInt(2)));
        pipe.at(begins + 11);
        pipe.put(delta(Number::AsInt(3)));
        let written = pipe.at(begins + 12);
        let late: Vec<Out> = written.into_iter().filter(|it| it.name == "d").collect();
        assert_eq!(brief(&late), [("d", "a", 10 * SECOND - part * 1_000_000, 5.0)]);
    }
    assert_eq!(pipe.aggregator.counts.late, 4);
}

/// Guarantee: data moves the watermark also while the clock stands; a time in the future does not
/// move it beyond the clock, and one that is far ahead passes.
#[test]
fn the_watermark_follows_data_but_not_into_the_future() {
    let mut pipe = Pipe::new(TEN);
    pipe.now = BASE + 3600 * SECOND;
    let at = |second: u64| {
        vec![sum("d", DELTA, vec![point("a", BASE + second * SECOND, Number::AsInt(1))])]
    };
    pipe.put(at(5));
    pipe.put(at(11));
    assert!(!pipe.aggregator.is_due(pipe.now), "late points may come");
    pipe.put(at(12));
    assert!(pipe.aggregator.is_due(pipe.now));
    assert_eq!(pipe.at(3600).len(), 1);
    let ahead = at(3600 + 13);
    assert_eq!(pipe.put(ahead.clone()), request(ahead));
    assert!(pipe.put(at(3600 + 12)).is_empty());
    pipe.put(at(3601));
    assert_eq!(pipe.at(3600).len(), 1, "the one of before");
    assert_eq!(pipe.at(3630).len(), 2);
    assert_eq!(pipe.aggregator.counts, Counts { passed: 1, ..Counts::default() });
}

/// Guarantee: a refused request leaves nothing behind, and what the engine cannot take stays.
#[test]
fn what_is_refused_changes_nothing() {
    let mut pipe = Pipe::new(TEN);
    let first = request(vec![sum("d", DELTA, vec![point("a", BASE + 1, Number::AsInt(1))])]);
    assert!(pipe.pass(&first, false).is_empty());
    assert!(pipe.at(12).is_empty());
    assert_eq!(pipe.aggregator.usage(), (0, 0));
    pipe.now = BASE;
    pipe.pass(&first, false);
    pipe.pass(&first, true);
    pipe.aggregator.seal_all();
    let taken = pipe.aggregator.take(LIMIT_BYTES).expect("is there");
    pipe.aggregator.undo_to(0);
    assert_eq!(pipe.aggregator.take(LIMIT_BYTES), Some(taken.clone()));
    pipe.aggregator.keep();
    assert_eq!(numbers_of(&taken.0)[0].value, 1.0);
    assert!(pipe.all().is_empty());
}

/// Scenario: more series and bytes than there may be. Guarantee: points of new series pass as they
/// came, known ones go on, nothing is lost, and the memory is free once all is written.
#[test]
fn without_room_new_series_pass() {
    for bound in ["max_series: 2", "memory_limit_mib: 1"] {
        let mut pipe = Pipe::new(&format!("{{interval: 10s, {bound}}}"));
        let (mut passed, mut sent) = (0.0, 0.0);
        for round in 0..2 {
            for index in 0..6000 {
                let series = format!("{index:0100}");
                let time = BASE + round * SECOND;
                let metric = sum("d", DELTA, vec![point(&series, time + 1, Number::AsInt(1))]);
                passed += numbers_of(&pipe.put(vec![metric])).len() as f64;
                sent += 1.0;
            }
        }
        assert!(pipe.aggregator.usage().1 <= 1 << 20);
        let refused = pipe.aggregator.counts.refused as f64;
        let out = pipe.all();
        let sums: f64 = out.iter().map(|it| it.value).sum();
        assert_eq!((passed + sums, passed), (sent, refused), "{bound}");
        assert!(passed > 0.0 && out.iter().all(|it| it.value == 2.0));
        assert_eq!(pipe.aggregator.usage(), (0, 0));
    }
}

/// Guarantee: the order of attributes tells no series apart, and neither does a description.
#[test]
fn a_series_is_a_set_of_attributes() {
    let mut pipe = Pipe::new(TEN);
    let mut one = point("a", BASE + 1, Number::AsInt(1));
    one.attributes.push(attribute("zone", "z"));
    let mut other = one.clone();
    other.attributes.reverse();
    let mut described = sum("d", DELTA, vec![other]);
    described.description = "more".to_owned();
    pipe.put(vec![sum("d", DELTA, vec![one]), described]);
    let out = pipe.all();
    assert_eq!((out.len(), out[0].value), (1, 2.0));
}

/// Scenario: a reload with other options, and one with the same. Guarantee: with others, what is
/// there is written at once with the time of its newest point; with the same it goes on.
#[test]
fn a_reload_hands_buckets_on() {
    let mut pipe = Pipe::new(TEN);
    let delta = |second| vec![sum("d", DELTA, vec![point("a", BASE + second, Number::AsInt(1))])];
    pipe.put(delta(3 * SECOND));
    pipe.options = options(TEN);
    pipe.put(delta(4 * SECOND));
    assert!(!pipe.aggregator.is_due(pipe.now));
    pipe.options = options("interval: 20s");
    pipe.put(delta(5 * SECOND));
    let written = pipe.at(5);
    assert_eq!(brief(&written), [("d", "a", 4 * SECOND, 2.0)]);
    assert_eq!(brief(&pipe.at(22)), [("d", "a", 20 * SECOND, 1.0)]);
}

/// Guarantee: points without a time, a value or a number pass, and nothing is kept back at the end.
#[test]
fn what_is_no_number_passes() {
    let mut pipe = Pipe::new(TEN);
    let ends = NumberDataPoint { flags: 1, ..point("a", BASE + 1, Number::AsInt(0)) };
    let points = vec![
        point("a", 0, Number::AsInt(1)),
        point("a", BASE + 1, Number::AsDouble(f64::NAN)),
        NumberDataPoint { value: None, ..point("a", BASE + 1, Number::AsInt(0)) },
        ends,
    ];
    let metrics = vec![sum("d", DELTA, points)];
    let before = request(metrics.clone());
    assert_eq!(pipe.put(metrics), before);
    assert_eq!(pipe.aggregator.counts.passed, 4);
    pipe.aggregator.is_ending = true;
    let last = vec![sum("d", DELTA, vec![point("a", BASE + 1, Number::AsInt(1))])];
    assert_eq!(pipe.put(last.clone()), request(last));
}

/// Guarantee: a successor has the buckets of the processor before it.
#[test]
fn a_successor_goes_on_with_the_buckets() {
    let (old, new) = (Interval::new(options(TEN)), Interval::new(options("interval: 20s")));
    new.take_over(old.running().expect("remembers"), false);
    assert!(Arc::ptr_eq(&old.buckets(), &new.buckets()));
    assert_ne!(old.fingerprint(), new.fingerprint());
}
