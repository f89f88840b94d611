//! Decisions without I/O: which request is admitted, which batch goes next, what an answer means.
//!
//! In reading order:
//!
//! - `frame`: a frame, which is all that the crates above hand on.
//! - `fitted`: payloads in memory of their length.
//! - `source`: the door, by which receivers hand telemetry to the engine, and its refusals.
//! - `export`: the contract of exporters, and the outcomes of a request.
//! - `overload`: who waits and who drops, as a table of rules at its head.
//! - `dispatch`: the next step of one delivery: batches, concurrency, retries, outages, the search
//!   for refused items.
//! - `taken_share`: the share of its requests that a backend takes, for both of them.
//! - `hop`: the ranges of items that another Sluice has sent before.
//! - `tally`: counts by name, of which a ledger is made.
//! - `idle`: a thread with little to do gives its freed memory back.

pub mod dispatch;
pub mod export;
mod fitted;
pub mod frame;
pub mod hop;
pub mod idle;
pub mod overload;
pub mod source;
mod taken_share;
mod tally;

pub use export::{BoxFuture, Exporter, ItemNames, Outcome, PackError, Packed, Taken};
pub use fitted::fitted;
pub use frame::{Frame, Metadata, Payload};
pub use source::Refusal;
pub use tally::{Counts, OTHERS, Reserved, Tally};
