//! One delivery: a (pipeline, exporter) pair with its own cursor and retry state. It slows down
//! another one only by using the CPU, or through senders that both share and that a policy makes
//! wait. `flow::overload` decides what happens when it lags.

mod account;
#[cfg(test)]
mod account_tests;
#[cfg(test)]
mod busy_tests;
mod content;
mod dead_letter_writer;
mod dead_letters;
mod feed;
mod filling;
#[cfg(test)]
mod hung_tests;
#[cfg(test)]
mod kept_tests;
#[cfg(test)]
mod late_tests;
mod leased;
#[cfg(test)]
mod let_go_tests;
#[cfg(test)]
mod made_again_tests;
mod messages;
mod naming;
#[cfg(test)]
mod naming_tests;
mod prepare;
mod processing;
mod sending;
mod stats;
mod task;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod too_large_tests;
#[cfg(test)]
mod turns_tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) use account::{Account, Counted};
use arc_swap::ArcSwap;
pub(crate) use dead_letters::{DeadLetterTotals, DeadLetters, Listing, OnDisk};
pub(crate) use filling::{Filling, Lag};
pub(crate) use naming::Names;
pub(crate) use prepare::Preparer;
use sluice_flow::Reserved;
pub use sluice_flow::overload::Policy;
use sluice_flow::overload::{BackendHealth, DeliveryState, Sheds, disk};
use sluice_log::{CursorId, GivenUp, Log, ReaderGauges, Subscription};
pub(crate) use stats::{CAUSES, OUTCOMES, Stats};
pub(crate) use task::run;
use tokio::sync::Notify;

use crate::entry::Entry;
use crate::private_memory::{CommonMemory, PrivateLimits, PrivateMemory};
use crate::receiving::ReceivingBudget;

/// How a delivery's task is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    No,
    /// Send everything without lingering, then end.
    Drain,
    /// Wait for requests in flight, give back the rest to the log, end.
    HandOver,
}

/// For this long after a drop, or after a sender had to wait, the budget counts as spent at least:
/// senders come at intervals, and shedding frees more than it must.
const SPENT_FOR: Duration = Duration::from_secs(15);

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

/// The bounds of a delivery's backlog, from the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub policy: Policy,
    /// The most that it may lag.
    pub limit_bytes: u64,
}

/// State that receivers, metrics and the delivery's own task share. Lives as long as the
/// configuration has a delivery of this name: reloads replace the task and keep this.
pub(crate) struct Delivery {
    pub id: DeliveryId,
    pub signal: sluice_otlp::Signal,
    is_best_effort: bool,
    pub log: Arc<Log<Entry>>,
    pub cursor: CursorId,
    pub stats: Stats,
    pub account: Arc<Account>,
    pub health: BackendHealth,
    /// Memory that it takes beside the log.
    pub private: Arc<PrivateMemory>,
    pub dead_letters: DeadLetters,
    /// Packed copies that batches may keep for a retry; beyond it they are packed again.
    pub packed_limit_bytes: AtomicU64,
    /// Copies of requests in flight; beyond it and the common part only one request is.
    pub sending: Arc<PrivateMemory>,
    pub sending_limit_bytes: AtomicU64,
    pub common_sending_limit_bytes: AtomicU64,
    pub private_limits: PrivateLimits,
    pub gauges: Arc<ReaderGauges>,
    /// Set by an append that found the delivery beyond its own limit.
    is_over_limit: AtomicBool,
    /// Bytes that the pool wants of the frames that wait for a retry, until the task has looked.
    shed_wanted_bytes: AtomicU64,
    /// The task found less than it was last asked for.
    sheds_too_little: AtomicBool,
    bounds: ArcSwap<Bounds>,
    /// Some sender waits for `room`.
    room_is_wanted: AtomicBool,
    /// Notified when the backend has taken something.
    room: Notify,
    /// The log continues on disk.
    on_disk: bool,
    /// Notified when new frames may have come, or something is asked of the task.
    pub wake: Arc<Notify>,
    receiving: Arc<ReceivingBudget>,
}

