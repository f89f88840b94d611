//! One delivery: a (pipeline, exporter) pair with its own cursor, budget and retry state. Nothing that happens here can
//! slow down another delivery, except by using the CPU.

mod dead_letters;
mod prepare;
mod stats;
mod task;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use dead_letters::DeadLetters;
pub(crate) use prepare::{Preparer, inflated};
use sluice_log::{CursorId, Log, Subscription};
pub(crate) use stats::{OUTCOMES, Stats, Trouble};
pub(crate) use task::{Settings, Stop, run};
use tokio::sync::Notify;

use crate::entry::Entry;
use crate::receiving::ReceivingBudget;

/// A delivery is known by the names of its pipeline and exporter, across reloads and restarts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId {
    pub pipeline: String,
    pub exporter: String,
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} → {}", self.pipeline, self.exporter)
    }
}

/// What happens when a delivery's budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Its senders are told to come back.
    Backpressure,
    /// Its oldest frames are dropped, and counted.
    DropOldest,
}

impl Policy {
    pub const fn as_str(self) -> &'static str {
        match self {
            Policy::Backpressure => "backpressure",
            Policy::DropOldest => "drop_oldest",
        }
    }
}

/// What receivers, metrics and the delivery's own task share. Lives as long as the delivery's name stands in the
/// configuration: reloads replace the task and keep this.
pub(crate) struct Delivery {
    pub id: DeliveryId,
    pub signal: sluice_otlp::Signal,
    pub log: Arc<Log<Entry>>,
    pub cursor: CursorId,
    pub stats: Stats,
    pub dead_letters: DeadLetters,
    /// Set by an append that found the budget spent.
    over_budget: AtomicBool,
    drops_oldest: AtomicBool,
    wake: Arc<Notify>,
    receiving: Arc<ReceivingBudget>,
}

impl Delivery {
    pub(crate) fn new(
        id: DeliveryId,
        signal: sluice_otlp::Signal,
        log: Arc<Log<Entry>>,
        budget_bytes: u64,
        dead_letters_bytes: usize,
        receiving: Arc<ReceivingBudget>,
    ) -> Self {
        let wake = Arc::new(Notify::new());
        let woken = wake.clone();
        let cursor = log.subscribe(Subscription {
            limit_bytes: budget_bytes,
            wake: Arc::new(move || woken.notify_one()),
            ..Subscription::new(id.to_string())
        });
        Delivery {
            id,
            signal,
            log,
            cursor,
            stats: Stats::default(),
            dead_letters: DeadLetters::new(dead_letters_bytes),
            over_budget: AtomicBool::new(false),
            drops_oldest: AtomicBool::new(false),
            wake,
            receiving,
        }
    }

    pub(crate) fn set_policy(&self, policy: Policy, budget_bytes: u64) {
        self.drops_oldest.store(policy == Policy::DropOldest, Ordering::Relaxed);
        self.log.set_limits(self.cursor, budget_bytes, u64::MAX);
    }

    /// New frames may have come.
    pub(crate) fn appended(&self) {
        self.wake.notify_one();
    }

    /// An append found that some delivery's budget is spent. If it is this one's and its policy says so, the oldest
    /// frames go: first those that nobody has touched yet, then, in the task, those that wait for a retry.
    pub(crate) fn enforce_budget(&self) {
        if !self.drops_oldest.load(Ordering::Relaxed) || !self.log.is_over_budget(self.cursor) {
            return;
        }
        let (dropped, entries) = self.log.drop_oldest_unread(self.cursor);
        self.count_dropped(dropped.items);
        for entry in entries {
            entry.resolved(self.cursor, Ok(()));
        }
        if self.log.is_over_budget(self.cursor) {
            self.over_budget.store(true, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    fn count_dropped(&self, items: u64) {
        if items > 0 {
            self.stats.dropped_items.fetch_add(items, Ordering::Relaxed);
            tracing::warn!(
                pipeline = %self.id.pipeline,
                exporter = %self.id.exporter,
                items,
                "the delivery's budget is spent: its oldest items were dropped (policy drop_oldest); \
                 raise memory_limiter's limit or mend the backend"
            );
        }
    }
}
