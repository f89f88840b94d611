//! One request of each signal with every type of attribute, and a comparison of requests by their
//! meaning.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint, metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span};

/// Time of the samples, in nanoseconds since the epoch.
const TIME: u64 = 1_700_000_000_000_000_000;
/// Items a scope.
const ITEMS: usize = 9;

fn text(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

fn list(values: Vec<Value>) -> Value {
    Value::ArrayValue(ArrayValue { values: values.into_iter().map(any).collect() })
}

fn map(entries: Vec<KeyValue>) -> Value {
    Value::KvlistValue(KeyValueList { values: entries })
}

fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

fn entry(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(any(value)), ..KeyValue::default() }
}

fn pick<'p>(from: &[&'p str], index: usize) -> &'p str {
    from[index % from.len()]
}

/// Attributes of item number `index`: every type, some in some items only.
fn attributes(index: usize) -> Vec<KeyValue> {
    let number = index as i64;
    let nested = map(vec![
        entry("a", Value::IntValue(number)),
        entry("b", map(vec![entry("c", text("d"))])),
    ]);
    let mut attributes = vec![
        entry("http.method", text(pick(&["GET", "POST", "get"], index))),
        entry("http.status_code", Value::IntValue(200 + 100 * (number % 4))),
        entry("ratio", Value::DoubleValue(number as f64 * 0.75 - 1.0)),
        entry("large", Value::DoubleValue(1e21 + number as f64)),
        entry("small", Value::DoubleValue(0.000_000_12)),
        entry("lowest", Value::IntValue(i64::MIN + number)),
        entry("ok", Value::BoolValue(index.is_multiple_of(2))),
        entry("user.email", text(&format!("user{index}@example.com"))),
        entry("url", text(&format!("https://shop.example.com:8443/cart/{index}?q=a%20b"))),
        entry(
            "numeric.text",
            text(pick(
                &["42", "-7", "4.5", "abc", "", "1e3", "9223372036854775808", "0x10"],
                index,
            )),
        ),
        entry("bytes", Value::BytesValue(vec![0, 255, index as u8])),
        entry(
            "list",
            list(vec![
                Value::IntValue(1),
                text("two"),
                Value::DoubleValue(3.5),
                Value::BoolValue(true),
            ]),
        ),
        entry("map", nested),
        KeyValue {
            key: "empty".to_owned(),
            value: Some(AnyValue { value: None }),
            ..KeyValue::default()
        },
        entry("umlaut", text("Grüße 🌍 <&> \"quoted\"")),
        entry("secret.token", text("t0k3n")),
        entry("secret.count", Value::IntValue(number)),
    ];
    if index % 2 == 1 {
        attributes.push(entry("only.odd", text("odd")));
    }
    if index == 4 {
        attributes.clear();
    }
    if index == 8 {
        // Senders must not repeat a key, but some do.
        attributes.push(entry("http.method", text("a second time")));
        attributes.push(entry("secret.token", text("a second time")));
    }
    attributes
}

/// Three resources: rich, plain, and none.
fn resources() -> [Option<Resource>; 3] {
    let rich = vec![
        entry("service.name", text("checkout")),
        entry("k8s.cluster.name", text("from-the-sender")),
        entry("host.ip", list(vec![text("10.0.0.1"), text("fe80::1")])),
        entry("process.pid", Value::IntValue(4711)),
        entry("deployment.weight", Value::DoubleValue(0.5)),
        entry("is.canary", Value::BoolValue(true)),
        entry("k8s.pod.name", text("checkout-5d4f8c7b9-x2x4z")),
        entry("labels", map(vec![entry("team", text("red"))])),
    ];
    let plain = vec![entry("service.name", text("api-gateway")), entry("process.pid", text("12"))];
    let resource =
        |attributes| Resource { attributes, dropped_attributes_count: 1, entity_refs: Vec::new() };
    [Some(resource(rich)), Some(resource(plain)), None]
}

fn scopes() -> [Option<InstrumentationScope>; 3] {
    let scope = |name: &str, version: &str| InstrumentationScope {
        name: name.to_owned(),
        version: version.to_owned(),
        attributes: vec![entry("http.method", text("of the scope"))],
        dropped_attributes_count: 2,
    };
    [Some(scope("io.http", "1.2.0")), Some(scope("io.db", "")), None]
}

pub(crate) fn traces() -> ExportTraceServiceRequest {
    let group = |resource| ResourceSpans {
        resource,
        scope_spans: scopes()
            .map(|scope| ScopeSpans {
                scope,
                spans: (0..ITEMS).map(span).collect(),
                schema_url: "https://s/1".to_owned(),
            })
            .to_vec(),
        schema_url: "https://r/1".to_owned(),
    };
    ExportTraceServiceRequest { resource_spans: resources().map(group).to_vec() }
}

fn span(index: usize) -> Span {
    let byte = index as u8 + 1;
    Span {
        trace_id: vec![byte; 16],
        span_id: vec![byte; 8],
        parent_span_id: if index.is_multiple_of(3) { Vec::new() } else { vec![9; 8] },
        trace_state: "vendor=1".to_owned(),
        flags: 0x101,
        name: pick(&["GET /cart", "POST /login", "db.query", "worker"], index).to_owned(),
        kind: index as i32 % 6,
        start_time_unix_nano: TIME,
        end_time_unix_nano: TIME + 1_000,
        attributes: attributes(index),
        dropped_attributes_count: 3,
        events: vec![span::Event {
            time_unix_nano: TIME + 5,
            name: "event".to_owned(),
            attributes: attributes(index + 1),
            dropped_attributes_count: 0,
        }],
        links: vec![span::Link {
            trace_id: vec![7; 16],
            span_id: vec![7; 8],
            attributes: attributes(index + 2),
            ..span::Link::default()
        }],
        status: (!index.is_multiple_of(3))
            .then(|| Status { message: "why".to_owned(), code: index as i32 % 3 }),
        ..Span::default()
    }
}

