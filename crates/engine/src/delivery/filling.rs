//! The time until a delivery's budget is spent, from the recent growth of its backlog.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The rate is taken over this time, or longer after a pause between measurements.
const WINDOW: Duration = Duration::from_secs(120);
/// The shortest time over which a rate is meaningful, and between two measurements.
const SPACING: Duration = Duration::from_secs(5);

/// Past lags, oldest first; larger ones that were drained are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    noted: VecDeque<(Instant, u64)>,
}

impl Filling {
    pub(crate) fn note(&mut self, now: Instant, lag_bytes: u64) {
        let age = |&(at, _): &(Instant, u64)| now.saturating_duration_since(at);
        while self.noted.get(1).is_some_and(|second| age(second) >= WINDOW) {
            self.noted.pop_front();
        }
        // After a larger backlog was drained, growth is measured anew.
        while self.noted.front().is_some_and(|&(_, first_bytes)| first_bytes > lag_bytes) {
            self.noted.pop_front();
        }
        if self.noted.back().is_none_or(|last| age(last) >= SPACING) {
            self.noted.push_back((now, lag_bytes));
        }
    }

    /// Notes the lag. Returns the seconds until it reaches the budget at the recent rate: 0 if
    /// nothing is left or frames are being dropped, infinity while the lag does not grow.
    pub(crate) fn seconds_left(
        &mut self,
        now: Instant,
        lag_bytes: u64,
        budget_bytes: u64,
        is_dropping: bool,
    ) -> f64 {
        self.note(now, lag_bytes);
        let Some(&(first_at, first_bytes)) = self.noted.front() else { return f64::INFINITY };
        let elapsed = now.saturating_duration_since(first_at);
        let grown = lag_bytes.saturating_sub(first_bytes) as f64;
        let left = budget_bytes.saturating_sub(lag_bytes) as f64;
        if left == 0.0 || is_dropping {
            0.0
        } else if grown == 0.0 || elapsed < SPACING {
            f64::INFINITY
        } else {
            left / grown * elapsed.as_secs_f64()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds left of a budget of 1,000 bytes, for lags given as (second, bytes).
    fn left(lags: &[(u64, u64)]) -> Vec<f64> {
        let (start, mut filling) = (Instant::now(), Filling::default());
        lags.iter()
            .map(|&(at, bytes)| {
                filling.seconds_left(start + Duration::from_secs(at), bytes, 1000, false)
            })
            .collect()
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
    fn an_outage_after_a_larger_backlog_was_drained_is_told() {
        assert_eq!(left(&[(0, 900), (10, 0), (20, 100), (30, 200)]), [NEVER, NEVER, 90.0, 80.0]);
    }

    #[test]
    fn nothing_is_left_while_frames_are_dropped() {
        let now = Instant::now();
        let mut filling = Filling::default();
        // The newest frame and those that are being sent always stay: the lag is below the budget.
        assert_eq!(filling.seconds_left(now, 900, 1000, true), 0.0);
        assert_eq!(filling.seconds_left(now + SPACING, 880, 1000, true), 0.0);
        assert_eq!(filling.seconds_left(now + SPACING * 2, 880, 1000, false), NEVER);
    }

    #[test]
    fn what_was_noted_before_the_first_scrape_counts() {
        let (start, mut filling) = (Instant::now(), Filling::default());
        (0..3).for_each(|second| filling.note(start + SPACING * second, u64::from(second) * 100));
        assert_eq!(filling.seconds_left(start + SPACING * 2, 200, 1000, false), 40.0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (start, mut filling) = (Instant::now(), Filling::default());
        for second in 0..10_000 {
            filling.seconds_left(start + Duration::from_secs(second), second, u64::MAX, false);
        }
        assert!(filling.noted.len() <= 26, "{}", filling.noted.len());
    }
}
