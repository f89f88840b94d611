//! The door: how a receiver hands telemetry to the engine.
//!
//! Receivers that are sent to (OTLP) and receivers that fetch (files, scrape targets) use the same
//! steps:
//!
//! 1. [`Ingress::route`] gives one snapshot of the pipelines for a signal. It is valid for the life
//!    of a request.
//! 2. [`IngressRoute::admit`] gives a [`Permit`] for memory, before bytes are inflated. It may
//!    wait, then refuses. Bytes that arrive of a request while it waits are charged to
//!    [`Ingress::waiting`].
//! 3. [`IngressRoute::submit`] puts the validated [`Request`] into the log and gives a [`Receipt`].
//! 4. [`Receipt::accepted`] says when a sender may be answered OK, as `buffer.ack` promises.
//! 5. A [`Position`] in the request says when a checkpoint may move: see [`Positions`].
//!
//! *Accepted* and *resolved* differ: under `ack: memory` a request is accepted before any backend
//! has it. If a checkpoint moved then, a crash would lose the request.
//!
//! A receiver that fetches asks for memory before it reads. It waits for [`Receipt::paced`] before
//! it reads more, so that it keeps no more than it was admitted for. After a refusal it asks again
//! when the refusal's delay is over.

mod position;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
pub use position::{Position, Positions};
use sluice_otlp::{Encoding, Signal};

use crate::export::BoxFuture;
use crate::frame::{Metadata, Payload};
use crate::hop::{Fetched, Ranges};

pub trait Ingress: Send + Sync + 'static {
    /// The present route of the signal's data: one snapshot, to be kept for the life of one
    /// request. A reload changes nothing for that request. `None`: no pipeline takes the signal
    /// from this receiver.
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>>;

    /// Memory for the bytes that arrive of waiting requests. They wait to be admitted or, if the
    /// sender is not known yet, for a check of its credentials.
    fn waiting(&self, is_sender_known: bool) -> Arc<dyn MemoryPool>;

    /// Ready once the engine takes nothing more, as the process ends. A receiver whose senders get
    /// no answers then counts what it still has as lost.
    fn closed(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// The pipelines for a receiver's data of one signal.
pub trait IngressRoute: Send + Sync + 'static {
    /// Asks for memory for a body of this many bytes. Waits a bounded time for it. If the whole
    /// body arrives meanwhile, memory that slower requests hold no longer keeps it out.
    fn admit<'a>(
        &'a self,
        bytes: usize,
        arrived: &'a ArrivedBody,
    ) -> BoxFuture<'a, Result<Permit, Refusal>>;

    /// Asks without waiting, for a request whose bytes would have no memory while it waits.
    fn admit_at_once(&self, bytes: usize) -> Result<Permit, Refusal>;

    /// Judges a request that became larger than what it was admitted with: deliveries or the pool
    /// may have no room for it. Its permit covers what it is now.
    fn judge_again(&self, permit: &Permit) -> Result<(), Refusal>;

    /// Whether a compressed payload may be submitted as it came. True if some exporter passes it on
    /// unchanged and it is large enough to be sent alone.
    fn keeps_compressed(&self, encoding: Encoding, uncompressed_len_bytes: usize) -> bool;

    /// Whether some exporter names what it sends to another Sluice, so that [`Request::fetched`] is
    /// of use.
    fn names_ranges(&self) -> bool {
        false
    }

    /// Keys (lower case) of the request metadata that a later step reads. No other may be kept.
    fn metadata_keys(&self) -> &[String];

    /// Appends a validated request to the log and gives back its permit. CPU work only.
    fn submit(self: Arc<Self>, request: Request, permit: Permit) -> Result<Receipt, Refusal>;
}

/// The memory, out of [`Ingress::waiting`], of a body all of which has arrived while it waited to
/// be admitted. The task that waits sets it, and then polls the admission again: no waker is
/// needed. Receivers that fetch never set it.
#[derive(Default)]
pub struct ArrivedBody(Mutex<Option<Permit>>);

impl ArrivedBody {
    pub fn set(&self, permit: Permit) {
        *self.0.lock() = Some(permit);
    }

    pub fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    pub fn take(&self) -> Option<Permit> {
        self.0.lock().take()
    }
}

/// Whether a request of more bytes or items than others takes long to process, cut or pack: some
/// milliseconds or more. A receiver submits few of these at a time.
pub const fn is_large_work(bytes: usize, items: usize) -> bool {
    const LARGE_BYTES: usize = 1 << 20;
    const LARGE_ITEMS: usize = 10_000;
    bytes > LARGE_BYTES || items > LARGE_ITEMS
}

#[derive(Debug)]
pub struct Request {
    pub payload: Payload,
    /// Spans, metric points or log records in the payload.
    pub items: u32,
    pub metadata: Arc<Metadata>,
    /// Range of a source that can be read again. `None` for other sources.
    pub position: Option<Position>,
    /// The name for another Sluice, if the source can read the same items again.
    /// `None` for other sources.
    pub fetched: Option<Fetched>,
    /// Ranges of the sending Sluice: what the log has had of them is not stored again. `None` for
    /// other senders.
    pub ranges: Option<Ranges>,
}

