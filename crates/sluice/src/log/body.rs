//! The content of a stored frame or dead letter: its payload as OTLP JSON, and its receiver.

use anyhow::{Context, Result};
use sluice_engine::stored::{FrameMetadata, encoding_of};
use sluice_log::StoredRecord;
use sluice_net::compress;
use sluice_otlp::{Signal, json};

/// The largest inflated payload: the format's own bound of a body.
const INFLATED_LIMIT_BYTES: usize = 1 << 30;
/// JSON takes a few times more bytes than protobuf.
const JSON_LIMIT_BYTES: usize = 4 << 30;

/// Appends one line with its line break.
pub(super) fn append_line(signal: Signal, stored: &StoredRecord, line: &mut Vec<u8>) -> Result<()> {
    let code = stored.facts.encoding;
    let encoding = encoding_of(code)
        .with_context(|| format!("its encoding code {code} is unknown to this release"))?;
    let written =
        compress::with_decompressed(encoding, &stored.payload, INFLATED_LIMIT_BYTES, |request| {
            json::to_json(signal, request.bytes, JSON_LIMIT_BYTES, line)
        });
    written.context("it cannot be inflated")?.context("it is not an OTLP request")?;
    line.push(b'\n');
    Ok(())
}

pub(super) fn encoding_name(code: u8) -> String {
    encoding_of(code)
        .map_or_else(|| format!("code {code}"), |encoding| encoding.as_str().to_owned())
}

pub(super) fn receiver(stored: &StoredRecord) -> String {
    FrameMetadata::decode(&stored.metadata)
        .map_or_else(|error| format!("({error})"), |metadata| metadata.receiver)
}
