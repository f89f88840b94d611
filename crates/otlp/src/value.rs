//! Attribute values (`AnyValue`): read in place, built, written.

use std::mem::replace;

use crate::wire::{FIXED64, Fields, LEN, Result, VARINT, write_len_field, write_varint};

/// A value as it lies on the wire. Strings are UTF-8 once a request went through [`crate::scan`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Empty,
    String(&'a [u8]),
    Bool(bool),
    Int(i64),
    Double(f64),
    Bytes(&'a [u8]),
    /// The encoded `AnyValue` of an array or a map: see [`AnyValue::decode`].
    Nested(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Reads an encoded `AnyValue`: the last of several values; an unreadable one is empty.
    pub fn read(encoded: &'a [u8]) -> Value<'a> {
        let mut value = Value::Empty;
        let mut fields = Fields::of(encoded);
        while let Ok(Some(field)) = fields.next_field() {
            let content = &encoded[field.content()];
            value = match (field.number, field.wire_type) {
                (1, LEN) => Value::String(content),
                (2, VARINT) => Value::Bool(field.varint(encoded) != 0),
                (3, VARINT) => Value::Int(field.varint(encoded) as i64),
                (4, FIXED64) => Value::Double(content.try_into().map_or(0.0, f64::from_le_bytes)),
                (5 | 6, LEN) => Value::Nested(encoded),
                (7, LEN) => Value::Bytes(content),
                (8, VARINT) => Value::Empty,
                _ => continue,
            };
        }
        value
    }

    pub fn to_owned(self) -> AnyValue {
        match self {
            Value::Empty => AnyValue::Empty,
            Value::String(text) => AnyValue::String(String::from_utf8_lossy(text).into_owned()),
            Value::Bool(value) => AnyValue::Bool(value),
            Value::Int(value) => AnyValue::Int(value),
            Value::Double(value) => AnyValue::Double(value),
            Value::Bytes(bytes) => AnyValue::Bytes(bytes.to_vec()),
            Value::Nested(encoded) => AnyValue::decode(encoded).unwrap_or(AnyValue::Empty),
        }
    }
}

/// A value of its own, outside any request.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyValue {
    Empty,
    String(String),
    Bool(bool),
    Int(i64),
    Double(f64),
    Bytes(Vec<u8>),
    Array(Vec<AnyValue>),
    /// In the order in which it was written; keys may occur more than once.
    Map(Vec<Entry>),
}

impl AnyValue {
    /// Decodes an encoded `AnyValue` with its nested values, as protobuf merges: another value
    /// replaces the one before, a further occurrence of the same array or map extends it.
    ///
    /// # Errors
    /// [`crate::Malformed`] if `encoded` is no message or exceeds [`crate::NESTING_LIMIT`].
    pub fn decode(encoded: &[u8]) -> Result<AnyValue> {
        let mut value = AnyValue::Empty;
        value.merge(encoded, 0)?;
        Ok(value)
    }

    fn merge(&mut self, encoded: &[u8], depth: usize) -> Result<()> {
        if depth > crate::NESTING_LIMIT {
            return Err(crate::wire::malformed(0, "messages nest too deeply"));
        }
        let mut fields = Fields::of(encoded);
        while let Some(field) = fields.next_field()? {
            let content = &encoded[field.content()];
            match (field.number, field.wire_type) {
                (5, LEN) => {
                    let before = replace(self, AnyValue::Empty);
                    *self = AnyValue::Array(merge_array(before, content, depth + 1)?);
                }
                (6, LEN) => {
                    let before = replace(self, AnyValue::Empty);
                    *self = AnyValue::Map(merge_map(before, content, depth + 1)?);
                }
                (1..=8, _) => *self = Value::read(&encoded[field.whole()]).to_owned(),
                _ => {}
            }
        }
        Ok(())
    }

    /// The content of an `AnyValue` message.
    pub fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            AnyValue::Empty => {}
            AnyValue::String(text) => write_len_field(&mut out, 1, text.as_bytes()),
            AnyValue::Bool(value) => out.extend_from_slice(&[0x10, u8::from(*value)]),
            AnyValue::Int(value) => {
                out.push(0x18);
                write_varint(&mut out, *value as u64);
            }
            AnyValue::Double(value) => {
                out.push(0x21);
                out.extend_from_slice(&value.to_le_bytes());
            }
            AnyValue::Bytes(bytes) => write_len_field(&mut out, 7, bytes),
            AnyValue::Array(values) => {
                let mut array = Vec::new();
                for value in values {
                    write_len_field(&mut array, 1, &value.encoded());
                }
                write_len_field(&mut out, 5, &array);
            }
            AnyValue::Map(entries) => {
                let mut map = Vec::new();
                for (key, value) in entries {
                    let mut entry = Vec::new();
                    write_len_field(&mut entry, 1, key.as_bytes());
                    write_len_field(&mut entry, 2, &value.encoded());
                    write_len_field(&mut map, 1, &entry);
                }
                write_len_field(&mut out, 6, &map);
            }
        }
        out
    }
}

type Entry = (String, AnyValue);

fn merge_array(before: AnyValue, encoded: &[u8], depth: usize) -> Result<Vec<AnyValue>> {
    let mut values = if let AnyValue::Array(values) = before { values } else { Vec::new() };
    let mut fields = Fields::of(encoded);
    while let Some(field) = fields.next_message(1)? {
        let mut value = AnyValue::Empty;
        value.merge(&encoded[field.content()], depth + 1)?;
        values.push(value);
    }
    Ok(values)
}

fn merge_map(before: AnyValue, encoded: &[u8], depth: usize) -> Result<Vec<Entry>> {
    let mut entries = if let AnyValue::Map(entries) = before { entries } else { Vec::new() };
    let mut fields = Fields::of(encoded);
    while let Some(field) = fields.next_message(1)? {
        let entry = &encoded[field.content()];
        let (mut key, mut value) = (String::new(), AnyValue::Empty);
        let mut entry_fields = Fields::of(entry);
        while let Some(field) = entry_fields.next_field()? {
            let content = &entry[field.content()];
            match (field.number, field.wire_type) {
                (1, LEN) => key = String::from_utf8_lossy(content).into_owned(),
                (2, LEN) => value.merge(content, depth + 2)?,
                _ => {}
            }
        }
        entries.push((key, value));
    }
    Ok(entries)
}
