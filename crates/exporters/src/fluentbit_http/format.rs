//! Requests in the formats of Fluent Bit's output `http`.

use bytes::Bytes;
use sluice_flow::PackError;
use sluice_net::forward::message::write_event_time;
use sluice_net::forward::msgpack::Write as _;
use sluice_otlp::{AnyValue, Malformed, civil_time};

use super::config::FluentBitHttpConfig;
use crate::fluent::{Record, each_record, write_json, write_value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// One array.
    Json,
    JsonLines,
    JsonStream,
    MessagePack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DateFormat {
    Double,
    Epoch,
    EpochMs,
    Iso8601,
    JavaSqlTimestamp,
}

impl DateFormat {
    fn value(self, time_ns: u64) -> AnyValue {
        let (seconds, nanos) = ((time_ns / 1_000_000_000) as i64, time_ns % 1_000_000_000);
        let text = |separator: &str, end: &str| {
            let civil = civil_time(seconds).replace('T', separator);
            AnyValue::String(format!("{civil}.{:06}{end}", nanos / 1000))
        };
        match self {
            DateFormat::Double => AnyValue::Double(time_ns as f64 / 1e9),
            DateFormat::Epoch => AnyValue::Int(seconds),
            DateFormat::EpochMs => AnyValue::Int((time_ns / 1_000_000) as i64),
            DateFormat::Iso8601 => text("T", "Z"),
            DateFormat::JavaSqlTimestamp => text(" ", ""),
        }
    }
}

/// Why a request could not be written.
enum Stop {
    TooLarge,
    Malformed(Malformed),
}

impl From<Malformed> for Stop {
    fn from(error: Malformed) -> Self {
        Stop::Malformed(error)
    }
}

/// The body of a request with these records, uncompressed.
pub(super) fn write(
    config: &FluentBitHttpConfig,
    chunks: &[Bytes],
    limit_bytes: usize,
) -> Result<Bytes, PackError> {
    let mut out = Vec::new();
    let written = each_record(chunks, &config.layout, |record| {
        let is_first = out.is_empty();
        write_record(&mut out, config, record, is_first);
        if out.len() > limit_bytes { Err(Stop::TooLarge) } else { Ok(()) }
    });
    match written {
        Ok(()) => {}
        Err(Stop::TooLarge) => {
            let reason = format!("more than {limit_bytes} bytes in this format");
            return Err(PackError::TooLarge(reason));
        }
        Err(Stop::Malformed(error)) => return Err(PackError::Failed(error.to_string())),
    }
    if config.format == Format::Json {
        out.extend_from_slice(if out.is_empty() { b"[]" } else { b"]" });
    }
    Ok(out.into())
}

fn write_record(out: &mut Vec<u8>, config: &FluentBitHttpConfig, record: Record, is_first: bool) {
    let Record { time_ns, mut fields } = record;
    if config.format == Format::MessagePack {
        out.write_array(2);
        write_event_time(out, time_ns);
        write_value(out, &AnyValue::Map(fields));
        return;
    }
    if !config.date_key.is_empty() {
        fields.retain(|(key, _)| *key != config.date_key);
        fields.insert(0, (config.date_key.clone(), config.date_format.value(time_ns)));
    }
    if config.format == Format::Json {
        out.push(if is_first { b'[' } else { b',' });
    }
    write_json(out, &AnyValue::Map(fields));
    if config.format == Format::JsonLines {
        out.push(b'\n');
    }
}
