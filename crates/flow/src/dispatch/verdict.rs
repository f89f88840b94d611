//! The consequences of outcomes.

use std::time::Duration;

use sluice_otlp::SplitLimits;

use super::Unit;

/// Consequence of an outcome for the units of a batch.
#[derive(Debug)]
pub enum Verdict<L> {
    /// The dispatcher keeps the units and sends them again by itself.
    Kept,
    /// The cursor may pass the units. The backend refused `rejected_items` of them for good
    /// (partial success).
    Delivered { units: Vec<Unit<L>>, rejected_items: u64, reason: Option<String> },
    /// The unit has to be cut. Its parts come back through [`super::Dispatcher::divided`]; a unit
    /// that cannot become smaller by that is dead.
    Divide { unit: Unit<L>, limits: SplitLimits, cause: Cause, reason: String },
    /// The units were refused for good, or given up.
    Dead { units: Vec<Unit<L>>, cause: Cause, reason: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Rejected,
    /// The backend failed over the units, and must not be sent them again.
    Failed,
    /// An item that is too large for the backend, or items below a header that is.
    TooLarge,
    /// `max_elapsed_time` would be exceeded.
    GivenUp,
    /// It failed once, and `retry_on_failure` is disabled. `asked`: the delay the backend wants.
    NotRetried {
        asked: Option<Duration>,
    },
}
