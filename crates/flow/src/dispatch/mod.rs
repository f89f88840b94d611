//! Decides what one delivery does next: batches, slots, retries, outages, bisection. No I/O and no
//! clock: units and outcomes go in with a time, batches to send and resolved units come out.

mod batcher;
mod bisection;
mod concurrency;
mod dispatcher;
#[cfg(test)]
mod poison_tests;
mod retry;
#[cfg(test)]
mod tests;
mod verdict;
#[cfg(test)]
mod wake_tests;

pub use batcher::{BatchPolicy, Trigger};
pub use bisection::Refused;
pub use concurrency::{Concurrency, ConcurrencyLimits};
pub use dispatcher::{DispatchPolicy, Dispatcher, Late, State};
pub use retry::{Backoff, RetryPolicy};
pub use verdict::{Cause, Verdict};

use std::time::Instant;

use crate::export::Packed;

/// A frame, or a part of one, on its way to one backend.
#[derive(Debug)]
pub struct Unit<L> {
    /// The engine's lease on the frame.
    pub lease: L,
    pub items: u32,
    /// Uncompressed.
    pub bytes: usize,
    /// It is sent by itself, never merged (a large compressed frame).
    pub alone: bool,
    /// A hash of the metadata that the exporter reads: units of different groups never merge.
    pub group: u64,
}

/// Units that are sent as one request.
#[derive(Debug)]
pub struct Batch<L> {
    pub units: Vec<Unit<L>>,
    pub items: u64,
    /// Uncompressed.
    pub bytes: usize,
    /// The request for the wire, once it is packed.
    pub packed: Option<Packed>,
    pub attempts: u32,
    first_attempt: Option<Instant>,
    /// Its place in the search for items at fault, if it is a part of that.
    place: Option<bisection::Place>,
    /// The start of the part that it was taken from, to look elsewhere.
    looked_at: Option<u128>,
    /// It was refused as a single item, but so was all other data.
    refused: Option<Cause>,
    /// It was not answered in time before.
    was_late: bool,
    /// The backend needs too long for it.
    is_to_be_cut: bool,
}

impl<L> Batch<L> {
    fn new(units: Vec<Unit<L>>) -> Self {
        let (items, bytes) = sizes(&units);
        Batch {
            units,
            items,
            bytes,
            packed: None,
            attempts: 0,
            first_attempt: None,
            place: None,
            looked_at: None,
            refused: None,
            was_late: false,
            is_to_be_cut: false,
        }
    }

    fn push(&mut self, unit: Unit<L>) {
        self.items += u64::from(unit.items);
        self.bytes += unit.bytes;
        self.units.push(unit);
    }

    /// Takes one unit out, to be sent by itself. None if there is no such unit.
    fn take_unit(&mut self, index: usize) -> Option<Self> {
        let mut units = std::mem::take(&mut self.units);
        let taken = (index < units.len()).then(|| units.remove(index));
        self.packed = self.packed.take().filter(|_| taken.is_none());
        self.set_units(units);
        let first_attempt = self.first_attempt;
        Some(Batch {
            first_attempt,
            place: Some(bisection::Place::LOOK),
            ..Batch::new(vec![taken?])
        })
    }

    /// Replaces its units. A request that was packed from the old units is then obsolete.
    pub fn set_units(&mut self, units: Vec<Unit<L>>) {
        (self.items, self.bytes) = sizes(&units);
        self.units = units;
    }
}

fn sizes<L>(units: &[Unit<L>]) -> (u64, usize) {
    (units.iter().map(|it| u64::from(it.items)).sum(), units.iter().map(|it| it.bytes).sum())
}
