//! `sanitize_utf8` makes a text of bytes that are not quite one.

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
    let doc = "The text. Without the field, the record stays as it is.";
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

/// Bytes in a row that are no characters become one U+FFFD.
fn sanitized(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 8);
    let mut is_behind_invalid = false;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let goes_on = is_behind_invalid && chunk.valid().is_empty();
        is_behind_invalid = !chunk.invalid().is_empty();
        if is_behind_invalid && !goes_on {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{chain, record};

    /// Guarantee: as the Collector's, what is not UTF-8 becomes U+FFFD, once for bytes in a row;
    /// other values are a failure, and a field that is absent is none.
    #[test]
    fn bytes_become_a_text() {
        let text = |text: &str| AnyValue::String(text.to_owned());
        let bytes = |bytes: &[u8]| AnyValue::Bytes(bytes.to_vec());
        for (body, expected) in [
            (text("plain"), Some(text("plain"))),
            (bytes(b"plain"), Some(text("plain"))),
            (bytes(b"end \xfe"), Some(text("end \u{fffd}"))),
            (bytes(b"two \xfe\xfe\xe2\x82"), Some(text("two \u{fffd}"))),
            (bytes(b"\xfe and \xfe."), Some(text("\u{fffd} and \u{fffd}."))),
            (AnyValue::Int(1), None),
        ] {
            let absent = "- {type: sanitize_utf8, field: attributes.x}";
            let mut chain = chain(&format!("- {{type: sanitize_utf8}}\n{absent}"));
            let (mut out, mut given) = (Vec::new(), record(serde_json::json!({})));
            given.body = body.clone();
            chain.process(given, &mut out);
            let failure = chain.take_failure().map(|failure| failure.reason);
            let reason = "the field is not a string".to_owned();
            assert_eq!(failure, expected.is_none().then_some(reason));
            assert_eq!(out[0].body, expected.unwrap_or(body));
        }
    }
}
