//! The Collector's log operators: they parse and change records between a receiver of logs and the
//! engine.
//!
//! A receiver makes a [`Record`] of each line or message, hands it to a chain, and encodes the
//! records that come out. Lines of the most common chains need no record: [`Chain::write`].
//!
//! `chain` knows the wiring (`id`, `output`, `if`, `on_error`), a file of `operators/` one operator
//! each, `expression/` the language of `if` and `EXPR(…)`.
//!
//! Records know nothing of files. An [`Origin`] tells the receiver which range of its source a
//! record is made of, so that a record which an operator holds keeps the checkpoint back.

mod chain;
mod encode;
mod escape;
mod expression;
mod field;
mod label;
mod operator;
mod operators;
mod parsers;
mod read;
mod record;
mod step;

pub use chain::{Chain, ChainConfig, Counts, Failure, OnError};
pub use encode::{Encoded, Encoder, Place, TextRecord, encode, encode_attributes};
pub use field::{Field, Root};
pub use label::Label;
pub use operators::document;
pub use parsers::{Layout, Location, Syslog, rfc3339};
pub use record::{Origin, Record};

#[cfg(test)]
mod testing;
