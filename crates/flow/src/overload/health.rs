//! The recent behaviour of a delivery's backend. It decides whether senders are slowed down for the
//! delivery or the delivery is isolated.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Stamp;
use crate::TakenShare;

/// A backend that took nothing for so long, of what it was sent, stands still.
const STILL: Duration = Duration::from_millis(500);
/// The same while the CPU is short: its answers may be there, unread.
const STILL_CPU_BOUND: Duration = Duration::from_secs(5);
/// How long a delivery counts as outpaced after slowing senders down for it was in vain.
const OUTPACED: Duration = Duration::from_secs(60);

/// Written by the delivery's task, read by receivers.
#[derive(Debug, Default)]
pub struct BackendHealth {
    /// When something was taken, or sent after there was nothing to send.
    moved: Stamp,
    /// When something was dropped for the delivery.
    pub shed: Stamp,
    /// When a request could not enter because of the delivery.
    pub in_the_way: Stamp,
    /// When it was in vain to slow senders down (see [`super::delay::was_in_vain`]).
    pub outpaced: Stamp,
    in_outage: AtomicBool,
    /// Something is under way or waits to be sent again.
    is_busy: AtomicBool,
    /// At 70 % refused, the share varies by two hundredths.
    taken_share: TakenShare<256>,
}

/// What is known of a backend at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backend {
    /// An unbroken run of failures, or nothing can be sent as it is configured.
    pub in_outage: bool,
    /// It has requests and has taken none for a while.
    pub stands_still: bool,
    /// Slowing senders down for it was in vain within the last minute.
    pub is_outpaced: bool,
    /// It took something within the same while.
    pub is_moving: bool,
    /// What it takes of the requests that it is sent, 0 to 1.
    pub taken_share: f64,
}

impl BackendHealth {
    /// The first request after there was none under way.
    pub fn note_begun(&self, now: Instant) {
        self.moved.set(now);
        self.is_busy.store(true, Ordering::Relaxed);
    }

    pub fn note_idle(&self) {
        self.is_busy.store(false, Ordering::Relaxed);
    }

    pub fn note_answer(&self, is_taken: bool, now: Instant) {
        self.taken_share.note(is_taken);
        if is_taken {
            self.moved.set(now);
        }
    }

    pub fn note_outage(&self, in_outage: bool) {
        self.in_outage.store(in_outage, Ordering::Relaxed);
    }

    pub fn at(&self, now: Instant, is_cpu_bound: bool) -> Backend {
        let still = if is_cpu_bound { STILL_CPU_BOUND } else { STILL };
        let is_moving = self.moved.is_within(still, now);
        Backend {
            in_outage: self.in_outage.load(Ordering::Relaxed),
            stands_still: self.is_busy.load(Ordering::Relaxed) && !is_moving,
            is_outpaced: self.outpaced.is_within(OUTPACED, now),
            is_moving,
            taken_share: self.taken_share.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    fn after(ms: u64) -> Instant {
        *START + Duration::from_millis(ms)
    }

    #[test]
    fn a_backend_that_takes_nothing_stands_still_and_an_idle_one_does_not() {
        let health = BackendHealth::default();
        let stands_still = |ms| health.at(after(ms), false).stands_still;
        assert!(!stands_still(0) && !stands_still(10_000), "it was sent nothing");
        health.note_begun(after(10_000));
        assert!(!stands_still(10_400) && stands_still(10_600));
        assert!(!health.at(after(14_000), true).stands_still, "its answers may be there, unread");
        assert!(health.at(after(15_100), true).stands_still);
        health.note_answer(false, after(15_200));
        assert!(stands_still(15_250), "a refusal is no sign of movement");
        health.note_answer(true, after(15_300));
        assert!(!stands_still(15_700));
        health.note_idle();
        assert!(!stands_still(60_000));
    }

    #[test]
    fn a_delivery_is_outpaced_for_a_minute() {
        let health = BackendHealth::default();
        health.outpaced.set(after(3_000));
        let is_outpaced = |ms| health.at(after(ms), false).is_outpaced;
        assert!(is_outpaced(3_100) && is_outpaced(62_900) && !is_outpaced(63_100));
    }
}
