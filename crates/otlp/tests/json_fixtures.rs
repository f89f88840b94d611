//! OTLP/JSON as senders write it, against requests that are built by hand from the official
//! generated types.

mod support;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, EntityRef, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint, exemplar, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use sluice_otlp::Signal;
use sluice_otlp::json::from_json;

use support::decoded::{Decoded, assert_equivalent};

const TRACE_ID: &[u8] = &[
    0x5b, 0x8e, 0xff, 0xf7, 0x98, 0x03, 0x81, 0x03, 0xd2, 0x69, 0xb6, 0x33, 0x81, 0x3f, 0xc6, 0x0c,
];
const SPAN_ID: &[u8] = &[0xee, 0xe1, 0x9b, 0x7e, 0xc3, 0xc1, 0xb1, 0x74];

/// The id with its last byte moved by `by`.
fn near(id: &[u8], by: i8) -> Vec<u8> {
    let mut id = id.to_vec();
    *id.last_mut().expect("an id has bytes") = id[id.len() - 1].wrapping_add_signed(by);
    id
}

fn attribute(key: &str, value: Option<Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value }), ..Default::default() }
}

fn string(text: &str) -> Option<Value> {
    Some(Value::StringValue(text.to_owned()))
}

#[test]
fn traces() {
    let arguments =
        vec![AnyValue { value: string("-v") }, AnyValue { value: Some(Value::IntValue(3)) }];
    let span = Span {
        trace_id: TRACE_ID.to_vec(),
        span_id: SPAN_ID.to_vec(),
        parent_span_id: near(SPAN_ID, -1),
        trace_state: "vendor=1".to_owned(),
        flags: 257,
        name: "GET /cart".to_owned(),
        kind: 2,
        start_time_unix_nano: 1_544_712_660_000_000_000,
        end_time_unix_nano: 1_544_712_661_000_000_000,
        attributes: vec![
            attribute("http.status", Some(Value::IntValue(200))),
            attribute("http.ratio", Some(Value::DoubleValue(0.25))),
            attribute("http.cached", Some(Value::BoolValue(false))),
            attribute("http.token", Some(Value::BytesValue(vec![0x00, 0xff, 0x80]))),
            attribute(
                "http.header",
                Some(Value::KvlistValue(KeyValueList {
                    values: vec![attribute("host", string("a"))],
                })),
            ),
            attribute("http.nothing", None),
        ],
        events: vec![Event {
            time_unix_nano: 1_544_712_660_500_000_000,
            name: "retry".to_owned(),
            ..Default::default()
        }],
        links: vec![Link {
            trace_id: near(TRACE_ID, 1),
            span_id: near(SPAN_ID, 1),
            dropped_attributes_count: 2,
            ..Default::default()
        }],
        status: Some(Status { code: 2, message: "timed out".to_owned() }),
        ..Default::default()
    };
    let expected = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: vec![
                    attribute("service.name", string("checkout")),
                    attribute(
                        "process.args",
                        Some(Value::ArrayValue(ArrayValue { values: arguments })),
                    ),
                ],
                dropped_attributes_count: 1,
                ..Default::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "http".to_owned(),
                    version: "1.4.0".to_owned(),
                    ..Default::default()
                }),
                spans: vec![span],
                ..Default::default()
            }],
            schema_url: "https://opentelemetry.io/schemas/1.27.0".to_owned(),
        }],
    };
    check(Signal::Traces, include_bytes!("fixtures/json/traces.json"), Decoded::Traces(expected));
}

