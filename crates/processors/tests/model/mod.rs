//! Actions on decoded requests: the processors have to give the same results.

#![allow(unreachable_pub)]

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use crate::support::decoded::Decoded;

#[derive(Clone, Debug)]
pub enum Action {
    Put { action: &'static str, key: String, source: Source },
    Delete(String),
    DeleteMatching(&'static str),
    Hash(String),
    Extract(String),
    ConvertToInt(String),
}

#[derive(Clone, Debug)]
pub enum Source {
    Text(String),
    Number(i64),
    Attribute(String),
    Tenant,
    AttributeOr(String, i64),
}

pub fn action() -> impl Strategy<Value = Action> {
    let key = || "[abc]";
    let source = prop_oneof![
        "[a-z]{0,150}".prop_map(Source::Text),
        any::<i64>().prop_map(Source::Number),
        key().prop_map(Source::Attribute),
        Just(Source::Tenant),
        (key(), any::<i64>()).prop_map(|(key, value)| Source::AttributeOr(key, value)),
    ];
    let name = prop::sample::select(vec!["insert", "update", "upsert", "UPSERT"]);
    prop_oneof![
        4 => (name, key(), source)
            .prop_map(|(action, key, source)| Action::Put { action, key, source }),
        1 => key().prop_map(Action::Delete),
        1 => prop::sample::select(vec!["^[ab]$", "a", "^$"]).prop_map(Action::DeleteMatching),
        1 => key().prop_map(Action::Hash),
        1 => key().prop_map(Action::Extract),
        1 => key().prop_map(Action::ConvertToInt),
    ]
}

impl Action {
    pub fn yaml(&self) -> String {
        match self {
            Action::Put { action, key, source } => {
                let source = match source {
                    Source::Text(text) => format!("value: \"{text}\""),
                    Source::Number(number) => format!("value: {number}"),
                    Source::Attribute(key) => format!("from_attribute: {key}"),
                    Source::Tenant => "from_context: metadata.Tenant".to_owned(),
                    Source::AttributeOr(key, value) => {
                        format!("from_attribute: {key}, default_value: {value}")
                    }
                };
                format!("{{key: {key}, action: {action}, {source}}}")
            }
            Action::Delete(key) => format!("{{key: {key}, action: delete}}"),
            Action::DeleteMatching(pattern) => {
                format!("{{pattern: \"{pattern}\", action: delete}}")
            }
            Action::Hash(key) => format!("{{key: {key}, action: hash}}"),
            Action::Extract(key) => {
                format!("{{key: {key}, action: extract, pattern: \"^(?P<c>.)(?P<new>.*)\"}}")
            }
            Action::ConvertToInt(key) => {
                format!("{{key: {key}, action: convert, converted_type: int}}")
            }
        }
    }

    pub fn removes(&self) -> bool {
        matches!(self, Action::Delete(_) | Action::DeleteMatching(_))
    }

    pub fn apply(&self, attributes: &mut Vec<KeyValue>) {
        match self {
            Action::Put { action, key, source } => {
                let value = match source {
                    Source::Text(text) => Some(Value::StringValue(text.clone())),
                    Source::Number(number) => Some(Value::IntValue(*number)),
                    Source::Tenant => Some(Value::StringValue("blue".to_owned())),
                    Source::Attribute(key) => match get(attributes, key) {
                        Some(index) => value_of(&attributes[index]),
                        None => return,
                    },
                    Source::AttributeOr(key, default) => match get(attributes, key) {
                        Some(index) => value_of(&attributes[index]),
                        None => Some(Value::IntValue(*default)),
                    },
                };
                match (get(attributes, key), action.to_lowercase().as_str()) {
                    (Some(index), "update" | "upsert") => set(&mut attributes[index], value),
                    (None, "insert" | "upsert") => attributes.push(new(key, value)),
                    _ => {}
                }
            }
            Action::Delete(key) => {
                if let Some(index) = get(attributes, key) {
                    attributes.remove(index);
                }
            }
            Action::DeleteMatching("^[ab]$") => {
                attributes.retain(|attribute| !matches!(attribute.key.as_str(), "a" | "b"))
            }
            Action::DeleteMatching("a") => {
                attributes.retain(|attribute| !attribute.key.contains('a'))
            }
            Action::DeleteMatching(_) => attributes.retain(|attribute| !attribute.key.is_empty()),
            Action::Hash(key) => {
                if let Some(index) = get(attributes, key) {
                    let hashed = hash(value_of(&attributes[index]));
                    set(&mut attributes[index], Some(Value::StringValue(hashed)));
                }
            }
            Action::Extract(key) => {
                let Some(index) = get(attributes, key) else { return };
                let Some(Value::StringValue(text)) = value_of(&attributes[index]) else { return };
                let Some(first) = text.chars().next().filter(|first| *first != '\n') else {
                    return;
                };
                let rest: String =
                    text.chars().skip(1).take_while(|character| *character != '\n').collect();
                for (key, text) in [("c", first.to_string()), ("new", rest)] {
                    match get(attributes, key) {
                        Some(index) => set(&mut attributes[index], Some(Value::StringValue(text))),
                        None => attributes.push(new(key, Some(Value::StringValue(text)))),
                    }
                }
            }
            Action::ConvertToInt(key) => {
                let Some(index) = get(attributes, key) else { return };
                let converted = match value_of(&attributes[index]) {
                    Some(Value::BoolValue(value)) => i64::from(value),
                    Some(Value::DoubleValue(value)) => value as i64,
                    Some(Value::StringValue(text)) => match text.parse() {
                        Ok(number) => number,
                        Err(_) => return,
                    },
                    _ => return,
                };
                set(&mut attributes[index], Some(Value::IntValue(converted)));
            }
        }
    }
}

fn get(attributes: &[KeyValue], key: &str) -> Option<usize> {
    attributes.iter().position(|attribute| attribute.key == key)
}

fn value_of(attribute: &KeyValue) -> Option<Value> {
    attribute.value.clone().and_then(|value| value.value)
}

fn set(attribute: &mut KeyValue, value: Option<Value>) {
    attribute.value = Some(AnyValue { value });
}

fn new(key: &str, value: Option<Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value }), ..KeyValue::default() }
}

