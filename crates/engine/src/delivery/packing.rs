//! What goes over the wire for a batch.

use std::sync::Arc;

use sluice_flow::dispatch::Batch;
use sluice_flow::{Exporter, Metadata, Packed, Payload};
use sluice_otlp::{Encoding, Signal};

use super::prepare::{Lease, inflated};

pub(super) fn payloads(batch: &Batch<Lease>) -> Vec<Payload> {
    batch.units.iter().map(|unit| unit.lease.payload.clone()).collect()
}

/// Bytes that a packed request holds beside the frames it was made from: none where it only refers
/// to them.
pub(super) fn copied_bytes(packed: &Packed) -> usize {
    if packed.encoding == Encoding::Identity { 0 } else { packed.len_bytes }
}

pub(super) fn pack(
    exporter: &dyn Exporter,
    signal: Signal,
    items: u32,
    sources: Vec<Payload>,
    metadata: Arc<Metadata>,
) -> Result<Packed, String> {
    if let [Payload { bytes, encoding, .. }] = sources.as_slice()
        && *encoding != Encoding::Identity
        && exporter.passes_through() == Some(*encoding)
    {
        let chunks = vec![bytes.clone()];
        return Ok(Packed::new(signal, items, chunks, *encoding, metadata));
    }
    let chunks: Result<Vec<_>, _> = sources.iter().map(inflated).collect();
    let (chunks, encoding) = exporter.pack(signal, chunks.map_err(|error| error.to_string())?)?;
    Ok(Packed::new(signal, items, chunks, encoding, metadata))
}
