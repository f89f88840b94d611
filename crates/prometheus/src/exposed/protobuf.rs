//! A page of protobuf: messages `io.prometheus.client.MetricFamily`, each after its length.

use sluice_otlp::wire::{LEN, write_len_field, write_message, write_varint};

use super::names::{each_label, shown};
use super::value::{Exemplar, Native, Series, Value};
use super::{Family, Page};
use crate::bytes::{to_zigzag, write_present_double, write_present_int};
use crate::exponential::{self, Side};
use crate::kind::Kind;

const NANOS: u64 = 1_000_000_000;
/// The room for the length of a family; a page is shorter than 4 GiB.
const LENGTH_BYTES: usize = 5;

pub(super) fn write_family(out: &mut Vec<u8>, page: Page, name: &str, family: &Family) {
    let start = out.len();
    out.resize(start + LENGTH_BYTES, 0);
    write_len_field(out, 1, shown(name, page.escapes).0.as_bytes());
    write_len_field(out, 2, family.help.as_bytes());
    write_present_int(out, 3, type_number(family.kind));
    for (labels, series) in family.sorted() {
        write_message(out, 4, 2, |out| write_series(out, page, family.kind, labels, series));
    }
    let len = out.len() - start - LENGTH_BYTES;
    let mut prefix = Vec::with_capacity(LENGTH_BYTES);
    write_varint(&mut prefix, len as u64);
    out.splice(start..start + LENGTH_BYTES, prefix);
}

fn type_number(kind: Kind) -> u64 {
    match kind {
        Kind::Counter => 0,
        Kind::Gauge => 1,
        Kind::Summary => 2,
        Kind::Histogram => 4,
        _ => 3,
    }
}

fn write_series(out: &mut Vec<u8>, page: Page, kind: Kind, labels: &[u8], series: &Series) {
    if page.escapes {
        each_label(labels, true, |(name, _), value| {
            write_message(out, 1, 1, |out| {
                write_len_field(out, 1, name.as_bytes());
                write_len_field(out, 2, value.as_bytes());
            });
        });
    } else {
        // Labels are encoded as remote write 1.0 has them, and so has this message.
        out.extend_from_slice(labels);
    }
    match &series.value {
        Value::Number(value) => {
            let field = match kind {
                Kind::Counter => 3,
                Kind::Gauge => 2,
                _ => 5,
            };
            write_message(out, field, 1, |out| {
                write_present_double(out, 1, *value);
                if kind == Kind::Counter {
                    series.exemplars.iter().for_each(|it| write_exemplar(out, 2, it));
                    write_start(out, 3, series);
                }
            });
        }
        Value::Summary(summary) => {
            write_message(out, 4, 2, |out| {
                write_present_int(out, 1, summary.count);
                write_present_double(out, 2, summary.sum);
                for (quantile, value) in &summary.quantiles {
                    write_message(out, 3, 1, |out| {
                        write_present_double(out, 1, *quantile);
                        write_present_double(out, 2, *value);
                    });
                }
                write_start(out, 4, series);
            });
        }
        Value::Classic(classic) => {
            write_message(out, 7, 2, |out| {
                write_present_int(out, 1, classic.count);
                write_present_double(out, 2, classic.sum);
                let mut exemplars = series.exemplars.iter().peekable();
                let mut cumulative = 0_u64;
                for (index, (bound, count)) in classic.buckets.iter().enumerate() {
                    cumulative = cumulative.saturating_add(*count);
                    let exemplar = exemplars.next_if(|it| it.bucket == index);
                    write_bucket(out, *bound, cumulative, exemplar);
                }
                // The last bucket is known from the count, unless it has an exemplar.
                if let Some(last) = exemplars.next() {
                    write_bucket(out, f64::INFINITY, classic.count, Some(last));
                }
                write_start(out, 15, series);
            });
        }
        Value::Native(native) => {
            write_message(out, 7, 2, |out| write_native(out, native, series));
        }
    }
    if page.timestamps && series.time_ns > 0 {
        write_present_int(out, 6, series.time_ns / 1_000_000);
    }
}

fn write_bucket(out: &mut Vec<u8>, bound: f64, count: u64, exemplar: Option<&Exemplar>) {
    write_message(out, 3, 1, |out| {
        write_present_int(out, 1, count);
        write_present_double(out, 2, bound);
        exemplar.into_iter().for_each(|it| write_exemplar(out, 3, it));
    });
}

fn write_native(out: &mut Vec<u8>, native: &Native, series: &Series) {
    write_present_int(out, 1, native.count);
    write_present_double(out, 2, native.sum.unwrap_or_default());
    let sparse = exponential::native(native.count, native.sum, &native.buckets);
    if let Some(sparse) = sparse {
        write_present_int(out, 5, to_zigzag(sparse.schema.into()));
        write_present_double(out, 6, sparse.zero_threshold);
        write_present_int(out, 7, sparse.zero_count);
        write_side(out, (9, 10), &sparse.negative);
        write_side(out, (12, 13), &sparse.positive);
    }
    write_start(out, 15, series);
    for exemplar in series.exemplars.iter().filter(|it| it.time_ns > 0) {
        let mut content = Vec::new();
        write_exemplar(&mut content, 1, exemplar);
        // The same with field 16, whose number takes two bytes.
        write_varint(out, u64::from(16_u32 << 3 | u32::from(LEN)));
        out.extend_from_slice(&content[1..]);
    }
}

fn write_side(out: &mut Vec<u8>, (spans, deltas): (u32, u8), side: &Side) {
    for (offset, length) in &side.spans {
        write_message(out, spans, 1, |out| {
            write_present_int(out, 1, to_zigzag((*offset).into()));
            write_present_int(out, 2, u64::from(*length));
        });
    }
    for delta in &side.deltas {
        write_present_int(out, deltas, to_zigzag(*delta));
    }
}

fn write_exemplar(out: &mut Vec<u8>, field: u32, exemplar: &Exemplar) {
    write_message(out, field, 1, |out| {
        for (name, value) in exemplar.labels() {
            write_message(out, 1, 1, |out| {
                write_len_field(out, 1, name.as_bytes());
                write_len_field(out, 2, value.as_bytes());
            });
        }
        write_present_double(out, 2, exemplar.value);
        write_timestamp(out, 3, exemplar.time_ns);
    });
}

/// The time from which it counts, if that is told.
fn write_start(out: &mut Vec<u8>, field: u32, series: &Series) {
    if series.start_ns >= NANOS {
        write_timestamp(out, field, series.start_ns);
    }
}

fn write_timestamp(out: &mut Vec<u8>, field: u32, time_ns: u64) {
    write_message(out, field, 1, |out| {
        write_present_int(out, 1, time_ns / NANOS);
        write_present_int(out, 2, time_ns % NANOS);
    });
}
