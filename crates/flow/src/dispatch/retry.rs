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
    /// Nothing was set: quick while the backend takes anything at all, slow only in an outage, without end.
    Adaptive { backoff: Backoff, ceiling_while_delivering: Duration },
    /// As configured: each request backs off on its own; `max_elapsed` since its first attempt ends in the dead letters.
    Explicit { backoff: Backoff, max_elapsed: Option<Duration> },
    /// A refused request is not sent again.
    Disabled,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::Adaptive { backoff: OUTAGE_BACKOFF, ceiling_while_delivering: Duration::from_millis(400) }
    }
}

/// Pace of the probes while a backend is out.
pub(super) const OUTAGE_BACKOFF: Backoff =
    Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(5), multiplier: 2.0, jitter: 0.25 };

/// Pace of the probes while a delivery is held for a misconfiguration: nothing mends itself within milliseconds.
pub(super) const HOLD_BACKOFF: Backoff =
    Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(30), multiplier: 2.0, jitter: 0.25 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_maximum_and_stay_within_the_jitter() {
        let backoff =
            Backoff { initial: Duration::from_secs(5), max: Duration::from_secs(30), multiplier: 1.5, jitter: 0.5 };
        let middle: Vec<_> = (1..=7).map(|failures| backoff.delay(failures, 0.5).as_secs_f64()).collect();
        assert_eq!(middle, [5.0, 7.5, 11.25, 16.875, 25.3125, 30.0, 30.0]);
        assert_eq!(backoff.delay(1, 0.0), Duration::from_millis(2500));
        assert!(backoff.delay(1, 0.999) < Duration::from_millis(7500));
        assert_eq!(backoff.delay(u32::MAX, 0.5), Duration::from_secs(30));
    }
}
