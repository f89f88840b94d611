//! The door: how a receiver hands telemetry to the engine.
//!
//! The same seam serves receivers that are sent to (OTLP) and receivers that fetch (files, scrape
//! targets):
//!
//! 1. [`Ingress::route`] gives one snapshot of where a signal goes. It holds for the life of a
//!    request.
//! 2. [`IngressRoute::admit`] gives a [`Permit`] for memory, before bytes are read or inflated. It
//!    may wait, then refuses.
//! 3. [`IngressRoute::submit`] puts the validated [`Request`] into the log and gives a [`Receipt`].
//! 4. [`Receipt::accepted`] says when a sender may be answered OK, as `buffer.ack` promises.
//! 5. A [`Position`] in the request says when a checkpoint may move: see [`Positions`].
//!
//! *Accepted* and *resolved* differ: under `ack: memory` a request is accepted before any backend
//! has it, and a checkpoint that moved then would lose it in a crash.
//!
//! A receiver that fetches asks for memory before it reads. It waits for [`Receipt::paced`] before
//! it reads more, and so holds no more than it was admitted for. Where it is refused it asks again
//! after the refusal's delay.

mod ingress;
mod permit;
mod position;
mod receipt;
mod refusal;

pub use ingress::{Connection, Ingress, IngressRoute, Patient, Request};
pub use permit::{MemoryPool, Permit};
pub use position::{Position, Positions};
pub use receipt::Receipt;
pub use refusal::Refusal;
