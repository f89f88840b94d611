//! `assign_keys` makes a map of a list.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use crate::field::{Field, put};
use crate::operator::Transform;
use crate::read;
use crate::record::Record;

#[derive(Clone)]
struct AssignKeys {
    field: Field,
    keys: Vec<String>,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let field = read::field(fields, "field", "The list.");
    let doc = "Keys for its values, in their order. The operator fails on a record whose list is \
               shorter or longer. Required.";
    let keys = fields.string_list("keys", &[], doc);
    if keys.is_empty() {
        fields.error_missing("keys");
        return None;
    }
    Some(Box::new(AssignKeys { field: field?, keys }))
}

impl Transform for AssignKeys {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let found = match self.field.get(record) {
            Some(AnyValue::Array(values)) => values.len(),
            Some(_) => return Err("the field is not a list".to_owned()),
            None => return Err(self.field.missing()),
        };
        if found != self.keys.len() {
            let keys = self.keys.len();
            return Err(format!("the list has {found} values, and there are {keys} keys"));
        }
        let Some(AnyValue::Array(values)) = self.field.take(record) else { return Ok(()) };
        let mut map = Vec::with_capacity(found);
        for (key, value) in self.keys.iter().zip(values) {
            put(&mut map, key, value);
        }
        self.field.set(record, AnyValue::Map(map))
    }
}
