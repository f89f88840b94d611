//! How long a delivery's budget lasts. Measured from one scrape of the metrics to the next: where nobody asks it costs nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Over which the rate is taken; longer if nobody asked for longer.
const WINDOW: Duration = Duration::from_secs(120);
/// The shortest time over which a rate says anything, and between two measurements that are kept.
const SPACING: Duration = Duration::from_secs(5);

/// What was held at times, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Filling(VecDeque<(Instant, u64)>);

impl Filling {
    /// Takes note of what is held. Returns the seconds until it is the whole budget, at the rate of late: infinite while it does not grow.
    pub(crate) fn seconds_left(&mut self, now: Instant, held_bytes: u64, budget_bytes: u64) -> f64 {
        let age = |&(at, _): &(Instant, u64)| now.saturating_duration_since(at);
        while self.0.get(1).is_some_and(|second| age(second) >= WINDOW) {
            self.0.pop_front();
        }
        if self.0.back().is_none_or(|last| age(last) >= SPACING) {
            self.0.push_back((now, held_bytes));
        }
        let first = self.0[0];
        let grown = held_bytes.saturating_sub(first.1) as f64;
        let left = budget_bytes.saturating_sub(held_bytes) as f64;
        if left == 0.0 {
            0.0
        } else if grown == 0.0 || age(&first) < SPACING {
            f64::INFINITY
        } else {
            left / grown * age(&first).as_secs_f64()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said when these amounts are held at these seconds, of a budget of 1,000.
    fn left(held: &[(u64, u64)]) -> Vec<f64> {
        let (start, mut filling) = (Instant::now(), Filling::default());
        held.iter().map(|&(at, bytes)| filling.seconds_left(start + Duration::from_secs(at), bytes, 1000)).collect()
    }

    const NEVER: f64 = f64::INFINITY;

    #[test]
    fn a_backlog_that_grows_fills_the_budget_and_one_that_does_not_never_does() {
        assert_eq!(
            left(&[(0, 0), (10, 100), (20, 200), (30, 200), (40, 1000), (50, 0)]),
            [NEVER, 90.0, 80.0, 120.0, 0.0, NEVER]
        );
        assert_eq!(left(&[(0, 1000)]), [0.0], "full without growing");
        assert_eq!(left(&[(0, 0), (1, 500)]), [NEVER, NEVER], "a second says nothing");
    }

    #[test]
    fn what_was_long_ago_does_not_count_and_scrapes_may_be_far_apart() {
        let quiet_then_growing = left(&[(0, 0), (200, 0), (260, 0), (320, 120), (380, 240)]);
        assert_eq!(quiet_then_growing.last(), Some(&380.0), "2 bytes a second since 260 s");
        assert_eq!(left(&[(0, 0), (600, 600)]), [NEVER, 400.0]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (start, mut filling) = (Instant::now(), Filling::default());
        for second in 0..10_000 {
            filling.seconds_left(start + Duration::from_secs(second), second, u64::MAX);
        }
        assert!(filling.0.len() <= 26, "{}", filling.0.len());
    }
}
