//! A line that was read.

use std::borrow::Cow;

use memchr::memchr;

use crate::escape::{Part, unescape};

/// A range of the bytes of which a line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start..self.end]
    }
}

/// A value, with the place of a string.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueAt {
    Float(f64),
    Integer(i64),
    Unsigned(u64),
    Boolean(bool),
    /// Between its quotes.
    String(Span),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldAt {
    pub(crate) key: Span,
    pub(crate) value: ValueAt,
}

/// The value of a field. Floats are finite.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Float(f64),
    Integer(i64),
    Unsigned(u64),
    Boolean(bool),
    String(Cow<'a, str>),
}

/// A line, in the bytes that it was read from. All of it is UTF-8; it has a measurement and at
/// least one field, and no key or value of a tag is empty.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) measurement: Span,
    /// From behind the comma to the space; empty without tags.
    pub(crate) tags: Span,
    pub(crate) fields: &'a [FieldAt],
    pub(crate) time_ns: Option<i64>,
}

fn text(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Cow::Owned(text),
            Err(error) => Cow::Owned(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        },
    }
}

impl<'a> Line<'a> {
    pub fn measurement(&self) -> Cow<'a, str> {
        text(unescape(self.raw_measurement(), Part::Measurement))
    }

    /// Keys and values of tags, in the line's order. No key occurs twice.
    pub fn tags(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a> {
        tags_of(self.raw_tags())
            .map(|(key, value)| (text(unescape(key, Part::Key)), text(unescape(value, Part::Key))))
    }

    /// Keys and values of fields, in the line's order. Of equal keys InfluxDB takes the last.
    pub fn fields(&self) -> impl Iterator<Item = (Cow<'a, str>, Value<'a>)> + use<'a> {
        let bytes = self.bytes;
        self.fields.iter().map(move |field| {
            let value = match field.value {
                ValueAt::Float(value) => Value::Float(value),
                ValueAt::Integer(value) => Value::Integer(value),
                ValueAt::Unsigned(value) => Value::Unsigned(value),
                ValueAt::Boolean(value) => Value::Boolean(value),
                ValueAt::String(span) => {
                    Value::String(text(unescape(&bytes[span.start..span.end], Part::String)))
                }
            };
            (text(unescape(&bytes[field.key.start..field.key.end], Part::Key)), value)
        })
    }

    /// Nanoseconds since 1970, if the line has a timestamp.
    pub fn time_ns(&self) -> Option<i64> {
        self.time_ns
    }

    pub(crate) fn raw_measurement(&self) -> &'a [u8] {
        &self.bytes[self.measurement.start..self.measurement.end]
    }

    pub(crate) fn raw_tags(&self) -> &'a [u8] {
        &self.bytes[self.tags.start..self.tags.end]
    }
}

/// Keys and values of tags as they stand in a line, which was read before.
pub(crate) fn tags_of(tags: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = tags;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let key_end = unescaped(rest, b'=');
        let (key, behind) = rest.split_at(key_end);
        let behind = behind.get(1..).unwrap_or_default();
        let (value, behind) = behind.split_at(unescaped(behind, b','));
        rest = behind.get(1..).unwrap_or_default();
        Some((key, value))
    })
}

/// The place of the first byte of this kind without a backslash before it.
fn unescaped(bytes: &[u8], wanted: u8) -> usize {
    let mut at = 0;
    while let Some(found) = memchr(wanted, &bytes[at..]) {
        at += found;
        if at == 0 || bytes[at - 1] != b'\\' {
            return at;
        }
        at += 1;
    }
    bytes.len()
}
