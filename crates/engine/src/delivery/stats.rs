//! Counters of one delivery.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_flow::Outcome;
use sluice_flow::dispatch::{Cause, State};
use sluice_flow::overload::Stamp;
use tokio::task::Id;

use super::filling::Forecast;

/// Reasons by which outcomes are counted, in the order of [`Stats::count_outcome`].
pub(crate) const OUTCOMES: [&str; 7] =
    ["delivered", "partly_rejected", "retry", "too_large", "misconfigured", "rejected", "overlaps"];

/// Why items became dead letters, in the order of [`Stats::count_dead`].
pub(crate) const CAUSES: [&str; 5] =
    ["rejected", "too_large", "given_up", "not_retried", "not_prepared"];

#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub sent_items: AtomicU64,
    /// Refused for good or given up, and now among the dead letters.
    pub dead_items: [AtomicU64; CAUSES.len()],
    /// Refused by the backend within a request that it took (partial success).
    pub partly_rejected_items: AtomicU64,
    /// Dropped because the delivery's budget was spent.
    pub dropped_items: AtomicU64,
    /// Answers to senders that were delayed because this delivery fell behind.
    pub delayed_answers: AtomicU64,
    /// Handed back to the senders that waited.
    pub returned_items: AtomicU64,
    pub requests: [AtomicU64; OUTCOMES.len()],
    pub sent_bytes: AtomicU64,
    pub in_flight: AtomicU64,
    /// When each request in flight was sent.
    pub sent_at: Mutex<HashMap<Id, Instant>>,
    pub concurrency_limit: AtomicU64,
    pub waiting: AtomicU64,
    pub forecast: Mutex<Forecast>,
    /// When a sender last had to wait because its budget was spent.
    pub blocked: Stamp,
    pub state: Mutex<State>,
    /// Why its dead letters cannot be stored, if they cannot.
    pub dead_letter_trouble: Mutex<Option<String>>,
    /// Times that its task has looked for something to do.
    #[cfg(test)]
    pub turns: AtomicU64,
}

impl Stats {
    /// Time since the oldest request in flight was sent.
    pub(crate) fn in_flight_age(&self) -> Option<Duration> {
        self.sent_at.lock().values().min().map(Instant::elapsed)
    }

    pub(crate) fn count_outcome(&self, outcome: &Outcome) {
        let index = match outcome {
            Outcome::Delivered => 0,
            Outcome::PartlyRejected { .. } => 1,
            Outcome::RetryAfter { .. } => 2,
            Outcome::TooLarge { .. } => 3,
            Outcome::Misconfigured { .. } => 4,
            Outcome::Rejected { .. } | Outcome::Failed { .. } => 5,
            Outcome::Overlaps { .. } => 6,
        };
        self.requests[index].fetch_add(1, Ordering::Relaxed);
    }

    /// `cause`: none if no unit that an exporter could send was made of the frame.
    pub(crate) fn count_dead(&self, cause: Option<Cause>, items: u64) {
        let index = match cause {
            Some(Cause::Rejected | Cause::Failed) => 0,
            Some(Cause::TooLarge) => 1,
            Some(Cause::GivenUp) => 2,
            Some(Cause::NotRetried { .. }) => 3,
            None => 4,
        };
        self.dead_items[index].fetch_add(items, Ordering::Relaxed);
    }
}
