//! `sanitize_utf8` makes text of bytes that are no UTF-8, as `encoding: utf-8-raw` reads them.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use crate::field::Field;
use crate::operator::Transform;
use crate::read;
use crate::record::Record;

#[derive(Clone)]
struct SanitizeUtf8 {
    field: Field,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let doc = "The text. Bytes in a row that are no UTF-8 become one U+FFFD.";
    let field = read::optional_field(fields, "field", Some("body"), doc);
    Some(Box::new(SanitizeUtf8 { field: field? }))
}

impl Transform for SanitizeUtf8 {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let text = match self.field.get(record) {
            None | Some(AnyValue::String(_)) => return Ok(()),
            Some(AnyValue::Bytes(bytes)) => sanitized(bytes),
            Some(_) => return Err("the field is not a string".to_owned()),
        };
        self.field.set(record, AnyValue::String(text))
    }
}

fn sanitized(bytes: &[u8]) -> String {
    let (mut text, mut is_within) = (String::with_capacity(bytes.len()), false);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            if !is_within || !chunk.valid().is_empty() {
                text.push('\u{fffd}');
            }
            is_within = true;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{record, run};

    #[test]
    fn bytes_become_text() {
        let mut given = record(serde_json::json!({}));
        given.body = AnyValue::Bytes(b"\xff\xfea\xe2\x82\xc3b\xff".to_vec());
        let out = run("- type: sanitize_utf8", [given]);
        let expected = "\u{fffd}a\u{fffd}b\u{fffd}".to_owned();
        assert_eq!(out[0].body, AnyValue::String(expected));
        let dropped = "- {type: sanitize_utf8, on_error: drop}";
        assert_eq!(run(dropped, [record(serde_json::json!({"body": 1}))]).len(), 0);
        assert_eq!(run(dropped, [record(serde_json::json!({"body": "text"}))]).len(), 1);
    }
}
