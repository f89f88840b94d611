//! `copy` puts the value of one field also into another.

use sluice_config::Fields;

use crate::field::Field;
use crate::operator::Transform;
use crate::read;
use crate::record::Record;

#[derive(Clone)]
struct Copy {
    from: Field,
    to: Field,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let from = read::field(fields, "from", "The field whose value is copied.");
    let doc = "The place of the copy. A map is merged into a map that is there.";
    let to = read::field(fields, "to", doc);
    Some(Box::new(Copy { from: from?, to: to? }))
}

impl Transform for Copy {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let value = self.from.copied(record).ok_or_else(|| self.from.missing())?;
        self.to.set(record, value)
    }
}
