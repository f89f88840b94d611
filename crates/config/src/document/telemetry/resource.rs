//! `service.telemetry.resource`: attributes of the process.

use sluice_otlp::AnyValue;

use crate::fields::Fields;
use crate::yaml::{Entry, Node, Scalar, ScalarValue, Value};

/// Over the defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnResource {
    /// An attribute without value is removed.
    pub attributes: Vec<(String, Option<AnyValue>)>,
    /// The schema of the attributes' names.
    pub schema_url: Option<String>,
}

/// Old releases have a mapping, new ones also `attributes` as a list of names and values.
pub(super) fn read(fields: &mut Fields<'_>) -> OwnResource {
    let doc = "Attributes of the process: a mapping of names to values, where null removes one, \
               or `attributes` as a list of `name` and `value`; and `schema_url`.";
    let mut resource = OwnResource::default();
    for Entry { key, value, .. } in fields.entries("resource", "map of strings", doc) {
        match (key.as_str(), &value.value) {
            ("attributes", Value::List(items)) => {
                let read = items.iter().filter_map(|item| attribute(fields, item));
                resource.attributes.extend(read.collect::<Vec<_>>());
            }
            ("schema_url", Value::Scalar(scalar)) => {
                resource.schema_url = (!scalar.is_null()).then(|| scalar.text.clone());
            }
            ("attributes_list", _) => fields.error_at_with_hint(
                "resource",
                "has `attributes_list`, which Collectors do not take either",
                "use `attributes`, a list of `name` and `value`",
            ),
            ("detectors" | "detection/development", Value::Mapping(_) | Value::List(_)) => {
                let message = format!("has `{key}`, which has no effect: nothing is detected");
                fields.warn_at("resource", &message);
            }
            (_, Value::Scalar(scalar)) => {
                let is_removed = scalar.is_null() && !scalar.expanded;
                let text = (!is_removed).then(|| AnyValue::String(scalar.text.clone()));
                resource.attributes.push((key.clone(), text));
            }
            _ => {
                let message = format!("has `{key}`, which must be a single value");
                fields.error_at("resource", &message);
            }
        }
    }
    resource
}

fn attribute(fields: &mut Fields<'_>, item: &Node) -> Option<(String, Option<AnyValue>)> {
    let scalar = |key| item.get(key).and_then(Node::as_scalar);
    let Some(name) = scalar("name") else {
        fields.error_at("resource", "has an attribute without `name`");
        return None;
    };
    let is_text = scalar("type").is_some_and(|kind| kind.text == "string");
    let one = |scalar: &Scalar| if is_text { text_of(scalar) } else { value_of(scalar) };
    let value = match item.get("value").map(|node| &node.value) {
        None => None,
        Some(Value::Scalar(scalar)) => Some(one(scalar)).filter(|it| *it != AnyValue::Empty),
        Some(Value::List(items)) if items.iter().all(|item| item.as_scalar().is_some()) => {
            let items = items.iter().filter_map(Node::as_scalar);
            Some(AnyValue::Array(items.map(one).collect()))
        }
        Some(_) => {
            let message = format!("has `{}`, which must be a value or a list of values", name.text);
            fields.error_at("resource", &message);
            None
        }
    };
    Some((name.text.clone(), value))
}

fn text_of(scalar: &Scalar) -> AnyValue {
    AnyValue::String(scalar.text.clone())
}

fn value_of(scalar: &Scalar) -> AnyValue {
    match scalar.value {
        // An expanded `${…}` may be meant as a text, whatever it looks like.
        _ if scalar.expanded => text_of(scalar),
        ScalarValue::Null => AnyValue::Empty,
        ScalarValue::Boolean(value) => AnyValue::Bool(value),
        ScalarValue::Integer(value) => {
            i64::try_from(value).map_or_else(|_| text_of(scalar), AnyValue::Int)
        }
        ScalarValue::Float(value) => AnyValue::Double(value),
        ScalarValue::String => text_of(scalar),
    }
}
