//! Requests in the formats of Fluent Bit's output `http`.

use bytes::Bytes;
use sluice_flow::PackError;
use sluice_net::forward::message::write_event_time;
use sluice_net::forward::msgpack::Write as _;
use sluice_otlp::{AnyValue, civil_time};

use super::config::FluentBitHttpConfig;
use crate::fluent::{self, Json, MessagePack, Notation, Stop, each_record};

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

/// The body of a request with these records, uncompressed.
pub(super) fn write(config: &FluentBitHttpConfig, chunks: &[Bytes]) -> Result<Bytes, PackError> {
    let mut out = Vec::new();
    match config.format {
        Format::MessagePack => write_records::<MessagePack>(&mut out, config, chunks)?,
        _ => write_records::<Json>(&mut out, config, chunks)?,
    }
    if config.format == Format::Json {
        out.extend_from_slice(if out.is_empty() { b"[]" } else { b"]" });
    }
    Ok(out.into())
}

fn write_records<N: Notation>(
    out: &mut Vec<u8>,
    config: &FluentBitHttpConfig,
    chunks: &[Bytes],
) -> Result<(), Stop> {
    let limit_bytes = fluent::limit_bytes(&config.client);
    each_record::<N>(chunks, &config.layout, limit_bytes, |record| {
        if config.format == Format::MessagePack {
            out.write_array(2);
            write_event_time(out, record.time_ns);
            return record.write::<N>(out, None, None, limit_bytes);
        }
        if config.format == Format::Json {
            out.push(if out.is_empty() { b'[' } else { b',' });
        }
        let date = config.date_format.value(record.time_ns);
        let key = Some(&*config.date_key).filter(|key| !key.is_empty());
        record.write::<N>(out, key.map(|key| (key, &date)), key, limit_bytes)?;
        if config.format == Format::JsonLines {
            out.push(b'\n');
        }
        Ok(())
    })
}
