//! What one delivery does next: batches, slots, retries, outages, bisection. No I/O and no clock of
//! its own: units and outcomes go in with a time, batches to send and settled units come out.

mod batcher;
mod concurrency;
mod dispatcher;
mod retry;
#[cfg(test)]
mod tests;

pub use batcher::{BatchPolicy, Trigger};
pub use concurrency::{Concurrency, ConcurrencyLimits};
pub use dispatcher::{Cause, DispatchPolicy, Dispatcher, Division, Settled, State};
pub use retry::{Backoff, RetryPolicy};

use std::time::Instant;

use crate::export::Packed;

/// A frame, or a part of one, on its way to one backend.
#[derive(Debug)]
pub struct Unit<L> {
    /// The engine's lease on the frame.
    pub lease: L,
    pub items: u32,
    /// Uncompressed size in bytes.
    pub bytes: usize,
    /// Goes out as it is, never merged (a large compressed frame).
    pub alone: bool,
    /// Units of different groups never merge: a hash of the request metadata that the exporter
    /// reads.
    pub group: u64,
}

/// Units that go out as one request.
#[derive(Debug)]
pub struct Batch<L> {
    pub units: Vec<Unit<L>>,
    pub items: u64,
    /// Uncompressed size in bytes.
    pub bytes: usize,
    /// What goes over the wire, once it was made.
    pub packed: Option<Packed>,
    /// How often it was sent.
    pub attempts: u32,
    first_attempt: Option<Instant>,
}

impl<L> Batch<L> {
    fn new(units: Vec<Unit<L>>) -> Self {
        let mut batch = Batch {
            units: Vec::new(),
            items: 0,
            bytes: 0,
            packed: None,
            attempts: 0,
            first_attempt: None,
        };
        batch.set_units(units);
        batch
    }

    /// Puts other units in the place of its own. What was packed of those is of no use then.
    pub fn set_units(&mut self, units: Vec<Unit<L>>) {
        self.items = units.iter().map(|unit| u64::from(unit.items)).sum();
        self.bytes = units.iter().map(|unit| unit.bytes).sum();
        self.units = units;
    }
}
