//! The faults of a backend, switchable while it runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use sluice_net::grpc::Code;

/// Answers a share of the requests with a status instead of taking them.
#[derive(Clone, Debug, PartialEq)]
pub struct Refuse {
    /// Share of all requests, 0.0 to 1.0, at random.
    pub share: f64,
    /// Over HTTP the corresponding status.
    pub code: Code,
    /// Sent as RetryInfo, or as Retry-After in whole seconds over HTTP.
    pub retry_delay: Option<Duration>,
}

/// Answers a share of the requests only after a delay.
#[derive(Clone, Debug, PartialEq)]
pub struct Delay {
    pub share: f64,
    pub by: Duration,
}

/// Takes requests but rejects some of their items for good (OTLP partial success).
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    pub share: f64,
    /// The last items of each such request, at most all.
    pub rejected_items: u64,
    pub message: String,
}

/// All faults of a backend at one time; by default none. Faults combine. Where several would
/// answer, the first in the order of the fields does, except that `discard` precedes `partial`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The port is closed, and all connections are cut once what was taken is answered.
    pub dead: bool,
    /// Share of the requests that are read and not answered until this is 0.
    pub stall_share: f64,
    /// Share of the requests whose stream (over HTTP: connection) is reset in mid-answer.
    pub reset_share: f64,
    pub delay: Option<Delay>,
    pub refuse: Option<Refuse>,
    /// Requests with an item that a load's `poison_every` has marked get INVALID_ARGUMENT.
    pub poison: bool,
    pub partial: Option<Partial>,
    /// Answers OK and forgets: nothing is counted as seen.
    pub discard: bool,
}

impl Faults {
    pub fn dead() -> Self {
        Faults { dead: true, ..Faults::default() }
    }

    pub fn stalled() -> Self {
        Faults { stall_share: 1.0, ..Faults::default() }
    }

    /// UNAVAILABLE (503) without RetryInfo, as the Kyma load test's backpressure has it.
    pub fn unavailable(share: f64) -> Self {
        let refuse = Refuse { share, code: Code::Unavailable, retry_delay: None };
        Faults { refuse: Some(refuse), ..Faults::default() }
    }

    pub fn rejecting_poison() -> Self {
        Faults { poison: true, ..Faults::default() }
    }
}

/// Changes a backend's faults while it runs. Clones act on the same backend.
#[derive(Clone, Debug)]
pub struct FaultSwitch(pub(super) watch::Sender<Arc<Faults>>);

impl FaultSwitch {
    pub fn set(&self, faults: Faults) {
        self.0.send_replace(Arc::new(faults));
    }

    pub fn clear(&self) {
        self.set(Faults::default());
    }

    pub fn current(&self) -> Arc<Faults> {
        Arc::clone(&self.0.borrow())
    }

    /// Sets faults in order, each this long after now, while this is polled. A first step at zero
    /// is set on return.
    pub fn schedule(&self, steps: Vec<(Duration, Faults)>) -> impl Future<Output = ()> + use<> {
        let switch = self.clone();
        let began = tokio::time::Instant::now();
        if let Some((_, first)) = steps.first().filter(|(after, _)| after.is_zero()) {
            self.set(first.clone());
        }
        async move {
            for (after, faults) in steps {
                tokio::time::sleep_until(began + after).await;
                switch.set(faults);
            }
        }
    }
}

pub(super) fn strikes(share: f64) -> bool {
    share > 0.0 && fastrand::f64() < share
}
