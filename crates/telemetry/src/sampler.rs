//! Selects some of many alike events, as zap's sampler does.

use std::time::Instant;

use sluice_config::document::LogSampling;

/// The events within a tick.
#[derive(Default)]
pub struct Sampler {
    began: Option<Instant>,
    seen: u64,
}

impl Sampler {
    /// Takes the first few of each tick, then each n-th.
    pub fn takes(&mut self, sampling: LogSampling, now: Instant) -> bool {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= sampling.tick) {
            *self = Sampler { began: Some(now), seen: 0 };
        }
        self.seen += 1;
        let beyond = self.seen.saturating_sub(sampling.initial);
        beyond == 0 || (sampling.thereafter > 0 && beyond.is_multiple_of(sampling.thereafter))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sampling(initial: u64, thereafter: u64) -> LogSampling {
        LogSampling { tick: Duration::from_secs(1), initial, thereafter }
    }

    /// Scenario: ten requests in one second, then another second. Guarantee: the configured ones
    /// are taken.
    #[test]
    fn the_first_and_each_nth_are_taken() {
        let start = Instant::now();
        let taken = |initial, thereafter| {
            let mut sampler = Sampler::default();
            (1..=10).filter(|_| sampler.takes(sampling(initial, thereafter), start)).count()
        };
        assert_eq!(taken(2, 1), 10);
        assert_eq!(taken(2, 4), 4);
        assert_eq!(taken(2, 0), 2);
        assert_eq!(taken(0, 0), 0);
        let (mut sampler, once) = (Sampler::default(), sampling(1, 0));
        assert!(sampler.takes(once, start) && !sampler.takes(once, start));
        assert!(sampler.takes(once, start + once.tick));
    }
}
