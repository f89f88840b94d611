//! The messages of remote write, read in place.

use std::ops::Range;

use sluice_otlp::wire::{Field, Fields, LEN, Malformed, read_varint};

use crate::bytes::{all_varints, double};
use crate::kind::Kind;
use crate::settings::Version;

use super::memory::{About, Memory};

/// Labels that a series may have.
pub(super) const LABELS_LIMIT: usize = 2048;

/// The texts of a request of 2.0.
pub(super) fn symbols(message: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut symbols = Vec::new();
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next_message(4)? {
        symbols.push(&message[field.content()]);
    }
    Ok(symbols)
}

/// Remembers the metadata of a request of 1.0.
pub(super) fn read_metadata(message: &[u8], memory: &Memory) -> Result<(), Malformed> {
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next_message(3)? {
        let metadata = &message[field.content()];
        let (mut kind, mut texts) = (Kind::Unknown, [&[][..]; 3]);
        let mut fields = Fields::of(metadata);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => kind = Kind::of(field.varint(metadata)),
                2 if field.wire_type == LEN => texts[0] = &metadata[field.content()],
                4 if field.wire_type == LEN => texts[1] = &metadata[field.content()],
                5 if field.wire_type == LEN => texts[2] = &metadata[field.content()],
                _ => {}
            }
        }
        let [name, help, unit] = texts;
        memory.remember_metric(name, About { kind, help: help.into(), unit: unit.into() });
    }
    Ok(())
}

/// A series of a request.
pub(super) struct Series<'a> {
    /// Where it lies in the request.
    pub(super) range: Range<usize>,
    pub(super) bytes: &'a [u8],
    /// Sorted by name; no name twice. Empty labels are left out.
    pub(super) labels: Labels<'a>,
    /// Of 2.0.
    pub(super) kind: Kind,
    pub(super) help: &'a [u8],
    pub(super) unit: &'a [u8],
}

pub(super) type Labels<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Calls `visit` with each series, or the reason for which it is none.
pub(super) fn each_series<'a>(
    version: Version,
    message: &'a [u8],
    symbols: &[&'a [u8]],
    mut visit: impl FnMut(Result<Series<'a>, &'static str>),
) -> Result<(), Malformed> {
    let number = if version == Version::V1 { 1 } else { 5 };
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next_message(number)? {
        visit(read_series(version, message, field.content(), symbols)?);
    }
    Ok(())
}

fn read_series<'a>(
    version: Version,
    message: &'a [u8],
    range: Range<usize>,
    symbols: &[&'a [u8]],
) -> Result<Result<Series<'a>, &'static str>, Malformed> {
    let bytes = &message[range.clone()];
    let (mut kind, mut help, mut unit) = (Kind::Unknown, &[][..], &[][..]);
    if version == Version::V2 {
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next_message(5)? {
            let metadata = &bytes[field.content()];
            let mut fields = Fields::of(metadata);
            while let Some(field) = fields.next_field()? {
                let value = field.varint(metadata);
                let symbol = || usize::try_from(value).ok().and_then(|at| symbols.get(at).copied());
                match field.number {
                    1 => kind = Kind::of(value),
                    3 => match symbol() {
                        Some(text) => help = text,
                        None => return Ok(Err("a description is no symbol of the request")),
                    },
                    4 => match symbol() {
                        Some(text) => unit = text,
                        None => return Ok(Err("a unit is no symbol of the request")),
                    },
                    _ => {}
                }
            }
        }
    }
    let labels = read_labels(version, bytes, symbols)?;
    Ok(labels.map(|labels| Series { range, bytes, labels, kind, help, unit }))
}

/// The labels of a series or an exemplar, sorted.
pub(super) fn read_labels<'a>(
    version: Version,
    bytes: &'a [u8],
    symbols: &[&'a [u8]],
) -> Result<Result<Labels<'a>, &'static str>, Malformed> {
    let mut labels = Labels::new();
    let mut fields = Fields::of(bytes);
    match version {
        Version::V1 => {
            while let Some(field) = fields.next_message(1)? {
                let label = &bytes[field.content()];
                let mut pair = (&[][..], &[][..]);
                let mut fields = Fields::of(label);
                while let Some(field) = fields.next_field()? {
                    match (field.number, field.wire_type) {
                        (1, LEN) => pair.0 = &label[field.content()],
                        (2, LEN) => pair.1 = &label[field.content()],
                        _ => {}
                    }
                }
                labels.push(pair);
            }
        }
        Version::V2 => {
            let mut numbers = Vec::new();
            while let Some(field) = fields.next_field()? {
                if field.number == 1 {
                    check_varints(bytes, &field)?;
                    all_varints(bytes, &field, |number| numbers.push(number));
                }
            }
            if !numbers.len().is_multiple_of(2) {
                return Ok(Err("a label has a name without a value"));
            }
            let text = |number: u64| usize::try_from(number).ok().and_then(|at| symbols.get(at));
            for pair in numbers.chunks_exact(2) {
                let (Some(name), Some(value)) = (text(pair[0]), text(pair[1])) else {
                    return Ok(Err("a label is no symbol of the request"));
                };
                labels.push((name, value));
            }
        }
    }
    if labels.len() > LABELS_LIMIT {
        return Ok(Err("a series has too many labels"));
    }
    if !labels.is_sorted_by(|left, right| left.0 < right.0) {
        labels.sort_unstable();
        if labels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Ok(Err("a label stands twice"));
        }
    }
    if labels.iter().any(|(name, _)| name.is_empty()) {
        return Ok(Err("a label has no name"));
    }
    if labels.iter().any(|(name, value)| {
        std::str::from_utf8(name).is_err() || std::str::from_utf8(value).is_err()
    }) {
        return Ok(Err("a label is not UTF-8"));
    }
    labels.retain(|(_, value)| !value.is_empty());
    Ok(Ok(labels))
}

/// Packed varints that end within one are an error, as everywhere.
fn check_varints(bytes: &[u8], field: &Field) -> Result<(), Malformed> {
    let (packed, mut at) = (&bytes[field.content()], 0);
    while field.wire_type == LEN && at < packed.len() {
        at = read_varint(packed, at)?.1;
    }
    Ok(())
}

/// A sample. Times are in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) value: f64,
    pub(super) time: i64,
    pub(super) start: i64,
}

pub(super) fn read_sample(bytes: &[u8]) -> Result<Sample, Malformed> {
    let mut sample = Sample::default();
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => sample.value = double(bytes, &field),
            2 => sample.time = field.varint(bytes) as i64,
            3 => sample.start = field.varint(bytes) as i64,
            _ => {}
        }
    }
    Ok(sample)
}
