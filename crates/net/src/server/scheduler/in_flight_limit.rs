//! The limit on requests in flight: low while the CPU is the bottleneck, then rising again. `docs/decisions/031-in-flight-limit.md` has the reasons for the figures.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::cpu::CpuLoad;

/// The lowest limit.
pub(super) const LEAST_REQUESTS: usize = 32;
/// From here on there is no limit.
const UNLIMITED_REQUESTS: usize = 1 << 12;
/// The limit rises and falls by this part of it a window. Larger steps would let in more at once
/// than memory has room for.
const STEP_PART: usize = 8;

/// Of the limit: there is none.
const UNBOUNDED: usize = 0;

#[derive(Debug, Default)]
pub(super) struct InFlightLimit {
    requests: AtomicUsize,
}

impl InFlightLimit {
    /// Whether one more connection may be read from beside others with so many requests.
    pub(super) fn admits_beside(&self, requests: usize) -> bool {
        !self.is_bounded() || requests < self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.requests.load(Ordering::Relaxed) != UNBOUNDED
    }

    /// A window has ended.
    pub(super) fn look(&self, cpu: CpuLoad) {
        let requests = self.requests.load(Ordering::Relaxed);
        let next = match cpu {
            CpuLoad::Full => (requests - requests / STEP_PART).max(LEAST_REQUESTS),
            CpuLoad::High => requests,
            // Above the highest limit there is none; none stays none.
            CpuLoad::Low | CpuLoad::Idle if requests >= UNLIMITED_REQUESTS => UNBOUNDED,
            CpuLoad::Low | CpuLoad::Idle => requests + requests / STEP_PART,
        };
        self.requests.store(next, Ordering::Relaxed);
    }

    pub(super) fn open(&self) {
        self.requests.store(UNBOUNDED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_limit_until_something_is_short() {
        let limit = InFlightLimit::default();
        limit.look(CpuLoad::Low);
        assert!(!limit.is_bounded() && limit.admits_beside(1 << 20));
        limit.look(CpuLoad::Full);
        assert!(
            limit.is_bounded()
                && limit.admits_beside(LEAST_REQUESTS - 1)
                && !limit.admits_beside(LEAST_REQUESTS)
        );
    }

    #[test]
    fn the_limit_ends_if_nothing_was_short_for_long() {
        let limit = InFlightLimit::default();
        limit.look(CpuLoad::Full);
        let looks = (1..1000).find(|_| {
            limit.look(CpuLoad::Low);
            !limit.is_bounded()
        });
        // A window is 25 ms or longer.
        assert!((30..60).contains(&looks.expect("it ends")), "{looks:?}");
    }

    /// Requests that wait for a backend keep the CPU busy only if there are many.
    #[test]
    fn it_comes_to_rest_where_the_cpu_has_just_enough_to_do() {
        let limit = InFlightLimit::default();
        limit.look(CpuLoad::Full);
        let limits: Vec<usize> = (0..200)
            .map(|_| {
                let requests = limit.requests.load(Ordering::Relaxed);
                limit.look(if requests >= 300 { CpuLoad::Full } else { CpuLoad::Low });
                requests
            })
            .collect();
        assert!(limits[100..].iter().all(|limit| (250..350).contains(limit)), "{limits:?}");
        let requests = limit.requests.load(Ordering::Relaxed);
        (0..10).for_each(|_| limit.look(CpuLoad::High));
        assert_eq!(limit.requests.load(Ordering::Relaxed), requests, "neither short nor idle");
    }
}
