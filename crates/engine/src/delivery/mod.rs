//! One delivery: a (pipeline, exporter) pair with its own cursor, budget and retry state. Nothing that happens here can
//! slow down another delivery, except by using the CPU.

mod burial;
mod dead_letters;
mod filling;
mod prepare;
mod pulse;
mod stats;
mod task;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

pub(crate) use dead_letters::{DeadLetters, OnDisk};
pub(crate) use prepare::{Preparer, inflated};
pub(crate) use pulse::Pulse;
use sluice_log::{CursorId, Log, Subscription};
pub(crate) use stats::{CAUSES, OUTCOMES, Stats, Trouble};
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
    /// As `DropOldest`, so that no sender waits for one sick backend; where all deliveries of a receiver that still move are full, as
    /// `Backpressure`. While the backend works, and is only slower than others, answers to senders are held back a moment first.
    Isolate,
}

impl Policy {
    pub const fn as_str(self) -> &'static str {
        match self {
            Policy::Backpressure => "backpressure",
            Policy::DropOldest => "drop_oldest",
            Policy::Isolate => "isolate",
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
    pub pulse: Pulse,
    pub dead_letters: DeadLetters,
    /// Packed copies that batches may keep while they wait for a retry; beyond it they are packed again.
    pub packed_limit_bytes: AtomicU64,
    /// Set by an append that found the budget spent.
    over_budget: AtomicBool,
    drops_oldest: AtomicBool,
    pace_bytes: AtomicU64,
    budget_bytes: AtomicU64,
    /// Somebody waits for `room`.
    room_is_wanted: AtomicBool,
    /// Told when the budget is not nearly spent any more.
    room: Notify,
    /// The log goes on on disk.
    on_disk: bool,
    wake: Arc<Notify>,
    receiving: Arc<ReceivingBudget>,
}

/// A delivery that stays so far behind has a backlog, rather than too little of the CPU.
const BACKLOG_BYTES: u64 = 16 << 20;
/// A delivery for which so much waits is not idle for want of data: what comes now had better wait with its sender, unread, than
/// in memory. Under more load than the CPU can bear, this is what keeps it from being spent on receiving and refusing what cannot be
/// delivered, and what is in flight within the CPU's caches.
const PACE_BYTES: u64 = 4 << 20;
/// Of the budget, at most.
const PACE_SHARE: u64 = 4;

impl Delivery {
    /// Goes on where a delivery of this name was, if its backlog is in the log.
    pub(crate) fn new(
        id: DeliveryId,
        signal: sluice_otlp::Signal,
        log: Arc<Log<Entry>>,
        dead_letters: DeadLetters,
        receiving: Arc<ReceivingBudget>,
    ) -> Self {
        let wake = Arc::new(Notify::new());
        let woken = wake.clone();
        let cursor = log.subscribe(Subscription {
            wake: Arc::new(move || woken.notify_one()),
            ..Subscription::new(id.to_string())
        });
        Delivery {
            id,
            signal,
            on_disk: log.is_on_disk(),
            log,
            cursor,
            stats: Stats::default(),
            pulse: Pulse::default(),
            dead_letters,
            packed_limit_bytes: AtomicU64::new(0),
            over_budget: AtomicBool::new(false),
            drops_oldest: AtomicBool::new(false),
            pace_bytes: AtomicU64::new(PACE_BYTES),
            budget_bytes: AtomicU64::new(u64::MAX),
            room_is_wanted: AtomicBool::new(false),
            room: Notify::new(),
            wake,
            receiving,
        }
    }

    pub(crate) fn set_policy(&self, policy: Policy, budget_bytes: u64, lease_bytes: u64) {
        self.drops_oldest.store(policy != Policy::Backpressure, Ordering::Relaxed);
        self.pace_bytes.store(PACE_BYTES.min(budget_bytes / PACE_SHARE), Ordering::Relaxed);
        self.budget_bytes.store(budget_bytes, Ordering::Relaxed);
        self.log.set_limits(self.cursor, budget_bytes, lease_bytes);
    }

    /// It has enough to do.
    pub(crate) fn is_behind(&self) -> bool {
        self.log.is_behind(self.cursor, self.pace_bytes.load(Ordering::Relaxed))
    }

