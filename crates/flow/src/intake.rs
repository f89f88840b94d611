//! Where a receiver hands in what it has received.

use std::sync::Arc;
use std::time::Duration;

use sluice_otlp::{Encoding, Signal};

use crate::export::BoxFuture;
use crate::frame::{Metadata, Payload};

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Come back later: UNAVAILABLE + RetryInfo, 503 + Retry-After.
    Retry { delay: Duration, reason: String },
    /// The data is at fault and will be refused again: INVALID_ARGUMENT, 400.
    Invalid { reason: String },
    /// The sole backend refused it for good (`buffer.ack: delivered` with one delivery): handed on to the sender.
    Rejected { reason: String },
    /// No pipeline takes this signal from this receiver: UNIMPLEMENTED, 404.
    Unrouted,
}

/// A part of the receiving budget, given back when dropped.
pub trait Permit: Send {
    /// Enlarges the permit, where a body turns out larger than it said.
    fn grow(&mut self, bytes: usize) -> Result<(), Refusal>;

    /// If others were refused memory within the last second, or wait for it: what the sender is told whose body does not get on.
    fn asked_back(&self) -> Option<Refusal>;
}

/// The connection that a request comes on, which may have others that do not want to wait.
pub trait Connection: Send + Sync {
    /// Leave to let a request of `bytes` wait, until what is returned is dropped. `None`: others of the connection, which were
    /// admitted, might not get on meanwhile.
    fn try_wait(&self, bytes: usize) -> Option<Box<dyn Send>>;
}

/// The engine as one receiver sees it.
pub trait Intake: Send + Sync + 'static {
    /// True if some pipeline takes the signal from this receiver.
    fn takes(&self, signal: Signal) -> bool;

    /// Admission: asks for memory for a body of `bytes`, before it is read. Waits a bounded time for memory
    /// to come free (meanwhile HTTP/2 flow control holds the sender) if its connection lets it, then refuses.
    fn admit<'a>(
        &'a self,
        signal: Signal,
        bytes: usize,
        connection: &'a dyn Connection,
    ) -> BoxFuture<'a, Result<Box<dyn Permit>, Refusal>>;

    /// Whether a compressed payload may be handed in as it came (because the signal's pipelines pass it on unchanged to
    /// some exporter that sends that encoding, and it is large enough to go alone). Otherwise hand in the inflated bytes.
    fn keeps_compressed(&self, signal: Signal, encoding: Encoding, uncompressed_len_bytes: usize) -> bool;

    /// Hands in a validated request. Resolves when the sender may be answered, as `buffer.ack` says.
    fn accept(
        &self,
        signal: Signal,
        items: u32,
        payload: Payload,
        metadata: Arc<Metadata>,
        permit: Box<dyn Permit>,
    ) -> BoxFuture<'_, Result<(), Refusal>>;
}
