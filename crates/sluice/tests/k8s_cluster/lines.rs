//! Requests as lines of text: resources, metrics and points, without times and in an order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{EntityRef, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, ResourceMetrics, metric};
use prost::Message as _;
use sluice_load_test::Backend;

pub(crate) type Attributes = BTreeMap<String, String>;

/// The resources of the last collection. A request may have several.
fn last(backend: &Backend) -> Vec<ResourceMetrics> {
    let Some(request) = backend.kept().pop() else { return Vec::new() };
    let request = ExportMetricsServiceRequest::decode(request.body).expect("metrics");
    let time_of = |part: &ResourceMetrics| {
        let metrics = part.scope_metrics.iter().flat_map(|part| &part.metrics);
        metrics.flat_map(|metric| data(metric).1).map(|point| point.time_unix_nano).max()
    };
    let mut parts = request.resource_metrics;
    let newest = parts.iter().map(time_of).max().flatten();
    parts.retain(|part| time_of(part) == newest);
    parts
}

/// `names`: what stands for each UID.
fn attributes(pairs: &[KeyValue], names: &HashMap<String, String>) -> Attributes {
    let shown = |pair: &KeyValue| {
        let value = match pair.value.as_ref().and_then(|value| value.value.clone()) {
            Some(Value::StringValue(text)) => names.get(&text).cloned().unwrap_or(text),
            Some(Value::BoolValue(value)) => format!("{value} (boolean)"),
            other => panic!("{other:?}"),
        };
        // Objects that the API server makes for itself.
        let is_own = pair.key.ends_with(".uid") && !value.contains('/');
        (pair.key.clone(), if is_own { "own".to_owned() } else { value })
    };
    let all: Attributes = pairs.iter().map(shown).collect();
    assert_eq!(all.len(), pairs.len(), "an attribute is there twice: {pairs:?}");
    all
}

fn shown(attributes: &Attributes) -> String {
    let pairs: Vec<String> =
        attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(", ")
}

/// A metric's shape, and its points.
fn data(metric: &Metric) -> (String, &[NumberDataPoint]) {
    match metric.data.as_ref().expect("has data") {
        metric::Data::Gauge(gauge) => ("gauge".to_owned(), &gauge.data_points),
        metric::Data::Sum(sum) => {
            let (temporality, monotonic) = (sum.aggregation_temporality, sum.is_monotonic);
            (format!("sum {temporality} {monotonic}"), &sum.data_points)
        }
        other => panic!("{other:?}"),
    }
}

fn number(point: &NumberDataPoint) -> String {
    match point.value.expect("has a value") {
        Number::AsInt(value) => value.to_string(),
        Number::AsDouble(value) => format!("{value:?}"),
    }
}

/// Lines of all that the last request says: of each metric, of each kind of entity, of each point.
pub(crate) fn all_lines(backend: &Backend, names: &HashMap<String, String>) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for part in last(backend) {
        let resource = part.resource.as_ref().expect("a resource");
        let of_resource = shown(&attributes(&resource.attributes, names));
        for EntityRef { r#type, id_keys, description_keys, .. } in &resource.entity_refs {
            let keys = format!("{} | {}", id_keys.join(", "), description_keys.join(", "));
            lines.insert(format!("entity {} | {keys} ", r#type).trim_end().to_owned());
        }
        let entities: Vec<&str> = resource.entity_refs.iter().map(|it| &*it.r#type).collect();
        for scope_part in &part.scope_metrics {
            let scope = scope_part.scope.as_ref().expect("a scope");
            lines.insert(format!("scope {} {}", scope.name, part.schema_url));
            assert!(!scope.version.is_empty());
            for metric in &scope_part.metrics {
                let Metric { name, unit, description, .. } = metric;
                let (shape, points) = data(metric);
                lines.insert(format!("metric {name} | {shape} | {unit} | {description}"));
                for point in points {
                    let start = if point.start_time_unix_nano > 0 { "started" } else { "" };
                    assert!(point.start_time_unix_nano < point.time_unix_nano);
                    let of_point = shown(&attributes(&point.attributes, names));
                    let line = format!(
                        "point {name} {{{of_point}}} {} {start} {entities:?} @ {of_resource}",
                        number(point)
                    );
                    assert!(lines.insert(line), "{name} {of_point} is there twice");
                }
            }
        }
    }
    lines
}

/// Names that a test gives to points, with their values.
pub(crate) fn point_lines(
    backend: &Backend,
    names: &HashMap<String, String>,
    name_of: impl Fn(&str, &Attributes) -> Option<String>,
) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for part in last(backend) {
        let of_resource = attributes(&part.resource.expect("a resource").attributes, names);
        for metric in part.scope_metrics.iter().flat_map(|part| &part.metrics) {
            for point in data(metric).1 {
                let name = name_of(&metric.name, &of_resource);
                lines.extend(name.map(|name| format!("{name} {}", number(point))));
            }
        }
    }
    lines
}
