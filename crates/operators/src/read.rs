//! Options that several operators have.

use sluice_config::{Entry, Fields, Node, ScalarValue, Value};
use sluice_otlp::AnyValue;

use crate::expression::Expression;
use crate::field::{Field, Root};

/// A part of a record: the body or something in it, or something in attributes or resource.
pub(crate) fn field(fields: &mut Fields<'_>, key: &str, doc: &str) -> Option<Field> {
    let field = optional_field(fields, key, None, &format!("{doc} Required."));
    if field.is_none() && !fields.is_given(key) {
        fields.error_missing(key);
    }
    field
}

/// As [`field`], with a default or none.
pub(crate) fn optional_field(
    fields: &mut Fields<'_>,
    key: &str,
    default: Option<&str>,
    doc: &str,
) -> Option<Field> {
    fields.parsed(key, "a field", default, doc, inner_field)
}

pub(crate) fn inner_field(text: &str) -> Result<Field, String> {
    let field = Field::parse(text)?;
    if field.root != Root::Body && field.keys.is_empty() {
        return Err(format!("it needs a key, as in `{text}.name`"));
    }
    Ok(field)
}

/// An expression that gives a boolean.
pub(crate) fn condition(fields: &mut Fields<'_>, key: &str, doc: &str) -> Option<Expression> {
    let parse = |text: &str| match text {
        "" => Ok(None),
        text => Expression::condition(text).map(Some),
    };
    let condition = fields.parsed(key, "an expression", None, doc, parse).flatten();
    if let Some(condition) = &condition {
        warn(fields, key, condition.warnings());
    }
    condition
}

pub(crate) fn required_condition(
    fields: &mut Fields<'_>,
    key: &str,
    doc: &str,
) -> Option<Expression> {
    let doc = format!("{doc} Required.");
    let condition = fields.parsed(key, "an expression", None, &doc, Expression::condition);
    match &condition {
        Some(condition) => warn(fields, key, condition.warnings()),
        None if !fields.is_given(key) => fields.error_missing(key),
        None => {}
    }
    condition
}

pub(crate) fn warn<'s>(
    fields: &mut Fields<'_>,
    key: &str,
    warnings: impl IntoIterator<Item = &'s String>,
) {
    for warning in warnings {
        fields.warn_at(key, &format!("is probably wrong: {warning}"));
    }
}

/// The value that a piece of YAML stands for. `None`: a number does not fit into 64 bits.
pub(crate) fn value_of(node: &Node) -> Option<AnyValue> {
    match &node.value {
        Value::Scalar(scalar) => Some(match scalar.value {
            ScalarValue::Null => AnyValue::Empty,
            ScalarValue::Boolean(value) => AnyValue::Bool(value),
            ScalarValue::Integer(value) => AnyValue::Int(value.try_into().ok()?),
            ScalarValue::Float(value) => AnyValue::Double(value),
            ScalarValue::String => AnyValue::String(scalar.text.clone()),
        }),
        Value::List(items) => {
            Some(AnyValue::Array(items.iter().map(value_of).collect::<Option<_>>()?))
        }
        Value::Mapping(entries) => {
            let entry = |entry: &Entry| Some((entry.key.clone(), value_of(&entry.value)?));
            Some(AnyValue::Map(entries.iter().map(entry).collect::<Option<_>>()?))
        }
    }
}
