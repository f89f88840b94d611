//! `move` takes a value from one field and puts it into another.

use sluice_config::Fields;

use crate::field::Field;
use crate::operator::Transform;
use crate::read;
use crate::record::Record;

#[derive(Clone)]
struct Move {
    from: Field,
    to: Field,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let from = read::field(fields, "from", "The field whose value is moved.");
    let doc = "Its new place. A map is merged into a map that is there.";
    let to = read::field(fields, "to", doc);
    Some(Box::new(Move { from: from?, to: to? }))
}

impl Transform for Move {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let value = self.from.take(record).ok_or_else(|| self.from.missing())?;
        self.to.set(record, value)
    }
}
