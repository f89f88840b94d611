//! `retain` removes all fields but those that it names.

use std::mem::take;

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use crate::field::{Field, Root};
use crate::operator::Transform;
use crate::read;
use crate::record::Record;

#[derive(Clone)]
struct Retain {
    fields: Vec<Field>,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let doc = "The fields that stay. If none of them is in the body, the whole body stays; the \
               same holds for attributes and resource. Required.";
    let texts = fields.string_list("fields", &[], doc);
    if texts.is_empty() {
        fields.error_missing("fields");
        return None;
    }
    let mut retained = Vec::new();
    for text in texts {
        match read::inner_field(&text) {
            Ok(field) => retained.push(field),
            Err(why) => {
                fields.error_at("fields", &format!("has `{text}`, which is no field: {why}"))
            }
        }
    }
    Some(Box::new(Retain { fields: retained }))
}

impl Transform for Retain {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let begins = |root| self.fields.iter().any(|field| field.root == root);
        let kept: Vec<_> = self.fields.iter().map(|field| field.copied(record)).collect();
        if begins(Root::Body) {
            record.body = AnyValue::Empty;
        }
        if begins(Root::Attributes) {
            take(&mut record.attributes);
        }
        if begins(Root::Resource) {
            take(&mut record.resource);
        }
        for (field, value) in self.fields.iter().zip(kept) {
            value.map_or(Ok(()), |value| field.set(record, value))?;
        }
        Ok(())
    }
}
