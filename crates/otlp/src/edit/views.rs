//! What can be asked of scopes, metrics and items without decoding them.

use std::borrow::Cow;
use std::ops::Range;

use crate::wire::{Field, Fields, LEN, VARINT};

/// A message in a request, with all occurrences of a singular field, which protobuf merges.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) request: &'a [u8],
    pub(super) contents: &'a [Range<usize>],
}

impl<'a> Message<'a> {
    /// Calls `visit` with each field that can be read.
    #[inline]
    fn each(&self, mut visit: impl FnMut(&Field)) {
        for content in self.contents {
            let mut fields = Fields::new(self.request, content.clone());
            while let Ok(Some(field)) = fields.next_field() {
                visit(&field);
            }
        }
    }

    fn last(&self, number: u32, wire_type: u8) -> Option<Field> {
        let mut found = None;
        self.each(|field| {
            if field.number == number && field.wire_type == wire_type {
                found = Some(*field);
            }
        });
        found
    }

    /// The last length-delimited field of this number; empty if there is none.
    fn bytes(&self, number: u32) -> &'a [u8] {
        self.last(number, LEN).map_or(&[], |field| &self.request[field.content()])
    }

    fn varint(&self, number: u32) -> u64 {
        self.last(number, VARINT).map_or(0, |field| field.varint(self.request))
    }

    /// The message in field `number`, its occurrences joined.
    fn merged(&self, number: u32) -> Cow<'a, [u8]> {
        let mut merged = Cow::Borrowed(&[][..]);
        self.each(|field| {
            if field.is_message(number) {
                let occurrence = &self.request[field.content()];
                match merged.is_empty() {
                    true => merged = Cow::Borrowed(occurrence),
                    false => merged.to_mut().extend_from_slice(occurrence),
                }
            }
        });
        merged
    }
}

/// An instrumentation scope.
#[derive(Clone, Copy)]
pub struct Scope<'a>(pub(super) Message<'a>);

impl<'a> Scope<'a> {
    pub fn name(&self) -> &'a [u8] {
        self.0.bytes(1)
    }

    pub fn version(&self) -> &'a [u8] {
        self.0.bytes(2)
    }
}

/// A metric, whatever its type.
#[derive(Clone, Copy)]
pub struct Metric<'a>(pub(super) Message<'a>);

impl<'a> Metric<'a> {
    pub fn name(&self) -> &'a [u8] {
        self.0.bytes(1)
    }
}

/// A span, data point or log record. Ask only what its signal has.
#[derive(Clone, Copy)]
pub struct Item<'a>(pub(super) Message<'a>);

impl<'a> Item<'a> {
    pub fn span_name(&self) -> &'a [u8] {
        self.0.bytes(5)
    }

    /// Number of the span's kind; enums are open.
    pub fn span_kind(&self) -> i32 {
        self.0.varint(6) as i32
    }

    /// Number of the log record's severity; 0 is undefined.
    pub fn severity_number(&self) -> i32 {
        self.0.varint(2) as i32
    }

    pub fn severity_text(&self) -> &'a [u8] {
        self.0.bytes(3)
    }

    /// The log record's body: an encoded `AnyValue`, to be read by [`crate::Value::read`].
    pub fn body(&self) -> Cow<'a, [u8]> {
        self.0.merged(5)
    }
}
