//! `unquote` takes a string out of its quotes.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use crate::escape::{Escape, escape};
use crate::field::Field;
use crate::operator::Transform;
use crate::read;
use crate::record::Record;

#[derive(Clone)]
struct Unquote {
    field: Field,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let doc = "The string, in double quotes with escapes, or in backquotes without. Without the \
               field, the record stays as it is.";
    let field = read::field(fields, "field", doc);
    Some(Box::new(Unquote { field: field? }))
}

impl Transform for Unquote {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let unquoted = match self.field.get(record) {
            None => return Ok(()),
            Some(AnyValue::String(text)) => unquoted(text).ok_or("the text is not in quotes")?,
            Some(_) => return Err("the field is not a string".to_owned()),
        };
        self.field.set(record, AnyValue::String(unquoted))
    }
}

/// The text of a Go literal. What is not UTF-8 becomes replacement characters.
fn unquoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\'' | '`'))?;
    let inside = text.get(1..)?.strip_suffix(quote)?;
    if quote == '`' {
        return (!inside.contains('`')).then(|| inside.replace('\r', ""));
    }
    let (mut out, mut rest, mut count) = (Vec::with_capacity(inside.len()), inside, 0);
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        count += 1;
        match character {
            '\n' => return None,
            '\\' => rest = unescape(rest, quote, &mut out)?,
            _ if character == quote => return None,
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    if quote == '\'' && count != 1 {
        return None;
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// Reads an escape, whose backslash was read; answers the rest. A quote is escaped only in its own.
fn unescape<'t>(text: &'t str, quote: char, out: &mut Vec<u8>) -> Option<&'t str> {
    let (escape, rest) = escape(text)?;
    match escape {
        Escape::Simple(other @ (b'\'' | b'"')) if char::from(other) != quote => return None,
        Escape::Simple(byte) | Escape::Byte(byte) => out.push(byte),
        Escape::Code(code) => {
            out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Some(rest)
}
