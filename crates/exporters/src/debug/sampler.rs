//! Which requests are written: the first few of each second, then each n-th, as zap's sampler does.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub(super) struct Sampler {
    initial: u64,
    thereafter: u64,
    state: Mutex<(Option<Instant>, u64)>,
}

impl Sampler {
    pub(super) fn new(initial: u64, thereafter: u64) -> Sampler {
        Sampler { initial, thereafter, state: Mutex::new((None, 0)) }
    }

    pub(super) fn takes(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let (began, seen) = &mut *state;
        if began.is_none_or(|began| now.duration_since(began) >= Duration::from_secs(1)) {
            (*began, *seen) = (Some(now), 0);
        }
        *seen += 1;
        *seen <= self.initial
            || (self.thereafter > 0 && (*seen - self.initial).is_multiple_of(self.thereafter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: ten requests in one second, then another second. Guarantee: the configured ones
    /// are written.
    #[test]
    fn the_first_and_each_nth_are_taken() {
        let start = Instant::now();
        let taken = |initial, thereafter| {
            let sampler = Sampler::new(initial, thereafter);
            (1..=10).filter(|_| sampler.takes(start)).count()
        };
        assert_eq!(taken(2, 1), 10);
        assert_eq!(taken(2, 4), 4);
        assert_eq!(taken(2, 0), 2);
        assert_eq!(taken(0, 0), 0);
        let sampler = Sampler::new(1, 0);
        assert!(sampler.takes(start) && !sampler.takes(start));
        assert!(sampler.takes(start + Duration::from_secs(1)));
    }
}
