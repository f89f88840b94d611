//! When a refused request is sent again.

use std::time::Duration;

/// Exponential growth between two bounds with jitter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    pub initial: Duration,
    pub max: Duration,
    pub multiplier: f64,
    /// Share of the delay by which it is varied at random, 0 to 1.
    pub jitter: f64,
}

impl Backoff {
    /// The delay before attempt `failures + 1`, where `failures` ≥ 1. `random` is uniform in 0..1.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let growth = self.multiplier.max(1.0).powi(failures.saturating_sub(1).min(64) as i32);
        let seconds = (self.initial.as_secs_f64() * growth).min(self.max.as_secs_f64());
        let varied = seconds * (1.0 - self.jitter + 2.0 * self.jitter * random);
        Duration::from_secs_f64(varied.max(0.0))
    }
}

/// What `retry_on_failure` says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RetryPolicy {
    /// Nothing set: retries quickly while the backend takes much, slowly in an outage, for ever.
    /// While it takes anything at all no request waits longer than the ceiling.
    Adaptive { backoff: Backoff, ceiling_while_delivering: Duration },
    /// As configured: each request backs off on its own; `max_elapsed` since its first attempt ends
    /// in the dead letters.
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

/// Over so many requests it is averaged what share a backend takes.
pub(super) const TAKEN_SHARE_REQUESTS: u32 = 32;
/// A backend that takes such a share refuses at random rather than because it is full: asked again
/// soon it takes as much with as many attempts, and sooner. One that takes less is asked so much
/// less often.
const TAKEN_SHARE_GOOD: f64 = 0.25;

/// An unbroken run of failures of the first length is an outage, but where the backend refuses so
/// much at random that such a run is bound to come (at 70 %, once in 90,000 requests) it must be
/// longer, up to the second: then it comes by chance once in 10⁹.
const OUTAGE_FAILURES: (u32, u32) = (32, 64);
const OUTAGE_BY_CHANCE: f64 = 1e-9;

/// How many failures in a row are an outage after such a share was taken.
pub(super) fn failures_of_an_outage(taken_share: f64) -> u32 {
    let (least, most) = OUTAGE_FAILURES;
    if taken_share < TAKEN_SHARE_GOOD / 2.0 {
        // It is full, not sick at random: the sooner it is left alone the better.
        return least;
    }
    let by_chance = OUTAGE_BY_CHANCE.ln() / (1.0 - taken_share).max(f64::EPSILON).ln();
    (by_chance.ceil() as u32).clamp(least, most)
}

/// The longest delay of a request while the backend takes anything.
pub(super) fn ceiling(taken_share: f64, initial: Duration, max: Duration) -> Duration {
    let growth = (TAKEN_SHARE_GOOD / taken_share.max(f64::EPSILON)).max(1.0);
    Duration::from_secs_f64((initial.as_secs_f64() * growth).min(max.as_secs_f64()))
}

/// Pace of the probes while a backend is out.
pub(super) const OUTAGE_BACKOFF: Backoff = Backoff {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2.0,
    jitter: 0.25,
};

/// Pace of the probes while a delivery is held: nothing mends itself within milliseconds.
pub(super) const HOLD_BACKOFF: Backoff =
    Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(30), ..OUTAGE_BACKOFF };

/// The same where all data seems to be at fault: other data may not be.
pub(super) const FAULT_BACKOFF: Backoff =
    Backoff { initial: Duration::from_secs(1), ..OUTAGE_BACKOFF };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TakenShare;

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
    }
}
