//! Items that a backend has received, in the words of `tests/clients/README.md`.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric::Data, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use sluice_load_test::backend::Received;
use sluice_otlp::Signal;

/// Attributes by key, as text that tells types apart.
pub(crate) type Texts = BTreeMap<String, String>;

/// One item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReceivedItem {
    pub(crate) resource: Texts,
    pub(crate) attributes: Texts,
    /// Its other fields: name or body, and what else the clients promise.
    pub(crate) text: String,
    /// Id of a span; empty for other items.
    pub(crate) span_id: Vec<u8>,
}

/// All items of a signal, in the order of their arrival.
pub(crate) fn items_of(requests: &[Received], signal: Signal) -> Vec<ReceivedItem> {
    let requests = requests.iter().filter(|request| request.signal == signal);
    requests.flat_map(|request| decode(signal, request)).collect()
}

fn decode(signal: Signal, request: &Received) -> Vec<ReceivedItem> {
    assert!(!request.is_json, "these backends are sent protobuf");
    let mut items = Vec::new();
    match signal {
        Signal::Traces => spans(request, &mut items),
        Signal::Metrics => points(request, &mut items),
        Signal::Logs => records(request, &mut items),
    }
    items
}

fn spans(request: &Received, items: &mut Vec<ReceivedItem>) {
    let request = ExportTraceServiceRequest::decode(request.body.clone()).expect("traces");
    for group in &request.resource_spans {
        for scope in &group.scope_spans {
            for span in &scope.spans {
                let root = if span.parent_span_id.is_empty() { "root" } else { "child" };
                items.push(ReceivedItem {
                    resource: resource_texts(group.resource.as_ref()),
                    attributes: texts(&span.attributes),
                    text: format!("{}: {} {root}", scope_name(scope.scope.as_ref()), span.name),
                    span_id: span.span_id.clone(),
                });
            }
        }
    }
}

fn points(request: &Received, items: &mut Vec<ReceivedItem>) {
    let request = ExportMetricsServiceRequest::decode(request.body.clone()).expect("metrics");
    for group in &request.resource_metrics {
        for scope in &group.scope_metrics {
            for metric in &scope.metrics {
                let (kind, points): (String, &[NumberDataPoint]) = match &metric.data {
                    Some(Data::Sum(sum)) => (
                        format!(
                            "sum monotonic={} temporality={}",
                            sum.is_monotonic, sum.aggregation_temporality
                        ),
                        &sum.data_points,
                    ),
                    Some(Data::Gauge(gauge)) => ("gauge".to_owned(), &gauge.data_points),
                    other => panic!("not a metric that the clients send: {other:?}"),
                };
                for point in points {
                    let value = match point.value {
                        Some(number_data_point::Value::AsInt(value)) => value as f64,
                        Some(number_data_point::Value::AsDouble(value)) => value,
                        None => f64::NAN,
                    };
                    items.push(ReceivedItem {
                        resource: resource_texts(group.resource.as_ref()),
                        attributes: texts(&point.attributes),
                        text: format!(
                            "{}: {} {kind} {value}",
                            scope_name(scope.scope.as_ref()),
                            metric.name
                        ),
                        span_id: Vec::new(),
                    });
                }
            }
        }
    }
}

fn records(request: &Received, items: &mut Vec<ReceivedItem>) {
    let request = ExportLogsServiceRequest::decode(request.body.clone()).expect("logs");
    for group in &request.resource_logs {
        for scope in &group.scope_logs {
            for record in &scope.log_records {
                let body = record.body.as_ref().and_then(|body| body.value.as_ref());
                let body = match body {
                    Some(Value::StringValue(text)) => text.clone(),
                    other => format!("{other:?}"),
                };
                items.push(ReceivedItem {
                    resource: resource_texts(group.resource.as_ref()),
                    attributes: texts(&record.attributes),
                    text: format!(
                        "{}: {body} severity={}",
                        scope_name(scope.scope.as_ref()),
                        record.severity_number
                    ),
                    span_id: Vec::new(),
                });
            }
        }
    }
}

fn scope_name(scope: Option<&InstrumentationScope>) -> &str {
    scope.map_or("", |scope| scope.name.as_str())
}

fn resource_texts(resource: Option<&Resource>) -> Texts {
    resource.map(|resource| texts(&resource.attributes)).unwrap_or_default()
}

fn texts(attributes: &[KeyValue]) -> Texts {
    let text = |attribute: &KeyValue| match attribute
        .value
        .as_ref()
        .and_then(|value| value.value.as_ref())
    {
        Some(Value::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}
