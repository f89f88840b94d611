//! The points of series.

use std::ops::Range;

use sluice_otlp::wire::{Fields, varint_len, write_len_field, write_message};

use crate::build::{attribute, double, exemplar, fixed64, native_content};
use crate::point::Shape;
use crate::series::STALE;
use crate::settings::Version;

use super::groups::{Lone, is_elsewhere};
use super::histogram::{self, Form, Histogram};
use super::message::{Sample, read_labels, read_sample};
use super::{Read, ReadError};

const NO_RECORDED_VALUE: u8 = 1;

/// Writes points.
pub(super) struct Points<'a> {
    version: Version,
    message: &'a [u8],
    symbols: &'a [&'a [u8]],
    limit_bytes: usize,
    lone: Lone,
    error: Option<ReadError>,
    /// Of the present series.
    attributes: Vec<u8>,
    exemplars: Vec<u8>,
}

fn nanos(millis: i64) -> u64 {
    u64::try_from(millis).unwrap_or(0).saturating_mul(1_000_000)
}

fn write_times(out: &mut Vec<u8>, start: i64, time: i64) {
    if start > 0 {
        fixed64(out, 2, nanos(start));
    }
    fixed64(out, 3, nanos(time));
}

impl<'a> Points<'a> {
    pub(super) fn new(
        version: Version,
        message: &'a [u8],
        symbols: &'a [&'a [u8]],
        limit_bytes: usize,
        lone: Lone,
    ) -> Points<'a> {
        let (error, attributes, exemplars) = (None, Vec::new(), Vec::new());
        Points { version, message, symbols, limit_bytes, lone, error, attributes, exemplars }
    }

    /// The exemplars that no point took.
    pub(super) fn end(self) -> Lone {
        self.lone
    }

    /// The error that stopped it.
    pub(super) fn error(&self) -> Option<ReadError> {
        self.error
    }

    /// Writes the points of a series that a metric of this shape has.
    pub(super) fn write(
        &mut self,
        out: &mut Vec<u8>,
        shape: Shape,
        range: &Range<usize>,
        has_exemplars: bool,
        read: &mut Read,
    ) {
        let series = &self.message[range.clone()];
        if self.error.is_none()
            && let Err(error) = self.write_series(out, series, shape, has_exemplars, read)
        {
            self.error = Some(error);
        }
    }

    fn write_series(
        &mut self,
        out: &mut Vec<u8>,
        series: &[u8],
        shape: Shape,
        has_exemplars: bool,
        read: &mut Read,
    ) -> Result<(), ReadError> {
        let labels = read_labels(self.version, series, self.symbols)?.unwrap_or_default();
        self.attributes.clear();
        for (name, value) in labels.iter().filter(|(name, _)| !is_elsewhere(name)) {
            let (name, value) = (text(name), text(value));
            attribute(&mut self.attributes, shape.attributes_field() as u8, name, value);
        }
        self.exemplars.clear();
        if has_exemplars {
            self.read_exemplars(series, shape, read)?;
            let lone = self.lone.take(&labels);
            for range in lone {
                self.read_exemplars(&self.message[range], shape, read)?;
            }
        }
        let histograms = if self.version == Version::V1 { 4 } else { 3 };
        let is_number = matches!(shape, Shape::Gauge | Shape::Sum);
        let mut fields = Fields::of(series);
        while let Some(field) = fields.next_field()? {
            let content = &series[field.content()];
            if is_number && field.is_message(2) {
                let sample = read_sample(content)?;
                self.write_number(out, sample);
                read.written.samples += 1;
            } else if !is_number && field.is_message(histograms) {
                let wanted = match shape {
                    Shape::Exponential => Form::Exponential,
                    _ => Form::Explicit,
                };
                if histogram::form(content)? != Ok(wanted) {
                    continue;
                }
                match histogram::read(content)? {
                    Ok(histogram) => {
                        self.write_histogram(out, shape, &histogram);
                        read.written.histograms += 1;
                    }
                    Err(reason) => read.refuse(reason),
                }
            }
            if out.len() > self.limit_bytes {
                return Err(ReadError::TooLarge { limit_bytes: self.limit_bytes });
            }
        }
        Ok(())
    }

    /// Encodes the exemplars of a series, which its first point gets.
    fn read_exemplars(
        &mut self,
        series: &[u8],
        shape: Shape,
        read: &mut Read,
    ) -> Result<(), ReadError> {
        let number = if self.version == Version::V1 { 3 } else { 4 };
        let mut fields = Fields::of(series);
        while let Some(field) = fields.next_message(number)? {
            let content = &series[field.content()];
            // Its labels, value and time are numbered as those of a series with one sample.
            let labels = match read_labels(self.version, content, self.symbols)? {
                Ok(labels) => labels,
                Err(reason) => {
                    read.refuse(reason);
                    continue;
                }
            };
            let (mut value, mut time) = (0.0, 0);
            let mut fields = Fields::of(content);
            while let Some(field) = fields.next_field()? {
                match field.number {
                    2 => value = crate::bytes::double(content, &field),
                    3 => time = field.varint(content) as i64,
                    _ => {}
                }
            }
            let field = shape.exemplars_field() as u8;
            exemplar(&mut self.exemplars, field, nanos(time), value, |label| {
                labels.iter().for_each(|(name, value)| label(text(name), text(value)));
            });
            read.written.exemplars += 1;
            if self.exemplars.len() > self.limit_bytes {
                return Err(ReadError::TooLarge { limit_bytes: self.limit_bytes });
            }
        }
        Ok(())
    }

    fn point(&mut self, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
        let width = varint_len(self.attributes.len() + self.exemplars.len() + 32);
        write_message(out, 1, width, |out| {
            out.extend_from_slice(&self.attributes);
            content(out);
            out.extend_from_slice(&self.exemplars);
        });
        self.exemplars.clear();
    }

    fn write_number(&mut self, out: &mut Vec<u8>, sample: Sample) {
        self.point(out, |out| {
            write_times(out, sample.start, sample.time);
            match sample.value.to_bits() == STALE.to_bits() {
                true => out.extend_from_slice(&[8 << 3, NO_RECORDED_VALUE]),
                false => double(out, 4, sample.value),
            }
        });
    }

    fn write_histogram(&mut self, out: &mut Vec<u8>, shape: Shape, histogram: &Histogram) {
        self.point(out, |out| {
            write_times(out, histogram.start, histogram.time);
            if histogram.is_stale {
                out.extend_from_slice(&[10 << 3, NO_RECORDED_VALUE]);
            } else if shape == Shape::Exponential {
                native_content(out, &histogram.native);
            } else {
                fixed64(out, 4, histogram.native.count);
                double(out, 5, histogram.native.sum);
                let counts: Vec<u8> =
                    histogram.counts.iter().flat_map(|count| count.to_le_bytes()).collect();
                write_len_field(out, 6, &counts);
                let bounds: Vec<u8> =
                    histogram.bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
                write_len_field(out, 7, &bounds);
            }
        });
    }
}

/// Labels are UTF-8 once they are read.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