impl Request {
    /// Of a source that cannot be read again, without metadata.
    pub fn new(payload: Payload, items: u32) -> Request {
        let (metadata, position, fetched, ranges) = Default::default();
        Request { payload, items, metadata, position, fetched, ranges }
    }
}

/// Memory for requests on their way from their source to the log.
pub trait MemoryPool: Send + Sync + 'static {
    /// Takes `bytes` more for a request that has `held_bytes` already. Refuses at once if they are
    /// not free; with [`Refusal::TooLarge`] if the request can never fit.
    fn take(&self, held_bytes: usize, bytes: usize) -> Result<(), Refusal>;

    fn give_back(&self, bytes: usize);

    /// The answer to a sender whose body makes no progress, if other requests need its memory now.
    fn asked_back(&self) -> Option<Refusal> {
        None
    }
}

/// A part of the memory for receiving, given back when dropped.
pub struct Permit {
    pool: Arc<dyn MemoryPool>,
    bytes: usize,
}

impl Permit {
    pub fn take(pool: Arc<dyn MemoryPool>, bytes: usize) -> Result<Permit, Refusal> {
        pool.take(0, bytes)?;
        Ok(Permit { pool, bytes })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asks for more bytes, before they are used.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.pool.take(self.bytes, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Asks for more bytes, so that there are `bytes` in all.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > self.bytes { self.grow(bytes - self.bytes) } else { Ok(()) }
    }

    /// Gives back the bytes above `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.pool.give_back(self.bytes - bytes);
            self.bytes = bytes;
        }
    }

    /// A permit of its own for these bytes, or for all if there are fewer.
    pub fn split_off(&mut self, bytes: usize) -> Permit {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Permit { pool: Arc::clone(&self.pool), bytes }
    }

    /// The same bytes in another pool, which has counted them already.
    pub fn moved_to(mut self, pool: Arc<dyn MemoryPool>) -> Permit {
        self.pool = pool;
        self
    }

    /// See [`MemoryPool::asked_back`].
    pub fn asked_back(&self) -> Option<Refusal> {
        self.pool.asked_back()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pool.give_back(self.bytes);
    }
}

/// A request that is in the log. Dropping it leaves the request there, unless its sender waits for
/// its only backend: then the request is withdrawn.
///
/// A refusal by a receipt is for a sender that waits, who has a copy and sends it again. A receiver
/// whose senders have none may submit the request again after [`Refusal::Retry`], and must not
/// after [`Refusal::Unconfirmed`].
///
/// A receipt without a wait costs no allocation.
#[must_use = "a sender is answered when the receipt says so"]
#[derive(Default)]
pub struct Receipt {
    /// The source should send nothing more until this resolves. `None`: it need not wait.
    pub pace: Option<BoxFuture<'static, ()>>,
    /// The answer to the sender. `None`: the request is accepted at once.
    pub answer: Option<BoxFuture<'static, Result<(), Refusal>>>,
}

impl Receipt {
    /// Waits until deliveries want more from this source. Returns at once unless one falls behind.
    pub async fn paced(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.await;
            self.pace = None;
        }
    }

    /// Waits until the sender may be answered, as `buffer.ack` promises. Under `ack: memory` this
    /// says nothing about backends.
    pub async fn accepted(mut self) -> Result<(), Refusal> {
        self.paced().await;
        if let Some(answer) = self.answer { answer.await } else { Ok(()) }
    }
}

/// Why a request is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The sender should retry later: UNAVAILABLE + RetryInfo, 503 + Retry-After. The engine keeps
    /// nothing of the request, and does not count it as lost.
    Retry { delay: Duration, reason: String },
    /// The same answer to a sender, by a receipt only. The request is in the log and may be
    /// delivered yet, or a policy has dropped and counted it: submitted again by a receiver whose
    /// sender has no copy, it would arrive twice.
    Unconfirmed { delay: Duration, reason: String },
    /// The request can never fit: RESOURCE_EXHAUSTED without RetryInfo, 413.
    TooLarge { reason: String },
    /// The data is at fault and will be refused again: INVALID_ARGUMENT, 400.
    Invalid { reason: String },
    /// The sole backend refused it for good (`buffer.ack: delivered`): the sender gets the reason.
    Rejected { reason: String },
    /// The log has had a part of the request's [`Ranges`]: the sender cuts it. ALREADY_EXISTS, 409.
    Overlaps,
    /// The sole backend reports an error of its own: UNKNOWN, 500.
    Failed { reason: String },
}

impl Refusal {
    /// Asks the sender to retry in 0.75 to 1.5 s, at random: not all senders return at once.
    pub fn overloaded(reason: impl Into<String>) -> Self {
        Refusal::Retry { delay: retry_delay(), reason: reason.into() }
    }

    /// The same for a request whose fate is unknown or settled: see [`Refusal::Unconfirmed`].
    pub fn unconfirmed(reason: impl Into<String>) -> Self {
        Refusal::Unconfirmed { delay: retry_delay(), reason: reason.into() }
    }
}

fn retry_delay() -> Duration {
    Duration::from_millis(fastrand::u64(750..1500))
}