#[test]
fn metrics() {
    let metric =
        |name: &str, data| Metric { name: name.to_owned(), data: Some(data), ..Default::default() };
    let requests = Metric {
        unit: "1".to_owned(),
        description: "Requests answered".to_owned(),
        ..metric(
            "requests",
            Data::Sum(Sum {
                aggregation_temporality: 2,
                is_monotonic: true,
                data_points: vec![NumberDataPoint {
                    value: Some(number_data_point::Value::AsInt(-9_007_199_254_740_993)),
                    start_time_unix_nano: 1_544_712_660_300_000_000,
                    time_unix_nano: 1_544_712_670_300_000_000,
                    exemplars: vec![Exemplar {
                        value: Some(exemplar::Value::AsDouble(1.5)),
                        time_unix_nano: 1,
                        trace_id: TRACE_ID.to_vec(),
                        span_id: SPAN_ID.to_vec(),
                        ..Default::default()
                    }],
                    ..Default::default()
                }],
            }),
        )
    };
    let gauge_point = |value, time_unix_nano, flags| NumberDataPoint {
        value: Some(number_data_point::Value::AsDouble(value)),
        time_unix_nano,
        flags,
        ..Default::default()
    };
    let load = Data::Gauge(Gauge {
        data_points: vec![gauge_point(f64::NAN, 1, 1), gauge_point(0.0, 0, 0)],
    });
    let latency = Data::Histogram(Histogram {
        aggregation_temporality: 1,
        data_points: vec![HistogramDataPoint {
            count: 3,
            sum: Some(0.0),
            bucket_counts: vec![1, 0, 2],
            explicit_bounds: vec![0.5, 10.0],
            min: Some(0.25),
            max: Some(30.0),
            ..Default::default()
        }],
    });
    let sizes = Data::ExponentialHistogram(ExponentialHistogram {
        aggregation_temporality: 1,
        data_points: vec![ExponentialHistogramDataPoint {
            count: 4,
            scale: -3,
            zero_count: 1,
            zero_threshold: 0.001,
            positive: Some(Buckets { offset: -2, bucket_counts: vec![1, u64::MAX] }),
            negative: Some(Buckets::default()),
            ..Default::default()
        }],
    });
    let quantile = |quantile, value| ValueAtQuantile { quantile, value };
    let quantiles = Data::Summary(Summary {
        data_points: vec![SummaryDataPoint {
            count: 2,
            sum: 3.0,
            quantile_values: vec![quantile(0.5, 1.0), quantile(1.0, 2.0)],
            ..Default::default()
        }],
    });
    let expected = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![attribute("host.name", string("node-1"))],
                ..Default::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "runtime".to_owned(),
                    ..Default::default()
                }),
                metrics: vec![
                    requests,
                    metric("load", load),
                    metric("latency", latency),
                    metric("sizes", sizes),
                    metric("quantiles", quantiles),
                ],
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    check(
        Signal::Metrics,
        include_bytes!("fixtures/json/metrics.json"),
        Decoded::Metrics(expected),
    );
}

#[test]
fn logs() {
    let record = LogRecord {
        time_unix_nano: 1_544_712_660_300_000_000,
        observed_time_unix_nano: 1_544_712_660_300_000_001,
        severity_number: 17,
        severity_text: "ERROR".to_owned(),
        body: Some(AnyValue { value: string("line \"one\"\nline two é 😀") }),
        attributes: vec![attribute("user.id", Some(Value::IntValue(-1)))],
        dropped_attributes_count: 1,
        flags: 1,
        trace_id: TRACE_ID.to_vec(),
        span_id: SPAN_ID.to_vec(),
        event_name: "crash".to_owned(),
    };
    let entity_ref = EntityRef {
        schema_url: "u".to_owned(),
        r#type: "service".to_owned(),
        id_keys: vec!["service.name".to_owned(), String::new()],
        ..Default::default()
    };
    let scope = InstrumentationScope {
        name: "app".to_owned(),
        attributes: vec![attribute("x", string("y"))],
        ..Default::default()
    };
    let expected = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource { entity_refs: vec![entity_ref], ..Default::default() }),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope),
                log_records: vec![record, LogRecord::default()],
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    check(Signal::Logs, include_bytes!("fixtures/json/logs.json"), Decoded::Logs(expected));
}

#[track_caller]
fn check(signal: Signal, json: &[u8], expected: Decoded) {
    let read = from_json(signal, json, 1 << 20).expect("the fixture can be read");
    assert_equivalent(signal, &expected.encode(), &read);
    assert_eq!(read.len(), expected.encode().len(), "the encoding is as short as the official one");
}
