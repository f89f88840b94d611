//! `noop` does nothing.

use sluice_config::Fields;

use crate::operator::Transform;
use crate::record::Record;

#[derive(Clone)]
struct Noop;

pub(super) fn read(_fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    Some(Box::new(Noop))
}

impl Transform for Noop {
    fn apply(&mut self, _record: &mut Record) -> Result<(), String> {
        Ok(())
    }
}
