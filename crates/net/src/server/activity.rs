//! What a connection does: its requests and answers, and since when it has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    times: Mutex<Times>,
    /// Answers that are being sent, by whether the period in which each began is even or odd.
    sending: [AtomicUsize; 2],
    period: AtomicUsize,
    evicted: Notify,
}

#[derive(Debug)]
struct Times {
    /// The last request in flight was answered, or the connection was opened.
    idle_since: Instant,
    /// The last request was accepted, or the connection was opened.
    useful_at: Instant,
}

impl Activity {
    pub(super) fn new(budget: &Arc<ConnectionBudget>) -> Self {
        let now = Instant::now();
        Activity {
            requests: Arc::default(),
            served: AtomicU64::new(0),
            charges: StreamCharges::new(budget),
            times: Mutex::new(Times { idle_since: now, useful_at: now }),
            sending: Default::default(),
            period: AtomicUsize::new(0),
            evicted: Notify::new(),
        }
    }

    /// A request begins that holds this much beside its body.
    pub(super) fn begin(self: &Arc<Self>, bytes: usize) -> (InFlight, Arriving) {
        self.served.fetch_add(1, Ordering::Relaxed);
        let is_charged = self.charges.try_take(bytes);
        let activity = Arc::clone(self);
        let in_flight = InFlight { activity, bytes, is_charged, is_answered: false, period: None };
        (in_flight, self.requests.begin())
    }

    pub(super) fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed) > 0
    }

    pub(super) fn idle_since(&self) -> Instant {
        self.times.lock().idle_since
    }

    /// How long no request was accepted. `None`: one is in flight. Refusals do not count: a peer
    /// could make use of them to stay while better ones have to go.
    pub(super) fn useless_for(&self, now: Instant) -> Option<Duration> {
        (self.requests.in_flight() == 0)
            .then(|| now.saturating_duration_since(self.times.lock().useful_at))
    }

    /// Asked at regular intervals: whether an answer is being sent that began before the last one.
    pub(super) fn has_stalled_answers(&self) -> bool {
        let next = self.period.load(Ordering::Relaxed) + 1;
        let is_stalled = self.sending[next % 2].load(Ordering::Acquire) > 0;
        self.period.store(next, Ordering::Relaxed);
        is_stalled
    }

    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Waits until the connection has to make room.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// A request until its answer is sent.
#[derive(Debug)]
pub(super) struct InFlight {
    activity: Arc<Activity>,
    bytes: usize,
    is_charged: bool,
    is_answered: bool,
    /// In which its answer began to be sent.
    period: Option<usize>,
}

impl InFlight {
    /// False: the budget of connections has no room for it.
    pub(super) fn is_charged(&self) -> bool {
        self.is_charged
    }

    /// There is an answer, and nothing is charged any more: under load many answers wait for their
    /// connection's turn, which is not their peers' fault.
    pub(super) fn answered(&mut self, is_accepted: bool) {
        self.is_answered = true;
        self.activity.charges.give_back(self.bytes);
        let is_last = self.activity.requests.end() == 0;
        if is_last || is_accepted {
            let now = Instant::now();
            let mut times = self.activity.times.lock();
            times.idle_since = now;
            if is_accepted {
                times.useful_at = now;
            }
        }
    }

    /// Waits until all requests of the connection's slice have arrived.
    pub(super) async fn hold(&self) {
        self.activity.requests.all_have_arrived().await;
    }

    /// The answer is being sent until this is dropped.
    pub(super) fn sending(mut self) -> Self {
        let period = self.activity.period.load(Ordering::Relaxed);
        self.activity.sending[period % 2].fetch_add(1, Ordering::AcqRel);
        self.period = Some(period);
        self
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answered(false);
        }
        if let Some(period) = self.period {
            self.activity.sending[period % 2].fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> Arc<Activity> {
        Arc::new(Activity::new(&ConnectionBudget::unlimited()))
    }

    /// Guarantee: an answer counts as stalled after one to two intervals, and not before.
    #[test]
    fn answers_that_make_no_progress_are_found_in_time() {
        let activity = activity();
        for _ in 0..5 {
            let mut in_flight = activity.begin(0).0;
            in_flight.answered(true);
            let sending = in_flight.sending();
            assert!(!activity.has_stalled_answers());
            drop(sending);
            assert!(!activity.has_stalled_answers());
        }
        let _stalled = activity.begin(0).0.sending();
        assert!(!activity.has_stalled_answers());
        drop(activity.begin(0).0.sending());
        assert!(activity.has_stalled_answers());
    }

    /// Guarantee: a refused request ends a connection's idleness, but is no reason to keep it.
    #[tokio::test]
    async fn refusals_are_no_use() {
        let activity = activity();
        let opened = activity.idle_since();
        tokio::time::sleep(Duration::from_millis(2)).await;
        activity.begin(0).0.answered(false);
        let now = Instant::now();
        assert!(activity.idle_since() > opened);
        assert_eq!(activity.useless_for(now), Some(now - opened));
        activity.begin(0).0.answered(true);
        assert!(activity.useless_for(Instant::now()).is_some_and(|idle| idle < now - opened));
    }
}
