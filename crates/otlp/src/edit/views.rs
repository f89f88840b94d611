//! Reads properties of scopes, metrics and items without decoding them.

use std::borrow::Cow;
use std::ops::Range;

use crate::wire::{Field, Fields, LEN, VARINT};

/// A scope, a metric, a span, a data point or a log record. Ask for its own fields only.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub(super) request: &'a [u8],
    /// All occurrences of a singular field, which protobuf merges.
    pub(super) contents: &'a [Range<usize>],
}

impl<'a> View<'a> {
    /// The name of a scope or a metric.
    pub fn name(&self) -> &'a [u8] {
        self.bytes(1)
    }

    /// The version of a scope.
    pub fn version(&self) -> &'a [u8] {
        self.bytes(2)
    }

    pub fn span_name(&self) -> &'a [u8] {
        self.bytes(5)
    }

    /// Number of the span's kind; enums are open.
    pub fn span_kind(&self) -> i32 {
        self.varint(6) as i32
    }

    /// Number of the log record's severity; 0 is undefined.
    pub fn severity_number(&self) -> i32 {
        self.varint(2) as i32
    }

    pub fn severity_text(&self) -> &'a [u8] {
        self.bytes(3)
    }

    /// The log record's body: an encoded `AnyValue`, to be read by [`crate::Value::read`].
    pub fn body(&self) -> Cow<'a, [u8]> {
        self.merged(5)
    }

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
