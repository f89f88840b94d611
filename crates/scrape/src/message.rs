//! Messages of a page of protobuf, field by field.

use std::ops::Range;

use sluice_otlp::wire::{FIXED64, Field, Fields, LEN, Malformed, VARINT, read_varint};

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

    fn at(self, found: Malformed) -> ScrapeError {
        ScrapeError::Message { offset: self.start + found.offset, reason: found.reason }
    }

    /// Calls `visit` with each field.
    pub(crate) fn read(self, mut visit: impl FnMut(FieldOf<'p>) -> Result<()>) -> Result<()> {
        let mut fields = Fields::of(self.bytes());
        while let Some(field) = fields.next_field().map_err(|found| self.at(found))? {
            visit(FieldOf { message: self, field })?;
        }
        Ok(())
    }

    /// The last of each field whose number is below `N`.
    pub(crate) fn last<const N: usize>(self) -> Result<Last<'p, N>> {
        let mut fields = [const { None }; N];
        self.read(|field| {
            if let Some(last) = fields.get_mut(field.number() as usize) {
                *last = Some(field);
            }
            Ok(())
        })?;
        Ok(Last { fields })
    }

    pub(crate) fn text(self) -> Result<&'p str> {
        match std::str::from_utf8(self.bytes()) {
            Ok(text) => Ok(text),
            Err(_) => self.fail("a text is not UTF-8"),
        }
    }

    /// The number that starts at `at`, and the place behind it.
    pub(crate) fn varint(self, at: usize) -> Result<(u64, usize)> {
        read_varint(self.bytes(), at).map_err(|found| self.at(found))
    }
}

/// The fields of a message that occur once. One that is missing is zero or empty.
pub(crate) struct Last<'p, const N: usize> {
    fields: [Option<FieldOf<'p>>; N],
}

impl<'p, const N: usize> Last<'p, N> {
    pub(crate) fn inner(&self, number: usize) -> Option<Message<'p>> {
        self.fields[number].as_ref().map(FieldOf::inner)
    }

    pub(crate) fn text(&self, number: usize) -> Result<&'p str> {
        self.inner(number).map_or(Ok(""), Message::text)
    }

    pub(crate) fn int(&self, number: usize) -> u64 {
        self.fields[number].as_ref().map_or(0, FieldOf::int)
    }

    pub(crate) fn double(&self, number: usize) -> f64 {
        self.fields[number].as_ref().map_or(0.0, FieldOf::double)
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

    fn double(&self) -> f64 {
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
        let (inner, mut at) = (self.inner(), 0);
        while at < inner.bytes().len() {
            let (value, next) = inner.varint(at)?;
            out.push(value);
            at = next;
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
