//! What a connection does: its requests, and since when it has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::budget::{ConnectionBudget, StreamCharges};
use super::scheduler::{Arriving, Requests};

#[derive(Debug)]
pub(super) struct Activity {
    pub(super) requests: Arc<Requests>,
    served: AtomicU64,
    charges: StreamCharges,
    /// When the last request in flight was answered, or the connection was opened.
    idle_since: Mutex<Instant>,
    evicted: Notify,
}

impl Activity {
    pub(super) fn new(budget: &Arc<ConnectionBudget>) -> Self {
        Activity {
            requests: Arc::default(),
            served: AtomicU64::new(0),
            charges: StreamCharges::new(budget),
            idle_since: Mutex::new(Instant::now()),
            evicted: Notify::new(),
        }
    }

    /// A request begins that holds this much beside its body.
    pub(super) fn begin(self: &Arc<Self>, bytes: usize) -> (InFlight, Arriving) {
        self.served.fetch_add(1, Ordering::Relaxed);
        let is_charged = self.charges.try_take(bytes);
        (InFlight { activity: Arc::clone(self), bytes, is_charged }, self.requests.begin())
    }

    pub(super) fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed) > 0
    }

    pub(super) fn idle_since(&self) -> Instant {
        *self.idle_since.lock()
    }

    /// How long it has been without a request. `None`: it has one.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        (self.requests.in_flight() == 0).then(|| now.saturating_duration_since(self.idle_since()))
    }

    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Waits until the connection has to make room.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct InFlight {
    activity: Arc<Activity>,
    bytes: usize,
    is_charged: bool,
}

impl InFlight {
    /// False: the budget of connections has no room for it.
    pub(super) fn is_charged(&self) -> bool {
        self.is_charged
    }

    pub(super) fn requests(&self) -> &Arc<Requests> {
        &self.activity.requests
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.activity.charges.give_back(self.bytes);
        if self.activity.requests.end() == 0 {
            *self.activity.idle_since.lock() = Instant::now();
        }
    }
}
