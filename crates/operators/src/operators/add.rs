//! `add` sets a field.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use crate::expression::Expression;
use crate::field::Field;
use crate::operator::Transform;
use crate::read;
use crate::record::Record;

#[derive(Clone)]
struct Add {
    field: Field,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Value(AnyValue),
    Expression(Expression),
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let doc = "The field that is set. A map is merged into an existing map.";
    let field = read::field(fields, "field", doc);
    let doc = "A value of any type, or `EXPR(…)` with an expression. Required.";
    let node = fields.node("value", "string, number, boolean, list or map", doc);
    let Some(node) = node.filter(|node| !node.is_null()) else {
        fields.error_missing("value");
        return None;
    };
    let Some(value) = node.any_value() else {
        fields.error_at("value", "holds a number that does not fit into 64 bits with a sign");
        return None;
    };
    let source = match inside(&value).map(Expression::compile) {
        None => Source::Value(value),
        Some(Ok(expression)) => {
            read::warn(fields, "value", expression.warnings());
            Source::Expression(expression)
        }
        Some(Err(why)) => {
            fields.error_at("value", &format!("has no valid expression: {why}"));
            return None;
        }
    };
    Some(Box::new(Add { field: field?, source }))
}

/// The expression within `EXPR(…)`, if the value is one.
fn inside(value: &AnyValue) -> Option<&str> {
    let AnyValue::String(text) = value else { return None };
    text.strip_prefix("EXPR(")?.strip_suffix(')')
}

impl Transform for Add {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let value = match &self.source {
            Source::Value(value) => value.clone(),
            Source::Expression(expression) => expression.value(record)?,
        };
        self.field.set(record, value)
    }
}