/// Memory that a delivery uses together with other ones.
pub(crate) struct SharedMemory {
    pub receiving: Arc<ReceivingBudget>,
    pub private: Arc<PrivateMemory>,
    /// Copies of requests in flight of all deliveries.
    pub sending: Arc<CommonMemory>,
}

impl Delivery {
    /// Continues the backlog of a delivery of this name, if the log has one.
    pub(crate) fn new(
        id: DeliveryId,
        signal: sluice_otlp::Signal,
        log: Arc<Log<Entry>>,
        dead_letters: DeadLetters,
        memory: SharedMemory,
        is_best_effort: bool,
    ) -> Self {
        let SharedMemory { receiving, private, sending } = memory;
        let wake = Arc::new(Notify::new());
        let woken = wake.clone();
        let cursor = log.subscribe(Subscription {
            is_best_effort,
            wake: Arc::new(move || woken.notify_one()),
            ..Subscription::new(id.to_string())
        });
        let account = Account::new(log.held(cursor).items, log.head());
        Delivery {
            account: Arc::new(account),
            id,
            signal,
            is_best_effort,
            on_disk: log.is_on_disk(),
            gauges: log.gauges(cursor),
            log,
            cursor,
            stats: Stats::default(),
            health: BackendHealth::default(),
            private,
            dead_letters,
            packed_limit_bytes: AtomicU64::new(0),
            sending: PrivateMemory::new(sending),
            sending_limit_bytes: AtomicU64::new(u64::MAX),
            common_sending_limit_bytes: AtomicU64::new(u64::MAX),
            private_limits: PrivateLimits::default(),
            is_over_limit: AtomicBool::new(false),
            shed_wanted_bytes: AtomicU64::new(0),
            sheds_too_little: AtomicBool::new(false),
            bounds: ArcSwap::from_pointee(Bounds {
                policy: Policy::Backpressure,
                limit_bytes: u64::MAX,
            }),
            room_is_wanted: AtomicBool::new(false),
            room: Notify::new(),
            wake,
            receiving,
        }
    }

    /// Counts items of these names in rows of their own, whatever comes.
    pub(crate) fn with_rows(self, reserved: Reserved) -> Self {
        Delivery { account: Arc::new(self.account.with_rows(reserved)), ..self }
    }

    pub(crate) fn set_bounds(&self, bounds: Bounds, lease_bytes: u64) {
        self.log.set_limits(self.cursor, bounds.limit_bytes, lease_bytes);
        // Under `isolate`, `Backlog::update_sheds` sets this anew whenever it matters.
        let drops = bounds.policy == Policy::DropOldest;
        self.gauges.allow(if drops { Sheds::Everything } else { Sheds::Nothing });
        self.bounds.store(Arc::new(bounds));
    }

    pub(crate) fn bounds(&self) -> Bounds {
        **self.bounds.load()
    }

    /// The input of the rules of overload.
    pub(crate) fn state(&self, now: Instant, is_cpu_bound: bool) -> DeliveryState {
        let bounds = self.bounds();
        DeliveryState {
            policy: bounds.policy,
            is_best_effort: self.is_best_effort,
            limit_bytes: bounds.limit_bytes,
            lag_bytes: self.gauges.held_bytes.get(),
            unread_bytes: self.gauges.unread_bytes.get(),
            private_bytes: self.private.used_bytes(),
            is_far_behind: self.on_disk && disk::is_backlog(self.gauges.unread_bytes.get()),
            backend: self.health.judge(now, is_cpu_bound),
        }
    }

    pub(crate) fn lag_bytes(&self) -> u64 {
        self.gauges.held_bytes.get()
    }

    /// The input of the forecast of its budget.
    pub(crate) fn lag(&self, now: Instant) -> Lag {
        let events = [&self.health.shed, &self.stats.blocked];
        Lag {
            lag_bytes: self.lag_bytes(),
            limit_bytes: self.bounds().limit_bytes,
            is_spent: events.iter().any(|event| event.is_within(SPENT_FOR, now)),
        }
    }

