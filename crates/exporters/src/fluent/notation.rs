//! The notations in which records are written. Values are written from the bytes in which they lie
//! in a request: nothing is built in between, so that tiny ones cost no more memory than others.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sluice_net::forward::msgpack::Write as _;
use sluice_otlp::wire::{Fields, LEN};
use sluice_otlp::{Malformed, NESTING_LIMIT, Value};

/// Writes the parts of values, one after the other.
pub(crate) trait Notation {
    fn null(out: &mut Vec<u8>);
    fn boolean(out: &mut Vec<u8>, value: bool);
    fn integer(out: &mut Vec<u8>, value: i64);
    fn float(out: &mut Vec<u8>, value: f64);
    /// Also a key. Should be UTF-8.
    fn text(out: &mut Vec<u8>, text: &[u8]);
    fn bytes(out: &mut Vec<u8>, bytes: &[u8]);
    fn begin_array(out: &mut Vec<u8>, len: usize);
    fn begin_map(out: &mut Vec<u8>, len: usize);
    /// Before each element, and before each key.
    fn part(_out: &mut Vec<u8>, _index: usize) {}
    /// Between a key and its value.
    fn colon(_out: &mut Vec<u8>) {}
    fn end_array(_out: &mut Vec<u8>) {}
    fn end_map(_out: &mut Vec<u8>) {}
}

/// Plain JSON. Bytes become base64; a number that JSON does not have becomes `null`.
pub(crate) struct Json;

impl Notation for Json {
    fn null(out: &mut Vec<u8>) {
        out.extend_from_slice(b"null");
    }

    fn boolean(out: &mut Vec<u8>, value: bool) {
        out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn integer(out: &mut Vec<u8>, value: i64) {
        // Writing into memory does not fail.
        _ = write!(out, "{value}");
    }

    fn float(out: &mut Vec<u8>, value: f64) {
        _ = serde_json::to_writer(out, &value);
    }

    fn text(out: &mut Vec<u8>, text: &[u8]) {
        _ = serde_json::to_writer(out, &*String::from_utf8_lossy(text));
    }

    fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
        Json::text(out, STANDARD.encode(bytes).as_bytes());
    }

    fn begin_array(out: &mut Vec<u8>, _: usize) {
        out.push(b'[');
    }

    fn begin_map(out: &mut Vec<u8>, _: usize) {
        out.push(b'{');
    }

    fn part(out: &mut Vec<u8>, index: usize) {
        if index > 0 {
            out.push(b',');
        }
    }

    fn colon(out: &mut Vec<u8>) {
        out.push(b':');
    }

    fn end_array(out: &mut Vec<u8>) {
        out.push(b']');
    }

    fn end_map(out: &mut Vec<u8>) {
        out.push(b'}');
    }
}

pub(crate) struct MessagePack;

impl Notation for MessagePack {
    fn null(out: &mut Vec<u8>) {
        out.write_nil();
    }

    fn boolean(out: &mut Vec<u8>, value: bool) {
        out.write_bool(value);
    }

    fn integer(out: &mut Vec<u8>, value: i64) {
        out.write_int(value);
    }

    fn float(out: &mut Vec<u8>, value: f64) {
        out.write_float(value);
    }

    fn text(out: &mut Vec<u8>, text: &[u8]) {
        out.write_str(&String::from_utf8_lossy(text));
    }

    fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
        out.write_bin(bytes);
    }

    fn begin_array(out: &mut Vec<u8>, len: usize) {
        out.write_array(len);
    }

    fn begin_map(out: &mut Vec<u8>, len: usize) {
        out.write_map(len);
    }
}

/// The depth of a record's values as messages of OTLP: of a body in a `LogRecord` of a request.
pub(super) const RECORD_DEPTH: usize = 4;
/// A map around values is three messages.
pub(super) const MAP_DEPTH: usize = 3;
const ARRAY_DEPTH: usize = 2;

/// Writes an encoded `AnyValue`. Keys of a map within it may occur more than once. `depth`: the
/// value's own, where a receiver makes a record of it again.
///
/// # Errors
/// [`Malformed`] if it is none, or nests deeper than [`NESTING_LIMIT`]: no receiver would take it.
pub(crate) fn write_value<N: Notation>(
    out: &mut Vec<u8>,
    encoded: &[u8],
    depth: usize,
) -> Result<(), Malformed> {
    if depth > NESTING_LIMIT {
        return Err(Malformed { offset: 0, reason: "values nest too deeply in this format" });
    }
    match Value::read(encoded) {
        Value::Empty => N::null(out),
        Value::String(text) => N::text(out, text),
        Value::Bool(value) => N::boolean(out, value),
        Value::Int(value) => N::integer(out, value),
        Value::Double(value) => N::float(out, value),
        Value::Bytes(bytes) => N::bytes(out, bytes),
        Value::Nested(encoded) => {
            let parts = Parts::of(encoded)?;
            let mut index = 0;
            if parts.is_map {
                N::begin_map(out, parts.len()?);
                parts.each(|part| {
                    let (key, value) = key_and_value(part)?;
                    N::part(out, index);
                    N::text(out, key);
                    N::colon(out);
                    index += 1;
                    write_value::<N>(out, value, depth + MAP_DEPTH)
                })?;
                N::end_map(out);
            } else {
                N::begin_array(out, parts.len()?);
                parts.each(|part| {
                    N::part(out, index);
                    index += 1;
                    write_value::<N>(out, part, depth + ARRAY_DEPTH)
                })?;
                N::end_array(out);
            }
        }
    }
    Ok(())
}

/// The elements of an encoded array, or the pairs of a map.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    encoded: &'a [u8],
    pub(super) is_map: bool,
}

const ARRAY: u32 = 5;
const MAP: u32 = 6;

impl<'a> Parts<'a> {
    /// Of an encoded `AnyValue`. As protobuf merges: further occurrences of an array or a map
    /// extend it, and another value begins anew.
    pub(super) fn of(encoded: &'a [u8]) -> Result<Parts<'a>, Malformed> {
        let (mut number, mut from, mut end) = (0, 0, 0);
        let mut fields = Fields::of(encoded);
        while let Some(field) = fields.next_field()? {
            if (1..=8).contains(&field.number) && field.number != number {
                (number, from) = (field.number, end);
            }
            end = field.content().end;
        }
        let encoded = if matches!(number, ARRAY | MAP) { &encoded[from..] } else { &[] };
        Ok(Parts { encoded, is_map: number == MAP })
    }

    pub(super) fn len(self) -> Result<usize, Malformed> {
        let mut len = 0;
        self.each::<Malformed>(|_| {
            len += 1;
            Ok(())
        })?;
        Ok(len)
    }

    pub(super) fn each<E: From<Malformed>>(
        self,
        mut visit: impl FnMut(&'a [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let number = if self.is_map { MAP } else { ARRAY };
        let mut lists = Fields::of(self.encoded);
        while let Some(list) = lists.next_message(number)? {
            let list = &self.encoded[list.content()];
            let mut parts = Fields::of(list);
            while let Some(part) = parts.next_message(1)? {
                visit(&list[part.content()])?;
            }
        }
        Ok(())
    }
}

/// The key and the encoded value of a `KeyValue`.
pub(super) fn key_and_value(pair: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut key, mut value) = (&[][..], &[][..]);
    let mut parts = Fields::of(pair);
    while let Some(part) = parts.next_field()? {
        match (part.number, part.wire_type) {
            (1, LEN) => key = &pair[part.content()],
            (2, LEN) => value = &pair[part.content()],
            _ => {}
        }
    }
    Ok((key, value))
}
