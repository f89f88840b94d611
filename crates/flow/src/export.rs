//! The contract of exporters: they send one request and return its outcome.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_otlp::{Encoding, Signal};

use crate::frame::Metadata;
use crate::tally::Reserved;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A request in the form that goes over the wire. Cloning is cheap: the bytes are shared.
#[derive(Clone, Debug)]
pub struct Packed {
    pub signal: Signal,
    /// Spans, metric points or log records in the request.
    pub items: u32,
    /// The body, in order. Several chunks are one message: encoded requests merge by concatenation.
    pub chunks: Arc<[Bytes]>,
    pub len_bytes: usize,
    /// Bytes that it takes beside its frames: all but those that it only refers to.
    pub copied_bytes: usize,
    pub encoding: Encoding,
    /// Request metadata of the senders, for `headers_setter` and the like.
    pub metadata: Arc<Metadata>,
    /// The text of its [`crate::hop::Ranges`], for another Sluice.
    pub ranges: Option<Arc<str>>,
}

impl Packed {
    pub fn new(
        signal: Signal,
        items: u32,
        chunks: Vec<Bytes>,
        encoding: Encoding,
        metadata: Arc<Metadata>,
    ) -> Packed {
        let len_bytes = chunks.iter().map(Bytes::len).sum();
        let copied_bytes = chunks.iter().filter(|it| it.is_unique()).map(Bytes::len).sum();
        let chunks = Arc::from(chunks);
        let ranges = None;
        Packed { signal, items, chunks, len_bytes, copied_bytes, encoding, metadata, ranges }
    }
}

/// Why a request cannot be turned into the body on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackError {
    /// The body would be larger than it may be: a smaller request may do.
    TooLarge(String),
    Failed(String),
}

impl From<String> for PackError {
    fn from(reason: String) -> Self {
        PackError::Failed(reason)
    }
}

impl From<PackError> for Outcome {
    fn from(error: PackError) -> Self {
        match error {
            PackError::TooLarge(reason) => Outcome::TooLarge { reason },
            PackError::Failed(reason) => Outcome::Rejected { reason },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend has taken all of it.
    Delivered,
    /// The backend has taken the request but refused some of its items for good (OTLP partial
    /// success). Never sent again.
    PartlyRejected { items: u64, reason: String },
    /// Send it again: the backend is overloaded or not reached. `delay`: the delay it asks for.
    RetryAfter { delay: Option<Duration>, reason: String },
    /// The request exceeds a size limit of the backend: split it.
    TooLarge { reason: String },
    /// Another Sluice has had a part of the request's ranges: send its parts one by one.
    Overlaps { reason: String },
    /// The data is not at fault: credentials, path, TLS or the like have to be corrected first.
    Misconfigured { reason: String },
    /// The backend refuses this data for good.
    Rejected { reason: String },
    /// The backend fails over this data, and its protocol says not to send it again (500,
    /// INTERNAL). The data may be at fault or not.
    Failed { reason: String },
}

impl Outcome {
    /// The backend took the request: no part of it needs to be sent again.
    pub fn is_taken(&self) -> bool {
        matches!(self, Outcome::Delivered | Outcome::PartlyRejected { .. })
    }
}

/// Items of one name in a request that the backend has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub items: u64,
    /// Items that could not be written in the backend's form.
    pub left_out: u64,
}

/// Counts the items of requests by name, for the ledger. A name may come several times.
pub trait ItemNames: Send + Sync {
    /// The names of which each has a row of its own, whatever else comes.
    fn reserved(&self) -> Reserved {
        &[]
    }

    /// Items of a request that the backend has taken, as they were packed.
    fn of_packed(&self, request: &Packed, count: &mut dyn FnMut(&[u8], Taken));

    /// Items of an uncompressed request (protobuf). Those behind a fault are not counted.
    fn of_request(&self, request: &[u8], count: &mut dyn FnMut(&[u8], u64));
}

/// Sends requests to one backend. Knows nothing of retries, splitting, concurrency or queues.
pub trait Exporter: Send + Sync + 'static {
    /// The encoding in which a payload can be passed on without being packed again, if any: a frame
    /// with this encoding that needs no change goes out as it came in.
    fn passes_through(&self) -> Option<Encoding> {
        None
    }

    /// The largest body that may be passed on without being packed again, in bytes.
    fn pass_through_limit_bytes(&self) -> usize {
        usize::MAX
    }

    /// Turns a merged protobuf request (uncompressed chunks) into the body on the wire; returns
    /// its encoding too. Called once for each batch, however often it is sent. CPU work only.
    fn pack(
        &self,
        _signal: Signal,
        chunks: Vec<Bytes>,
    ) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((chunks, Encoding::Identity))
    }

    /// Memory that [`Exporter::pack`] takes at most for a request of this many bytes and items.
    fn packing_bytes(&self, request_bytes: usize, _items: usize) -> usize {
        request_bytes
    }

    /// Sends one request and returns its outcome. The caller bounds the time by `timeout()`.
    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome>;

    fn timeout(&self) -> Duration;

    /// Request metadata keys (lower case) that it reads. Frames that differ in them never merge.
    fn metadata_keys(&self) -> &[String] {
        &[]
    }

    /// Whether it sends [`Packed::ranges`].
    fn names_ranges(&self) -> bool {
        false
    }

    /// Why no request of a sender with this metadata can be sent, however often it is tried.
    fn refuses(&self, _metadata: &Metadata) -> Option<String> {
        None
    }

    /// Counts its items by name, if they have names that a ledger is kept of.
    fn item_names(&self) -> Option<&dyn ItemNames> {
        None
    }

    /// Closes connections and files. No `send` follows.
    fn shutdown(&self) {}
}
