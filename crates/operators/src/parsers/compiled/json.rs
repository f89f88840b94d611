//! The members of a JSON object as encoded attributes.

use std::borrow::Cow;
use std::mem;

use sluice_otlp::wire::{varint_len, write_len_field, write_varint};

use super::{Taken, Wanted};
use crate::encode::{close, open};
use crate::parsers::Numbers;
use crate::parsers::json_text::{Json, Token};

/// Members of an object whose keys are compared with each other. An object with more is left to the
/// operators.
const KEYS_LIMIT: usize = 64;

/// Fields of messages.
const ATTRIBUTES: u8 = 6;
const KEY_VALUES: u8 = 1;

/// Writes the members of the object that the text is, and returns those that are wanted. Nothing if
/// the text is none, or if the operators have to read it: a key is there twice, is `known`, or has
/// escapes. The bytes that were written then have no meaning.
pub(super) fn write<'t>(
    text: &'t str,
    numbers: Numbers,
    known: &[String],
    wanted: Wanted<'_>,
    out: &mut Vec<u8>,
) -> Option<Taken<'t>> {
    let mut json = Json::new(text, numbers);
    let mut writer = Writer { out, keys: Vec::with_capacity(16), wanted, taken: Taken::default() };
    if json.opens().ok()? {
        writer.members(&mut json, ATTRIBUTES, known, 0)?;
    }
    // As `json_parser` does.
    if numbers == Numbers::Doubles {
        json.end().ok()?;
    }
    Some(writer.taken)
}

/// Writes an attribute with a text.
pub(super) fn write_text(out: &mut Vec<u8>, key: &str, text: &str) {
    write_scalar_entry(out, ATTRIBUTES, key, &Token::Text(Cow::Borrowed(text)));
}

struct Writer<'o, 't, 'w> {
    out: &'o mut Vec<u8>,
    /// Of the objects that are open, the innermost one's last.
    keys: Vec<&'t str>,
    /// Members of the outermost object, and their values.
    wanted: Wanted<'w>,
    taken: Taken<'t>,
}

impl<'t> Writer<'_, 't, '_> {
    /// The members behind an opening bracket, each as a field of this number.
    fn members(
        &mut self,
        json: &mut Json<'t>,
        number: u8,
        known: &[String],
        depth: usize,
    ) -> Option<()> {
        let (first, mut is_first) = (self.keys.len(), true);
        while json.more(b'}', mem::take(&mut is_first)).ok()? {
            let Cow::Borrowed(key) = json.key().ok()? else { return None };
            let others = &self.keys[first..];
            let is_known = others.contains(&key) || known.iter().any(|name| name == key);
            if is_known || others.len() == KEYS_LIMIT {
                return None;
            }
            self.keys.push(key);
            let token = json.token(depth + 1).ok()?;
            if matches!(token, Token::Map | Token::Array) {
                let entry = open(self.out, number);
                write_len_field(self.out, 1, key.as_bytes());
                self.composed(json, &token, 2, depth + 1)?;
                close(self.out, entry);
            } else {
                write_scalar_entry(self.out, number, key, &token);
                for (name, taken) in self.wanted.iter().zip(&mut self.taken) {
                    if number == ATTRIBUTES && *name == Some(key) {
                        *taken = Some(token.clone());
                    }
                }
            }
        }
        self.keys.truncate(first);
        Some(())
    }

    /// The map or list behind its bracket, as a field of this number.
    fn composed(
        &mut self,
        json: &mut Json<'t>,
        bracket: &Token<'t>,
        number: u8,
        depth: usize,
    ) -> Option<()> {
        let value = open(self.out, number);
        if matches!(bracket, Token::Map) {
            let list = open(self.out, 6);
            self.members(json, KEY_VALUES, &[], depth)?;
            close(self.out, list);
        } else {
            let list = open(self.out, 5);
            let mut is_first = true;
            while json.more(b']', mem::take(&mut is_first)).ok()? {
                let token = json.token(depth + 1).ok()?;
                if matches!(token, Token::Map | Token::Array) {
                    self.composed(json, &token, 1, depth + 1)?;
                } else {
                    write_scalar(self.out, 1, &token);
                }
            }
            close(self.out, list);
        }
        close(self.out, value);
        Some(())
    }
}

fn write_scalar_entry(out: &mut Vec<u8>, number: u8, key: &str, token: &Token<'_>) {
    let value_len = scalar_len(token);
    let key_len = 1 + varint_len(key.len()) + key.len();
    let entry_len = key_len + 1 + varint_len(value_len) + value_len;
    out.reserve(entry_len + 11);
    out.push(number << 3 | 2);
    write_varint(out, entry_len as u64);
    write_len_field(out, 1, key.as_bytes());
    write_scalar(out, 2, token);
}

/// Bytes of the value, without the field that it is.
fn scalar_len(token: &Token<'_>) -> usize {
    match token {
        Token::Text(text) => 1 + varint_len(text.len()) + text.len(),
        Token::Double(_) => 9,
        Token::Int(value) => 1 + varint_len(*value as usize),
        Token::Bool(_) => 2,
        Token::Null | Token::Map | Token::Array => 0,
    }
}

fn write_scalar(out: &mut Vec<u8>, number: u8, token: &Token<'_>) {
    out.push(number << 3 | 2);
    write_varint(out, scalar_len(token) as u64);
    match token {
        Token::Text(text) => write_len_field(out, 1, text.as_bytes()),
        Token::Double(value) => {
            out.push(0x21);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Token::Int(value) => {
            out.push(0x18);
            write_varint(out, *value as u64);
        }
        Token::Bool(value) => out.extend_from_slice(&[0x10, u8::from(*value)]),
        Token::Null | Token::Map | Token::Array => {}
    }
}