    fn has_backlog(&self) -> bool {
        self.log.is_behind(self.cursor, BACKLOG_BYTES)
    }

    /// Its backend is out of order, or it works off a backlog on disk: what comes now waits, at whatever pace it comes.
    pub(crate) fn is_apart(&self) -> bool {
        self.stats.trouble.lock().is_some() || self.on_disk && self.has_backlog()
    }

    /// The budget is spent, or would be with so much more.
    pub(crate) fn is_full(&self, arriving_bytes: u64) -> bool {
        self.log.would_exceed(self.cursor, arriving_bytes)
    }

    /// What of the budget is not spent.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.budget_bytes.load(Ordering::Relaxed).saturating_sub(self.log.held_bytes(self.cursor))
    }

    /// The budget is nearly spent though the backend takes data: if its senders were slower, nothing would have to be dropped.
    pub(crate) fn falls_behind(&self) -> bool {
        self.pulse.is_worth_waiting_for(Instant::now()) && self.is_nearly_full()
    }

    /// More than half of the budget is spent, and what may arrive before all senders wait would exceed it.
    fn is_nearly_full(&self) -> bool {
        let half_bytes = self.budget_bytes.load(Ordering::Relaxed) / 2;
        self.is_full(half_bytes.min(self.receiving.limit_bytes() as u64))
    }

    /// Waits until the budget is not nearly spent any more, but no longer than until `latest`.
    pub(crate) async fn wait_for_room(&self, latest: Instant) {
        let room = self.room.notified();
        self.room_is_wanted.store(true, Ordering::SeqCst);
        if self.is_nearly_full() {
            let _ = tokio::time::timeout_at(latest.into(), room).await;
        }
    }

    /// The backend has taken something.
    fn note_room(&self) {
        if self.room_is_wanted.load(Ordering::SeqCst) && !self.is_nearly_full() {
            self.room_is_wanted.store(false, Ordering::SeqCst);
            self.room.notify_waiters();
        }
    }

    /// What comes now is not delivered soon.
    pub(crate) fn is_late(&self) -> bool {
        self.stats.trouble.lock().is_some() || self.has_backlog()
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
        self.note_dropped(dropped.items, entries);
        if self.log.is_over_budget(self.cursor) {
            self.over_budget.store(true, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// The disk does not keep up: if the policy says so, frames that are not written go, the oldest first, until at most
    /// `keep_bytes` of them wait for this delivery.
    pub(crate) fn drop_unwritten(&self, keep_bytes: u64) {
        if self.drops_oldest.load(Ordering::Relaxed) {
            let (dropped, entries) = self.log.drop_unwritten(self.cursor, keep_bytes);
            self.note_dropped(dropped.items, entries);
        }
    }

    /// The disk does not work: a late delivery whose policy says so gives up what is not written, so that nobody waits for it.
    pub(crate) fn give_way(&self) {
        if self.is_late() {
            self.drop_unwritten(0);
        }
    }

    /// Counts what the log dropped on disk.
    fn note_dropped_on_disk(&self) {
        if self.on_disk {
            self.count_dropped(self.log.take_dropped(self.cursor).items);
        }
    }

    /// What is over the budget is on disk, and on its way out.
    fn drops_on_disk(&self) -> bool {
        self.on_disk && self.log.held(self.cursor).frames > self.log.leased(self.cursor).frames + 1
    }

    fn note_dropped(&self, items: u64, entries: Vec<Arc<Entry>>) {
        self.count_dropped(items);
        for entry in entries {
            entry.resolved(self.cursor, Ok(()));
        }
    }

    fn count_dropped(&self, items: u64) {
        if items > 0 {
            self.pulse.note_dropped(Instant::now());
            self.stats.dropped_items.fetch_add(items, Ordering::Relaxed);
            tracing::warn!(
                pipeline = %self.id.pipeline,
                exporter = %self.id.exporter,
                items,
                "the delivery's budget is spent, or the disk too slow: its oldest items were dropped (`buffer.policy`); \
                 raise the limit or mend the backend"
            );
        }
    }
}
