//! `noop` does nothing.

use sluice_config::Fields;

use crate::operator::{Build, Transform, transform};
use crate::record::Record;

#[derive(Clone)]
struct Noop;

pub(super) fn read(_fields: &mut Fields<'_>) -> Option<Build> {
    transform(Noop)
}

impl Transform for Noop {
    fn apply(&mut self, _record: &mut Record) -> Result<(), String> {
        Ok(())
    }
}
