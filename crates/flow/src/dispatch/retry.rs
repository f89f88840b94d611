//! When a refused request is sent again.
//! `docs/decisions/002-outages-are-judged-per-backend.md` has the reasons for the figures.

use std::time::Duration;

/// Exponential growth with jitter, as in `cenkalti/backoff`, which the Collector uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The first delay. It may exceed `max`.
    pub initial: Duration,
    /// Of the delays after the first.
    pub max: Duration,
    pub multiplier: f64,
    /// Share of the delay by which it varies at random, 0 to 1.
    pub jitter: f64,
}

impl Backoff {
    /// The delay before attempt `failures + 1`, where `failures` ≥ 1. `random` is uniform in 0..1.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let initial = self.initial.as_secs_f64();
        let seconds = match failures.saturating_sub(1).min(64) as i32 {
            0 => initial,
            times => (initial * self.multiplier.max(1.0).powi(times)).min(self.max.as_secs_f64()),
        };
        let varied = seconds * (1.0 - self.jitter + 2.0 * self.jitter * random);
        Duration::from_secs_f64(varied.max(0.0))
    }
}

/// The setting `retry_on_failure`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RetryPolicy {
    /// Not configured: retries soon while the backend takes much, slowly in an outage, without end.
    /// While the backend takes anything, no retry waits longer than the ceiling.
    Adaptive { backoff: Backoff, ceiling_while_delivering: Duration },
    /// As configured: each request backs off on its own. After `max_elapsed` since its first
    /// attempt it becomes a dead letter.
    Explicit { backoff: Backoff, max_elapsed: Option<Duration> },
    /// A refused request is not sent again.
    Disabled,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::Adaptive {
            backoff: OUTAGE_BACKOFF,
            ceiling_while_delivering: Duration::from_millis(400),
        }
    }
}

/// The share that a backend takes is averaged over this many requests.
pub(super) const TAKEN_SHARE_REQUESTS: u32 = 32;
/// A backend that takes at least this share refuses at random, not because it is full: early
/// retries cost no more attempts, and deliver sooner. A backend that takes less gets retries less
/// often, in proportion.
const TAKEN_SHARE_GOOD: f64 = 0.25;

/// A run of failures of the first length is an outage. If the backend refuses so much at random
/// that such a run comes by chance (at 70 %, once in 90,000 requests), it must be longer, up to the
/// second length, so that chance makes one in 10⁹ (at 70 %, 59 failures).
const OUTAGE_FAILURES: (u32, u32) = (32, 64);
/// The probability with which such a run may come by chance.
const BY_CHANCE: f64 = 1e-9;

/// Number of failures in a row that are an outage, after this share was taken.
pub(super) fn failures_of_an_outage(taken_share: f64) -> u32 {
    if taken_share < TAKEN_SHARE_GOOD / 2.0 {
        // It is full and does not refuse at random: the sooner the requests stop the better.
        return OUTAGE_FAILURES.0;
    }
    run_beyond_chance(taken_share, OUTAGE_FAILURES)
}

/// Length, within these bounds, of a run of refusals that does not come by chance from a backend
/// that takes this share.
pub(super) fn run_beyond_chance(taken_share: f64, (least, most): (u32, u32)) -> u32 {
    let length = BY_CHANCE.ln() / (1.0 - taken_share).max(f64::EPSILON).ln();
    (length.ceil() as u32).clamp(least, most)
}

/// The longest delay of a request while the backend takes anything.
pub(super) fn ceiling(taken_share: f64, initial: Duration, max: Duration) -> Duration {
    let growth = (TAKEN_SHARE_GOOD / taken_share.max(f64::EPSILON)).max(1.0);
    Duration::from_secs_f64((initial.as_secs_f64() * growth).min(max.as_secs_f64()))
}

/// Intervals of the probes during an outage.
pub(super) const OUTAGE_BACKOFF: Backoff = Backoff {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2.0,
    jitter: 0.25,
};

/// Intervals of the probes while a delivery is held: such a fault lasts for seconds at least.
pub(super) const HOLD_BACKOFF: Backoff =
    Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(30), ..OUTAGE_BACKOFF };

/// Intervals of the probes while all data seems to be at fault: other data may not be.
pub(super) const FAULT_BACKOFF: Backoff = Backoff {
    initial: Duration::from_secs(1),
    max: Duration::from_secs(10),
    multiplier: 1.3,
    jitter: 0.25,
};

/// The parts of a refused probe follow each other after this part of the interval.
pub(super) const FAULT_PARTS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::taken_share::TakenShare;

    #[test]
    fn the_less_a_backend_takes_the_less_often_it_is_asked() {
        let (initial, max) = (Duration::from_millis(100), Duration::from_millis(400));
        let share = TakenShare::<TAKEN_SHARE_REQUESTS>::default();
        let mut ceilings = Vec::new();
        for taken_of_twenty in [20, 6, 2, 0, 20] {
            (0..200).for_each(|request| share.note(request % 20 < taken_of_twenty));
            ceilings.push(ceiling(share.get(), initial, max).as_millis());
        }
        assert_eq!((ceilings[0], ceilings[3], ceilings[4]), (100, 400, 100));
        assert!(
            (100..150).contains(&ceilings[1]) && (200..=400).contains(&ceilings[2]),
            "{ceilings:?}"
        );
    }

    #[test]
    fn a_run_of_failures_is_an_outage_unless_it_is_bound_to_come() {
        assert_eq!([1.0, 0.9, 0.3, 0.2, 0.05].map(failures_of_an_outage), [32, 32, 59, 64, 32]);
    }

    #[test]
    fn delays_grow_to_the_maximum_and_stay_within_the_jitter() {
        let backoff = Backoff {
            initial: Duration::from_secs(5),
            max: Duration::from_secs(30),
            multiplier: 1.5,
            jitter: 0.5,
        };
        let middle: Vec<_> =
            (1..=7).map(|failures| backoff.delay(failures, 0.5).as_secs_f64()).collect();
        assert_eq!(middle, [5.0, 7.5, 11.25, 16.875, 25.3125, 30.0, 30.0]);
        assert_eq!(backoff.delay(1, 0.0), Duration::from_millis(2500));
        assert!(backoff.delay(1, 0.999) < Duration::from_millis(7500));
        assert_eq!(backoff.delay(u32::MAX, 0.5), Duration::from_secs(30));
        let steep = Backoff { max: Duration::from_secs(1), ..backoff };
        assert_eq!([1, 2, 3].map(|failures| steep.delay(failures, 0.5).as_secs()), [5, 1, 1]);
    }
}
