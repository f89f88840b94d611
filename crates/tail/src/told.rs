//! Problems that were told, so that none fills the log.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Problems, and when each was told.
#[derive(Default)]
pub(crate) struct Told(HashMap<String, Instant>);

const MAX: usize = 1000;
const AGAIN_AFTER: Duration = Duration::from_secs(3600);

impl Told {
    /// Whether a problem is to be told: once an hour, and at most a thousand of them.
    pub(crate) fn is_news(&mut self, problem: String, now: Instant) -> bool {
        self.0.retain(|_, told_at| now < *told_at + AGAIN_AFTER);
        if self.0.len() >= MAX || self.0.contains_key(&problem) {
            return false;
        }
        self.0.insert(problem, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a problem that is met every minute. Guarantee: it is told once an hour, and its
    /// repetitions do not put that off.
    #[test]
    fn a_problem_that_lasts_is_told_every_hour() {
        let (mut told, start) = (Told::default(), Instant::now());
        let mut told_at = Vec::new();
        for minute in 0..=150 {
            let now = start + Duration::from_secs(60 * minute);
            if told.is_news("a".to_owned(), now) {
                told_at.push(minute);
            }
        }
        assert_eq!(told_at, [0, 60, 120]);
    }

    #[test]
    fn a_thousand_problems_are_told_in_an_hour() {
        let (mut told, start) = (Told::default(), Instant::now());
        let news = |told: &mut Told, now| {
            (0..1500).filter(|number: &u32| told.is_news(number.to_string(), now)).count()
        };
        assert_eq!(news(&mut told, start), MAX);
        assert_eq!(news(&mut told, start + AGAIN_AFTER), MAX);
    }
}
