//! `flatten` moves the entries of a map to where the map is.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use crate::field::Field;
use crate::operator::Transform;
use crate::read;
use crate::record::Record;

#[derive(Clone)]
struct Flatten {
    field: Field,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let field = read::field(fields, "field", "The map.");
    Some(Box::new(Flatten { field: field? }))
}

impl Transform for Flatten {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        match self.field.get(record) {
            Some(AnyValue::Map(_)) => {}
            Some(_) => return Err("the field is not a map".to_owned()),
            None => return Err(self.field.missing()),
        }
        let Some(AnyValue::Map(map)) = self.field.take(record) else { return Ok(()) };
        let around = self.field.keys.split_last().map_or(&[][..], |(_, around)| around);
        Field { root: self.field.root, keys: around.to_vec() }.extend(record, map, true);
        Ok(())
    }
}
