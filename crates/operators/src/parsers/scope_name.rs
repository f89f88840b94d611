//! `scope_name_parser`: the name of the scope from a field.

use sluice_config::Fields;

use super::values::{read_source, text_at};
use crate::field::Field;
use crate::operator::Transform;
use crate::record::Record;

#[derive(Clone)]
pub(super) struct ScopeName(Field);

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    Some(Box::new(ScopeName::read(fields)?))
}

impl ScopeName {
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<ScopeName> {
        read_source(fields, None, "The field with the name.").map(ScopeName)
    }

    pub(super) fn set(&self, record: &mut Record) -> Result<(), String> {
        record.scope_name = text_at(&self.0, record)?.to_owned();
        Ok(())
    }
}

impl Transform for ScopeName {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        self.set(record)
    }
}
