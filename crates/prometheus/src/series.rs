//! Writes series of remote write, in either version.

use sluice_otlp::wire::{LEN, varint_len, write_len_field, write_message, write_varint};

use crate::bytes::{to_zigzag, write_double, write_int, write_present_int};
use crate::exponential::{Native, Side};
use crate::kind::Kind;
use crate::labels::{Encoded, write_single};
use crate::settings::Version;
use crate::symbols::Symbols;

/// The value by which a series ends.
pub(crate) const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// The metadata of a metric.
#[derive(Clone, Copy, Default)]
pub(crate) struct About {
    pub(crate) kind: Kind,
    /// Symbols.
    pub(crate) help: u32,
    pub(crate) unit: u32,
}

/// Times of a sample, in milliseconds since 1970.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) time: i64,
    /// 0: unknown.
    pub(crate) start: i64,
}

/// An exemplar, with its labels in the form of the version.
#[derive(Default)]
pub(crate) struct Exemplar {
    pub(crate) labels: Vec<u8>,
    pub(crate) value: f64,
    pub(crate) time: i64,
}

/// Field numbers in which the versions differ.
struct Numbers {
    series: u32,
    exemplars: u32,
    histograms: u32,
}

const V1: Numbers = Numbers { series: 1, exemplars: 3, histograms: 4 };
const V2: Numbers = Numbers { series: 5, exemplars: 4, histograms: 3 };
const SAMPLES: u32 = 2;

/// The series of a request.
pub(crate) struct SeriesWriter {
    pub(crate) version: Version,
    pub(crate) symbols: Symbols,
    pub(crate) out: Vec<u8>,
    pub(crate) samples: u64,
    pub(crate) histograms: u64,
    pub(crate) exemplars: u64,
}

impl SeriesWriter {
    pub(crate) fn new(version: Version, capacity: usize) -> SeriesWriter {
        let (symbols, out) = (Symbols::new(), Vec::with_capacity(capacity));
        SeriesWriter { version, symbols, out, samples: 0, histograms: 0, exemplars: 0 }
    }

    /// Writes a label of its own to `out`, as it stands in a series.
    pub(crate) fn label(&mut self, out: &mut Vec<u8>, name: &str, value: &[u8]) {
        write_single(out, self.version, &mut self.symbols, name, value);
    }

    /// Writes a series with one sample. `name` and `extra` are labels of [`SeriesWriter::label`].
    pub(crate) fn sample(
        &mut self,
        labels: (&Encoded, &[u8], &[u8]),
        about: About,
        value: f64,
        times: Times,
        exemplars: &[Exemplar],
    ) {
        let is_v2 = self.version == Version::V2;
        self.samples += 1;
        self.series(labels, about, exemplars, |out| {
            write_message(out, SAMPLES, 1, |out| {
                write_double(out, 1, value);
                write_int(out, 2, times.time as u64);
                if is_v2 {
                    write_int(out, 3, times.start as u64);
                }
            });
        });
    }

    /// Writes a series with one native histogram.
    pub(crate) fn histogram(
        &mut self,
        labels: (&Encoded, &[u8], &[u8]),
        about: About,
        native: &Native,
        times: Times,
        exemplars: &[Exemplar],
    ) {
        let is_v2 = self.version == Version::V2;
        let number = if is_v2 { V2.histograms } else { V1.histograms };
        self.histograms += 1;
        self.series(labels, about, exemplars, |out| {
            write_message(out, number, 2, |out| {
                write_native(out, native);
                write_int(out, 15, times.time as u64);
                if !native.bounds.is_empty() {
                    write_packed_doubles(out, 16, &native.bounds);
                }
                if is_v2 {
                    write_int(out, 17, times.start as u64);
                }
            });
        });
    }

    fn series(
        &mut self,
        (encoded, name, extra): (&Encoded, &[u8], &[u8]),
        about: About,
        exemplars: &[Exemplar],
        content: impl FnOnce(&mut Vec<u8>),
    ) {
        let is_v2 = self.version == Version::V2;
        let numbers = if is_v2 { V2 } else { V1 };
        self.exemplars += exemplars.len() as u64;
        let (before, rest) = encoded.bytes.split_at(encoded.name_at);
        let (between, behind) = rest.split_at(encoded.extra_at - encoded.name_at);
        let parts = [before, name, between, extra, behind];
        write_message(&mut self.out, numbers.series, 2, |out| {
            if is_v2 {
                out.push(1 << 3 | LEN);
                write_varint(out, parts.iter().map(|part| part.len() as u64).sum());
            }
            parts.iter().for_each(|part| out.extend_from_slice(part));
            content(out);
            for exemplar in exemplars {
                write_message(out, numbers.exemplars, 1, |out| {
                    if is_v2 && !exemplar.labels.is_empty() {
                        write_len_field(out, 1, &exemplar.labels);
                    } else {
                        out.extend_from_slice(&exemplar.labels);
                    }
                    write_double(out, 2, exemplar.value);
                    write_int(out, 3, exemplar.time as u64);
                });
            }
            if is_v2 {
                write_message(out, 5, 1, |out| {
                    write_int(out, 1, about.kind as u64);
                    write_int(out, 3, u64::from(about.help));
                    write_int(out, 4, u64::from(about.unit));
                });
            }
        });
    }

    /// Writes metadata of remote write 1.0.
    pub(crate) fn metadata(&mut self, kind: Kind, name: &str, help: &[u8], unit: &str) {
        write_message(&mut self.out, 3, 1, |out| {
            write_int(out, 1, kind as u64);
            write_len_field(out, 2, name.as_bytes());
            for (number, text) in [(4, help), (5, unit.as_bytes())] {
                if !text.is_empty() {
                    write_len_field(out, number, text);
                }
            }
        });
    }
}

fn write_native(out: &mut Vec<u8>, native: &Native) {
    write_present_int(out, 1, native.count);
    write_double(out, 3, native.sum);
    write_int(out, 4, to_zigzag(i64::from(native.schema)));
    write_double(out, 5, native.zero_threshold);
    write_present_int(out, 6, native.zero_count);
    write_side(out, 8, &native.negative);
    write_side(out, 11, &native.positive);
}

/// Writes spans, and in the next field the differences.
fn write_side(out: &mut Vec<u8>, field: u32, side: &Side) {
    for (offset, length) in &side.spans {
        write_message(out, field, 1, |out| {
            write_int(out, 1, to_zigzag(i64::from(*offset)));
            write_int(out, 2, u64::from(*length));
        });
    }
    if !side.deltas.is_empty() {
        write_message(out, field + 1, varint_len(side.deltas.len()), |out| {
            side.deltas.iter().for_each(|delta| write_varint(out, to_zigzag(*delta)));
        });
    }
}

/// Of a field whose number takes two bytes.
fn write_packed_doubles(out: &mut Vec<u8>, field: u32, values: &[f64]) {
    write_varint(out, u64::from(field << 3 | u32::from(LEN)));
    write_varint(out, (values.len() * 8) as u64);
    out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}
