//! A frame: one export request after the steps that all deliveries share. Immutable and shared.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use sluice_otlp::{Encoding, Signal};

/// An encoded OTLP export request (protobuf), possibly still as its sender compressed it.
#[derive(Clone, Debug)]
pub struct Payload {
    pub bytes: Bytes,
    pub encoding: Encoding,
    /// Length of the protobuf message: `bytes.len()` if `encoding` is identity.
    pub uncompressed_len_bytes: usize,
}

impl Payload {
    pub fn identity(bytes: Bytes) -> Self {
        let uncompressed_len_bytes = bytes.len();
        Payload { bytes, encoding: Encoding::Identity, uncompressed_len_bytes }
    }
}

/// Facts of a frame's sender that later steps may need. Frames with different metadata are never
/// merged if an exporter depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// Address of the peer, `ip:port`.
    pub peer: Option<String>,
    /// Headers that a later step reads (`include_metadata`), names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// Memory of a header beside its bytes: lengths, pointers, capacities, the allocator's rounding.
const HEADER_OVERHEAD_BYTES: usize = 96;

impl Metadata {
    /// Memory that the headers occupy as long as a frame has them.
    pub fn headers_bytes(&self) -> usize {
        self.headers.iter().map(|(name, value)| Metadata::header_bytes(name, value)).sum()
    }

    /// Memory that one header occupies.
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
    /// Wall clock on receipt.
    pub received_wall: SystemTime,
    pub metadata: Arc<Metadata>,
}