fn hash(value: Option<Value>) -> String {
    let digest = match value {
        Some(Value::StringValue(text)) => Sha256::digest(text.as_bytes()),
        Some(Value::BoolValue(value)) => Sha256::digest([u8::from(value)]),
        Some(Value::IntValue(value)) => Sha256::digest(value.to_le_bytes()),
        Some(Value::DoubleValue(value)) => Sha256::digest(value.to_le_bytes()),
        _ => return String::new(),
    };
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hands the attributes of every resource to `edit`. A resource that is absent is there afterwards
/// if it got attributes.
pub fn resources(decoded: &mut Decoded, edit: &mut dyn FnMut(&mut Vec<KeyValue>)) {
    macro_rules! each {
        ($resources:expr) => {
            for element in $resources {
                let mut resource = element.resource.clone().unwrap_or_default();
                edit(&mut resource.attributes);
                if element.resource.is_some() || !resource.attributes.is_empty() {
                    element.resource = Some(resource);
                }
            }
        };
    }
    match decoded {
        Decoded::Traces(request) => each!(&mut request.resource_spans),
        Decoded::Metrics(request) => each!(&mut request.resource_metrics),
        Decoded::Logs(request) => each!(&mut request.resource_logs),
    }
}

/// Hands the attributes of every span, data point or log record to `edit`.
pub fn items(decoded: &mut Decoded, edit: &mut dyn FnMut(&mut Vec<KeyValue>)) {
    macro_rules! points {
        ($data:expr) => {
            $data.data_points.iter_mut().for_each(|point| edit(&mut point.attributes))
        };
    }
    match decoded {
        Decoded::Traces(request) => {
            let scopes =
                request.resource_spans.iter_mut().flat_map(|resource| &mut resource.scope_spans);
            scopes.flat_map(|scope| &mut scope.spans).for_each(|span| edit(&mut span.attributes));
        }
        Decoded::Logs(request) => {
            let scopes =
                request.resource_logs.iter_mut().flat_map(|resource| &mut resource.scope_logs);
            scopes
                .flat_map(|scope| &mut scope.log_records)
                .for_each(|record| edit(&mut record.attributes));
        }
        Decoded::Metrics(request) => {
            let scopes = request
                .resource_metrics
                .iter_mut()
                .flat_map(|resource| &mut resource.scope_metrics);
            for metric in scopes.flat_map(|scope| &mut scope.metrics) {
                match &mut metric.data {
                    Some(Data::Gauge(data)) => points!(data),
                    Some(Data::Sum(data)) => points!(data),
                    Some(Data::Histogram(data)) => points!(data),
                    Some(Data::ExponentialHistogram(data)) => points!(data),
                    Some(Data::Summary(data)) => points!(data),
                    None => {}
                }
            }
        }
    }
}

/// The canonical wire form, with a value that is absent written as an empty one: they mean the
/// same.
pub fn normalised(decoded: &Decoded) -> Vec<u8> {
    let mut decoded = decoded.clone();
    let mut fill = |attributes: &mut Vec<KeyValue>| {
        for attribute in attributes {
            attribute.value.get_or_insert_default();
        }
    };
    resources(&mut decoded, &mut fill);
    items(&mut decoded, &mut fill);
    decoded.encode()
}
