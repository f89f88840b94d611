//! Options that several operators have.

use sluice_config::Fields;

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
