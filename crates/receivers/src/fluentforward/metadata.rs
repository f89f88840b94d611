//! Fluent Bit's metadata, as its output `opentelemetry` reads it. Each entry of an event's metadata
//! becomes an attribute; but `otlp` has fields of a log record. The record that begins a group has
//! the resource and the scope of those that follow.
//!
//! What has another type than it should is left out, as there.

use std::ops::Range;

use sluice_net::forward::msgpack::{Item, Reader};
use sluice_otlp::wire::write_len_field;

use super::records::{ATTRIBUTE_DEPTH, Writer, check_fields, nested, remove};
use super::refused::Refused;

const OTLP: &[u8] = b"otlp";

/// The metadata of an event.
#[derive(Default)]
pub(super) struct Metadata<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: Option<u64>,
    observed_ns: Option<u64>,
    severity_number: Option<u8>,
    severity_text: Option<&'a [u8]>,
    trace_id: Option<[u8; 16]>,
    span_id: Option<[u8; 8]>,
    flags: Option<u32>,
    entries: Option<Reader<'a>>,
    /// `otlp.attributes`.
    attributes: Option<Reader<'a>>,
}

/// Calls `visit` with each name and value of a map. Of anything else with nothing.
fn each_pair<'a>(
    mut map: Reader<'a>,
    mut visit: impl FnMut(&'a [u8], Reader<'a>) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let Item::Map(pairs) = map.item()? else { return Ok(()) };
    check_fields(pairs)?;
    for _ in 0..pairs {
        let mut name = map;
        map.skip()?;
        let value = map;
        map.skip()?;
        if let Item::Str(name) | Item::Bin(name) = name.item()? {
            visit(name, value)?;
        }
    }
    Ok(())
}

/// An id as bytes, or as a text of hexadecimal digits.
fn id<const LEN: usize>(item: Item<'_>) -> Option<[u8; LEN]> {
    match item {
        Item::Bin(bytes) => bytes.try_into().ok(),
        Item::Str(digits) if digits.len() == 2 * LEN && digits.is_ascii() => {
            let mut id = [0; LEN];
            for (byte, digits) in id.iter_mut().zip(digits.chunks(2)) {
                let digit = |digit: u8| char::from(digit).to_digit(16);
                *byte = (16 * digit(digits[0])? + digit(digits[1])?) as u8;
            }
            Some(id)
        }
        _ => None,
    }
}

impl<'a> Metadata<'a> {
    /// The reader stands before a map.
    pub(super) fn read(entries: Reader<'a>) -> Result<Metadata<'a>, Refused> {
        let mut metadata = Metadata { entries: Some(entries), ..Metadata::default() };
        each_pair(entries, |name, value| match name {
            OTLP => each_pair(value, |name, value| metadata.set(name, value)),
            _ => Ok(()),
        })?;
        Ok(metadata)
    }

    fn set(&mut self, name: &[u8], start: Reader<'a>) -> Result<(), Refused> {
        let item = { start }.item()?;
        let nanos = || match item {
            Item::Int(nanos) => u64::try_from(nanos).ok(),
            Item::Large(nanos) => Some(nanos),
            _ => None,
        };
        match (name, item) {
            (b"timestamp", _) => self.time_ns = nanos(),
            (b"observed_timestamp", _) => self.observed_ns = nanos(),
            (b"severity_number", Item::Int(number @ 1..=24)) => {
                self.severity_number = Some(number as u8);
            }
            (b"severity_text", Item::Str(text)) => self.severity_text = Some(text),
            (b"trace_id", item) => self.trace_id = id(item),
            (b"span_id", item) => self.span_id = id(item),
            (b"trace_flags", Item::Int(flags)) => self.flags = u32::try_from(flags).ok(),
            (b"attributes", Item::Map(_)) => self.attributes = Some(start),
            _ => {}
        }
        Ok(())
    }

    /// Writes fields of a `LogRecord`: all but its time.
    pub(super) fn write(
        &self,
        writer: &mut Writer<'a>,
        out: &mut Vec<u8>,
        dropped: &mut Vec<Range<usize>>,
    ) -> Result<(), Refused> {
        self.severity_number.iter().for_each(|number| out.extend_from_slice(&[0x10, *number]));
        self.severity_text.iter().for_each(|text| writer.text(out, 0x1a, text));
        self.trace_id.iter().for_each(|id| write_len_field(out, 9, id));
        self.span_id.iter().for_each(|id| write_len_field(out, 10, id));
        if let Some(flags) = self.flags {
            out.push(0x45);
            out.extend_from_slice(&flags.to_le_bytes());
        }
        if let Some(observed_ns) = self.observed_ns {
            out.push(0x59);
            out.extend_from_slice(&observed_ns.to_le_bytes());
        }
        for (list, left_out) in [(self.entries, OTLP), (self.attributes, &[][..])] {
            let Some(list) = list else { continue };
            each_pair(list, |name, mut value| {
                if name == left_out && !name.is_empty() {
                    return Ok(());
                }
                writer.attribute(out, 0x32, name, dropped, |writer, out| {
                    writer.value(out, &mut value, ATTRIBUTE_DEPTH)
                })
            })?;
        }
        Ok(())
    }
}

impl<'a> Writer<'a> {
    /// Writes the beginning of a group: fields of `ResourceLogs`, and from the returned place on
    /// those of `ScopeLogs`. `body`: of the record that begins it.
    pub(super) fn group(&mut self, out: &mut Vec<u8>, body: Reader<'a>) -> Result<usize, Refused> {
        let (mut resource, mut scope) = (None, None);
        each_pair(body, |name, value| {
            match name {
                b"resource" => resource = Some(value),
                b"scope" => scope = Some(value),
                _ => {}
            }
            Ok(())
        })?;
        resource.map_or(Ok(()), |resource| self.owner(out, resource, false))?;
        let at = out.len();
        scope.map_or(Ok(()), |scope| self.owner(out, scope, true))?;
        Ok(at)
    }

    /// A `Resource` or an `InstrumentationScope`, and the URL of its schema, which stands beside.
    fn owner(
        &mut self,
        out: &mut Vec<u8>,
        owner: Reader<'a>,
        is_scope: bool,
    ) -> Result<(), Refused> {
        let (mut attributes, mut schema_url) = (None, None);
        nested(out, 0x0a, |out| {
            each_pair(owner, |name, start| {
                match (name, { start }.item()?) {
                    (b"attributes", Item::Map(_)) => attributes = Some(start),
                    (b"schema_url", Item::Str(url)) => schema_url = Some(url),
                    (b"name", Item::Str(text)) if is_scope => self.text(out, 0x0a, text),
                    (b"version", Item::Str(text)) if is_scope => self.text(out, 0x12, text),
                    _ => {}
                }
                Ok(())
            })?;
            let Some(attributes) = attributes else { return Ok(()) };
            let tag = if is_scope { 0x1a } else { 0x0a };
            let mut dropped = Vec::new();
            self.seen.clear();
            each_pair(attributes, |name, mut value| {
                self.attribute(out, tag, name, &mut dropped, |writer, out| {
                    writer.value(out, &mut value, ATTRIBUTE_DEPTH)
                })
            })?;
            remove(out, dropped);
            Ok(())
        })?;
        schema_url.iter().for_each(|url| self.text(out, 0x1a, url));
        Ok(())
    }
}
