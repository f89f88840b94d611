//! A frame: one export request as it arrived. Immutable, and shared by all deliveries.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use sluice_otlp::{Encoding, Signal};

/// An encoded OTLP export request (protobuf), possibly still as its sender compressed it.
#[derive(Clone, Debug)]
pub struct Payload {
    pub bytes: Bytes,
    pub encoding: Encoding,
    /// Length of the protobuf message, which is `bytes.len()` where `encoding` is identity.
    pub uncompressed_len_bytes: usize,
}

impl Payload {
    pub fn identity(bytes: Bytes) -> Self {
        let uncompressed_len_bytes = bytes.len();
        Payload { bytes, encoding: Encoding::Identity, uncompressed_len_bytes }
    }
}

/// What later steps may need to know of a frame's sender. Frames whose metadata differs are never
/// merged where an exporter depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// Address of the peer, `ip:port`.
    pub peer: Option<String>,
    /// Headers that something downstream reads (`include_metadata`), names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// What a header costs beside its bytes: lengths, pointers, capacities, the allocator's rounding.
const HEADER_OVERHEAD_BYTES: usize = 96;

impl Metadata {
    /// Memory that the headers hold, for as long as a frame has them.
    pub fn headers_bytes(&self) -> usize {
        self.headers.iter().map(|(name, value)| Metadata::header_bytes(name, value)).sum()
    }

    /// Memory that one header holds.
    pub fn header_bytes(name: &str, value: &[u8]) -> usize {
        name.len() + value.len() + HEADER_OVERHEAD_BYTES
    }
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub signal: Signal,
    /// Spans, metric points or log records in the payload.
    pub items: u32,
    pub payload: Payload,
    /// Index of the receiver in the running plan.
    pub receiver: u16,
    /// Wall clock.
    pub received_wall: SystemTime,
    pub metadata: Arc<Metadata>,
}
