//! `remove` takes a field out of a record.

use sluice_config::Fields;

use crate::field::{Field, Root};
use crate::operator::Transform;
use crate::record::Record;

#[derive(Clone)]
struct Remove {
    field: Field,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let doc = "The field. `attributes` and `resource` mean all of them.";
    let field = fields.parsed("field", "a field", None, doc, Field::parse);
    if field.is_none() && !fields.is_given("field") {
        fields.error_missing("field");
    }
    Some(Box::new(Remove { field: field? }))
}

impl Transform for Remove {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let is_whole = self.field.root != Root::Body && self.field.keys.is_empty();
        match self.field.take(record) {
            None if !is_whole => Err(self.field.missing()),
            _ => Ok(()),
        }
    }
}