    /// Memory that would be free without this delivery.
    pub(crate) fn alone_bytes(&self) -> u64 {
        self.gauges.alone_bytes.get() + self.private.used_bytes()
    }

    /// Waits until the backend has taken something, but no longer than until `latest`.
    pub(crate) async fn wait_for_room(&self, latest: Instant) {
        self.room_is_wanted.store(true, Ordering::SeqCst);
        let _ = tokio::time::timeout_at(latest.into(), self.room.notified()).await;
    }

    /// Wakes one sender whose answer is delayed. Once answered, that sender wakes the next.
    pub(crate) fn note_room(&self) {
        if self.room_is_wanted.load(Ordering::SeqCst) {
            self.room.notify_one();
        }
    }

    /// An append found that some delivery exceeds its own limit. If this one does and may shed, its
    /// oldest frames go: first those that it has not read, then, in the task, those that wait for a
    /// retry.
    pub(crate) fn enforce_limit(&self) {
        if self.gauges.may_shed() == Sheds::Nothing || !self.gauges.is_over_budget() {
            return;
        }
        let (dropped, given_up) = self.log.drop_oldest_unread(self.cursor);
        let in_memory: u64 = given_up.iter().map(|given_up| given_up.charge.items).sum();
        self.note_given_up(given_up);
        self.count_dropped(dropped.items - in_memory);
        if self.gauges.is_over_budget() {
            self.is_over_limit.store(true, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// Sheds frames that only this delivery pins, the rest in its task. Returns bytes free at once.
    pub(crate) fn shed_alone(&self, wanted_bytes: u64) -> u64 {
        let given_up = self.log.shed_alone(self.cursor, wanted_bytes);
        let freed_bytes = given_up.iter().map(|given_up| given_up.charge.bytes).sum();
        self.note_given_up(given_up);
        let left_bytes = self.alone_bytes().min(wanted_bytes.saturating_sub(freed_bytes));
        if left_bytes > 0 {
            self.shed_wanted_bytes.fetch_max(left_bytes, Ordering::Relaxed);
            self.wake.notify_one();
        }
        freed_bytes
    }

    /// Bytes that the task was asked to shed and has not looked for yet. Zero if the task found too
    /// little the last time: then it is not relied on.
    pub(crate) fn shedding_bytes(&self) -> u64 {
        let is_relied_on = !self.sheds_too_little.load(Ordering::Relaxed);
        if is_relied_on { self.shed_wanted_bytes.load(Ordering::Relaxed) } else { 0 }
    }

    /// The task has shed the bytes that it was asked for, or as many as it found.
    pub(crate) fn note_shed(&self, is_all: bool) {
        self.sheds_too_little.store(!is_all, Ordering::Relaxed);
        self.shed_wanted_bytes.store(0, Ordering::Relaxed);
    }

    /// The disk does not keep up: drops unwritten frames, the oldest first, as far as it may, until
    /// at most `keep_bytes` of them wait for this delivery.
    pub(crate) fn drop_unwritten(&self, keep_bytes: u64) {
        if self.gauges.may_shed() != Sheds::Nothing
            && self.gauges.unwritten_bytes.get() > keep_bytes
        {
            self.note_given_up(self.log.drop_unwritten(self.cursor, keep_bytes));
        }
    }

    /// Frames were given up. A sender that waits for a lost one gets a retryable refusal.
    pub(crate) fn note_given_up(&self, given_up: Vec<GivenUp<Entry>>) {
        self.count_dropped(given_up.iter().map(|given_up| given_up.charge.items).sum());
        for GivenUp { entry, is_lost, .. } in given_up {
            entry.given_up(self.cursor, is_lost);
        }
    }

    fn count_dropped(&self, items: u64) {
        if items > 0 {
            self.health.shed.set(Instant::now());
            self.stats.dropped_items.fetch_add(items, Ordering::Relaxed);
            tracing::warn!(
                pipeline = %self.id.pipeline, exporter = %self.id.exporter, items,
                "the budget of the delivery or of all is spent, or the disk too slow: its oldest \
                 items were dropped (`buffer.policy`); raise the limit or mend the backend"
            );
        }
    }
}
