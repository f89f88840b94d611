//! Requests of OTLP metrics.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, any_value::Value,
};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics,
    Sum, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

pub(super) const CUMULATIVE: i32 = 2;
pub(super) const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

pub(super) fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

pub(super) fn number(attributes: &[KeyValue], value: f64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes.to_vec(),
        start_time_unix_nano: SECOND_NS,
        time_unix_nano: 2 * SECOND_NS,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

pub(super) fn metric(name: &str, unit: &str, data: Data) -> Metric {
    let (name, unit, description) = (name.to_owned(), unit.to_owned(), "Help.".to_owned());
    Metric { name, unit, description, data: Some(data), ..Metric::default() }
}

pub(super) fn gauge(name: &str, unit: &str, points: &[NumberDataPoint]) -> Metric {
    metric(name, unit, Data::Gauge(Gauge { data_points: points.to_vec() }))
}

pub(super) fn counter(name: &str, unit: &str, points: &[NumberDataPoint]) -> Metric {
    let (data_points, is_monotonic) = (points.to_vec(), true);
    let sum = Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic };
    metric(name, unit, Data::Sum(sum))
}

pub(super) fn histogram(name: &str, points: &[HistogramDataPoint]) -> Metric {
    let data_points = points.to_vec();
    let histogram = Histogram { data_points, aggregation_temporality: CUMULATIVE };
    metric(name, "s", Data::Histogram(histogram))
}

/// Counts 1, 2 and 3 in buckets up to 0.5, up to 10 and above.
pub(super) fn histogram_point(attributes: &[KeyValue]) -> HistogramDataPoint {
    HistogramDataPoint {
        attributes: attributes.to_vec(),
        start_time_unix_nano: SECOND_NS,
        time_unix_nano: 2 * SECOND_NS,
        count: 6,
        sum: Some(21.5),
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![0.5, 10.0],
        ..HistogramDataPoint::default()
    }
}

pub(super) fn service() -> Vec<KeyValue> {
    vec![
        text("service.name", "shop"),
        text("service.namespace", "eu"),
        text("service.instance.id", "a:80"),
    ]
}

pub(super) fn scope(name: &str, version: &str) -> InstrumentationScope {
    let (name, version) = (name.to_owned(), version.to_owned());
    InstrumentationScope { name, version, ..InstrumentationScope::default() }
}

/// A request of one resource with one scope.
pub(super) fn request(
    resource: &[KeyValue],
    scope: Option<InstrumentationScope>,
    metrics: Vec<Metric>,
) -> Vec<u8> {
    let resource = Resource { attributes: resource.to_vec(), ..Resource::default() };
    let scope_metrics = vec![ScopeMetrics { scope, metrics, ..ScopeMetrics::default() }];
    let resource_metrics = vec![ResourceMetrics {
        resource: Some(resource),
        scope_metrics,
        ..ResourceMetrics::default()
    }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
}
