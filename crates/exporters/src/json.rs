//! The formats in which exporters write requests.

use bytes::Bytes;
use sluice_net::compress;
use sluice_otlp::Signal;

/// The request limit bounds the protobuf form of a batch; JSON is a few times larger.
const JSON_LIMIT_BYTES: usize = 256 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Proto,
    Json,
}

impl Format {
    /// The chunks of one protobuf request in this format.
    pub(crate) fn write(self, signal: Signal, chunks: Vec<Bytes>) -> Result<Vec<Bytes>, String> {
        match self {
            Format::Proto => Ok(chunks),
            Format::Json => Ok(vec![to_json(signal, &chunks)?]),
        }
    }
}

/// The chunks of one protobuf request as one JSON object, without a line break.
pub(crate) fn to_json(signal: Signal, chunks: &[Bytes]) -> Result<Bytes, String> {
    let request = compress::joined(chunks);
    let mut out = Vec::with_capacity(request.len() * 2);
    sluice_otlp::json::to_json(signal, &request, JSON_LIMIT_BYTES, &mut out)
        .map_err(|error| error.to_string())?;
    Ok(Bytes::from(out))
}
