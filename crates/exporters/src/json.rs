//! The formats in which exporters write requests.

use bytes::Bytes;
use sluice_flow::PackError;
use sluice_net::compress;
use sluice_otlp::Signal;
use sluice_otlp::json::{self, ToJsonError};

/// The request limit bounds the protobuf form of a batch; JSON is a few times larger. A batch that
/// becomes still larger is cut, and an item becomes a dead letter.
const JSON_PER_REQUEST_LIMIT: usize = 4;

/// Memory that a request takes while it is written as JSON, in sizes of its protobuf form.
pub(crate) const JSON_PACKING_FACTOR: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Proto,
    Json,
}

impl Format {
    /// The chunks of one protobuf request in this format.
    /// `request_limit_bytes`: of the protobuf form.
    pub(crate) fn write(
        self,
        signal: Signal,
        chunks: Vec<Bytes>,
        request_limit_bytes: usize,
    ) -> Result<Vec<Bytes>, PackError> {
        match self {
            Format::Proto => Ok(chunks),
            Format::Json => {
                let limit_bytes = request_limit_bytes.saturating_mul(JSON_PER_REQUEST_LIMIT);
                Ok(vec![to_json(signal, &chunks, limit_bytes)?])
            }
        }
    }
}

/// The chunks of one protobuf request as one JSON object, without a line break.
pub(crate) fn to_json(
    signal: Signal,
    chunks: &[Bytes],
    limit_bytes: usize,
) -> Result<Bytes, PackError> {
    let request = compress::joined(chunks);
    let mut out = Vec::with_capacity((request.len() * 2).min(limit_bytes));
    json::to_json(signal, &request, limit_bytes, &mut out).map_err(|error| match error {
        ToJsonError::TooLarge { .. } => PackError::TooLarge(error.to_string()),
        ToJsonError::Malformed(_) => PackError::Failed(error.to_string()),
    })?;
    Ok(Bytes::from(out))
}
