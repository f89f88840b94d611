//! Messages of a page of protobuf, field by field.

use std::ops::Range;

use sluice_otlp::wire::{FIXED64, Field, Fields, LEN, Malformed, VARINT};

use crate::error::ScrapeError;

pub(crate) type Result<T> = std::result::Result<T, ScrapeError>;

/// A message within the page.
#[derive(Clone, Copy)]
pub(crate) struct Message<'p> {
    pub(crate) page: &'p [u8],
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl<'p> Message<'p> {
    pub(crate) fn bytes(self) -> &'p [u8] {
        &self.page[self.start..self.end]
    }

    pub(crate) fn fail<T>(self, reason: &'static str) -> Result<T> {
        Err(ScrapeError::Message { offset: self.start, reason })
    }

    /// Calls `visit` with each field.
    pub(crate) fn read(self, mut visit: impl FnMut(FieldOf<'p>) -> Result<()>) -> Result<()> {
        let bytes = self.bytes();
        let mut fields = Fields::of(bytes);
        loop {
            let next = fields.next_field().map_err(|Malformed { offset, reason }| {
                ScrapeError::Message { offset: self.start + offset, reason }
            })?;
            let Some(field) = next else { return Ok(()) };
            visit(FieldOf { message: self, field })?;
        }
    }

    pub(crate) fn text(self) -> Result<&'p str> {
        match std::str::from_utf8(self.bytes()) {
            Ok(text) => Ok(text),
            Err(_) => self.fail("a text is not UTF-8"),
        }
    }
}

/// A field of a message.
pub(crate) struct FieldOf<'p> {
    message: Message<'p>,
    field: Field,
}

impl<'p> FieldOf<'p> {
    pub(crate) fn number(&self) -> u32 {
        self.field.number
    }

    /// The content of a message, text or packed list; empty if the field is none of them.
    pub(crate) fn inner(&self) -> Message<'p> {
        let Message { page, start, end } = self.message;
        let Range { start: from, end: to } = self.field.content();
        match self.field.wire_type {
            LEN => Message { page, start: start + from, end: start + to },
            _ => Message { page, start: end, end },
        }
    }

    pub(crate) fn int(&self) -> u64 {
        self.field.varint(self.message.bytes())
    }

    pub(crate) fn double(&self) -> f64 {
        match self.field.wire_type {
            FIXED64 => double(&self.message.bytes()[self.field.content()]),
            _ => 0.0,
        }
    }

    /// Integers, packed or not.
    pub(crate) fn ints(&self, out: &mut Vec<u64>) -> Result<()> {
        if self.field.wire_type == VARINT {
            out.push(self.int());
        }
        // Packed, each integer ends with its one byte below 0x80.
        let inner = self.inner();
        let (mut value, mut shift) = (0_u64, 0);
        for byte in inner.bytes() {
            if shift > 63 {
                return inner.fail("a varint is longer than 64 bits");
            }
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if *byte < 0x80 {
                out.push(value);
                (value, shift) = (0, 0);
            }
        }
        if shift > 0 {
            return inner.fail("a varint runs past the end of its message");
        }
        Ok(())
    }

    /// Doubles, packed or not.
    pub(crate) fn doubles(&self, out: &mut Vec<f64>) {
        if self.field.wire_type == FIXED64 {
            out.push(self.double());
        }
        out.extend(self.inner().bytes().chunks_exact(8).map(double));
    }
}

fn double(bytes: &[u8]) -> f64 {
    bytes.try_into().map_or(0.0, f64::from_le_bytes)
}

pub(crate) fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