pub(crate) fn logs() -> ExportLogsServiceRequest {
    let group = |resource| ResourceLogs {
        resource,
        scope_logs: scopes()
            .map(|scope| ScopeLogs {
                scope,
                log_records: (0..ITEMS).map(record).collect(),
                schema_url: String::new(),
            })
            .to_vec(),
        schema_url: "https://r/1".to_owned(),
    };
    ExportLogsServiceRequest { resource_logs: resources().map(group).to_vec() }
}

fn record(index: usize) -> LogRecord {
    let body = match index {
        0 => Some(text("login failed for user 7")),
        1 => Some(Value::IntValue(42)),
        2 => Some(Value::DoubleValue(2.50)),
        3 => Some(Value::BoolValue(true)),
        4 => Some(map(vec![entry("message", text("nested")), entry("code", Value::IntValue(7))])),
        5 => Some(list(vec![text("a"), Value::IntValue(1)])),
        6 => Some(Value::BytesValue(b"bytes".to_vec())),
        7 => Some(text("login succeeded for user 7")),
        _ => None,
    };
    LogRecord {
        time_unix_nano: TIME,
        observed_time_unix_nano: TIME + 1,
        severity_number: [0, 1, 5, 9, 13, 17, 21, 24, 9][index],
        severity_text: pick(&["", "TRACE", "Debug", "INFO", "Warn", "ERROR"], index).to_owned(),
        body: body.map(any),
        attributes: attributes(index),
        dropped_attributes_count: 1,
        flags: 1,
        trace_id: if index == 2 { Vec::new() } else { vec![3; 16] },
        span_id: if index == 2 { Vec::new() } else { vec![3; 8] },
        event_name: "event".to_owned(),
    }
}

pub(crate) fn metrics() -> ExportMetricsServiceRequest {
    let group = |resource| ResourceMetrics {
        resource,
        scope_metrics: scopes()
            .map(|scope| ScopeMetrics { scope, metrics: all_metrics(), schema_url: String::new() })
            .to_vec(),
        schema_url: "https://r/1".to_owned(),
    };
    ExportMetricsServiceRequest { resource_metrics: resources().map(group).to_vec() }
}

/// A metric of each type.
fn all_metrics() -> Vec<Metric> {
    let metric = |name: &str, data| Metric {
        name: name.to_owned(),
        description: "what it says".to_owned(),
        unit: "1".to_owned(),
        metadata: vec![entry("http.method", text("of the metric"))],
        data: Some(data),
    };
    let numbers: Vec<NumberDataPoint> = (0..ITEMS).map(number_point).collect();
    let sum = Sum { data_points: numbers.clone(), aggregation_temporality: 2, is_monotonic: true };
    let histogram = |index| HistogramDataPoint {
        attributes: attributes(index),
        time_unix_nano: TIME,
        count: 3,
        sum: Some(1.5),
        bucket_counts: vec![1, 2],
        explicit_bounds: vec![0.5],
        exemplars: vec![exemplar(index)],
        min: Some(0.1),
        ..HistogramDataPoint::default()
    };
    let exponential = |index| ExponentialHistogramDataPoint {
        attributes: attributes(index),
        time_unix_nano: TIME,
        count: 1,
        scale: -1,
        zero_count: 1,
        ..ExponentialHistogramDataPoint::default()
    };
    let summary = |index| SummaryDataPoint {
        attributes: attributes(index),
        time_unix_nano: TIME,
        count: 2,
        sum: 3.0,
        ..SummaryDataPoint::default()
    };
    vec![
        metric("cpu.usage", Data::Gauge(Gauge { data_points: numbers })),
        metric("http.requests", Data::Sum(sum)),
        metric(
            "http.latency",
            Data::Histogram(Histogram {
                data_points: (0..ITEMS).map(histogram).collect(),
                aggregation_temporality: 1,
            }),
        ),
        metric(
            "rpc.latency",
            Data::ExponentialHistogram(ExponentialHistogram {
                data_points: (0..ITEMS).map(exponential).collect(),
                aggregation_temporality: 1,
            }),
        ),
        metric(
            "rpc.summary",
            Data::Summary(Summary { data_points: (0..ITEMS).map(summary).collect() }),
        ),
    ]
}

fn number_point(index: usize) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(index),
        start_time_unix_nano: TIME,
        time_unix_nano: TIME + 1,
        exemplars: vec![exemplar(index)],
        flags: 0,
        value: Some(match index % 2 {
            0 => number_data_point::Value::AsInt(index as i64 - 3),
            _ => number_data_point::Value::AsDouble(index as f64 / 3.0),
        }),
    }
}

fn exemplar(index: usize) -> Exemplar {
    Exemplar {
        filtered_attributes: attributes(index + 1),
        time_unix_nano: TIME,
        span_id: vec![1; 8],
        trace_id: vec![1; 16],
        value: Some(opentelemetry_proto::tonic::metrics::v1::exemplar::Value::AsInt(1)),
    }
}
