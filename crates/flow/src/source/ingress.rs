//! The engine as one receiver sees it.

use std::sync::Arc;

use sluice_otlp::{Encoding, Signal};

use super::{Permit, Position, Receipt, Refusal};
use crate::export::BoxFuture;
use crate::frame::{Metadata, Payload};

pub trait Ingress: Send + Sync + 'static {
    /// Where data of the signal goes as things stand now: one snapshot, to be held for the life of
    /// one request. A reload in between changes nothing for that request. `None`: no pipeline takes
    /// the signal from this receiver.
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>>;
}

/// Where a receiver's data of one signal goes.
pub trait IngressRoute: Send + Sync + 'static {
    /// Asks for memory, before bytes are read or inflated. Waits for a bounded time if `connection`
    /// lets it, then refuses.
    fn admit<'a>(
        &'a self,
        bytes: usize,
        connection: &'a dyn Connection,
    ) -> BoxFuture<'a, Result<Permit, Refusal>>;

    /// Whether a compressed payload may be submitted as it came. True if some exporter passes it on
    /// unchanged and it is large enough to go alone.
    fn keeps_compressed(&self, encoding: Encoding, uncompressed_len_bytes: usize) -> bool;

    /// Names of the request metadata that something downstream reads, in lower case. Nothing else
    /// may be kept.
    fn metadata_keys(&self) -> &[String];

    /// Puts a validated request into the log, and gives back its permit. CPU work only.
    fn submit(self: Arc<Self>, request: Request, permit: Permit) -> Result<Receipt, Refusal>;
}

#[derive(Debug)]
pub struct Request {
    pub payload: Payload,
    /// Spans, metric points or log records in the payload.
    pub items: u32,
    pub metadata: Arc<Metadata>,
    /// Where a source that can be read again has it from.
    pub position: Option<Position>,
}

/// The connection that a request comes on. Its other requests may not be able to wait.
pub trait Connection: Send + Sync {
    /// Permission to let a request of `bytes` wait, until the returned value is dropped. `None`:
    /// requests of this connection that were admitted might make no progress meanwhile.
    fn try_wait(&self, bytes: usize) -> Option<Box<dyn Send>>;
}

/// The connection of a receiver that fetches: while it waits nothing is on its way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patient;

impl Connection for Patient {
    fn try_wait(&self, _bytes: usize) -> Option<Box<dyn Send>> {
        // A box of nothing costs no allocation.
        Some(Box::new(()))
    }
}
