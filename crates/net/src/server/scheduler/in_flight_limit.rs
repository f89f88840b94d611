//! The limit on requests in flight: low while the CPU or the memory for receiving is short, then
//! rising again. `docs/decisions/031-in-flight-limit.md` has the reasons for the figures.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::cpu::CpuLoad;

/// The lowest limit: this many requests, or one request of 190 kB on each of 8 connections.
pub(super) const LEAST_WEIGHT: usize = 32;
/// A connection weighs one, plus one for each block of this many bytes of a request.
const BYTES_OF_WEIGHT: usize = 48 << 10;
/// From here on there is no limit.
const UNLIMITED_WEIGHT: usize = 1 << 12;
/// The limit rises and falls by this part of it a window. Larger steps would let in more at once
/// than memory has room for.
const STEP_PART: usize = 8;

pub(super) fn weight_of_bytes(bytes: usize) -> usize {
    1 + bytes / BYTES_OF_WEIGHT
}

/// The value of the limit if there is none.
const UNBOUNDED: usize = 0;

#[derive(Debug, Default)]
pub(super) struct InFlightLimit {
    weight: AtomicUsize,
    /// Memory was found short in the current window.
    was_memory_short: AtomicBool,
    /// Requests waited for the CPU in the current window.
    was_cpu_awaited: AtomicBool,
    /// The same, or in the last one.
    is_cpu_awaited: AtomicBool,
}

impl InFlightLimit {
    /// Whether one more connection may be read from beside connections of this weight.
    pub(super) fn admits_beside(&self, weight: usize) -> bool {
        !self.is_bounded() || weight < self.weight.load(Ordering::Relaxed)
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.weight.load(Ordering::Relaxed) != UNBOUNDED
    }

    pub(super) fn note_memory_short(&self) {
        self.was_memory_short.store(true, Ordering::Relaxed);
        self.weight.store(LEAST_WEIGHT, Ordering::Relaxed);
    }

    pub(super) fn note_waits_for_cpu(&self) {
        self.was_cpu_awaited.store(true, Ordering::Relaxed);
        self.is_cpu_awaited.store(true, Ordering::Relaxed);
    }

    /// Whether requests wait for the CPU.
    pub(super) fn is_cpu_awaited(&self) -> bool {
        self.is_cpu_awaited.load(Ordering::Relaxed)
    }

    /// A window has ended. Memory that is found short meanwhile counts in the next one.
    pub(super) fn adapt(&self, cpu: CpuLoad) {
        self.is_cpu_awaited
            .store(self.was_cpu_awaited.swap(false, Ordering::Relaxed), Ordering::Relaxed);
        let weight = self.weight.load(Ordering::Relaxed);
        let next = match cpu {
            _ if self.was_memory_short.swap(false, Ordering::Relaxed) => LEAST_WEIGHT,
            CpuLoad::Full => (weight - weight / STEP_PART).max(LEAST_WEIGHT),
            CpuLoad::High => weight,
            // Above the highest limit there is none; none stays none.
            CpuLoad::Low | CpuLoad::Idle if weight >= UNLIMITED_WEIGHT => UNBOUNDED,
            CpuLoad::Low | CpuLoad::Idle => weight + weight / STEP_PART,
        };
        self.weight.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_limit_until_something_is_short() {
        let limit = InFlightLimit::default();
        limit.adapt(CpuLoad::Low);
        assert!(!limit.is_bounded() && limit.admits_beside(1 << 20));
        limit.adapt(CpuLoad::Full);
        assert!(
            limit.is_bounded()
                && limit.admits_beside(LEAST_WEIGHT - 1)
                && !limit.admits_beside(LEAST_WEIGHT)
        );
    }

    #[test]
    fn memory_that_is_short_counts_at_once_and_until_a_window_has_ended_without() {
        let limit = InFlightLimit::default();
        limit.note_memory_short();
        assert!(!limit.admits_beside(LEAST_WEIGHT));
        limit.adapt(CpuLoad::Low);
        assert!(!limit.admits_beside(LEAST_WEIGHT), "it was short meanwhile");
        limit.adapt(CpuLoad::Low);
        assert!(
            limit.admits_beside(LEAST_WEIGHT)
                && !limit.admits_beside(LEAST_WEIGHT + LEAST_WEIGHT / STEP_PART)
        );
    }

    #[test]
    fn requests_wait_for_the_cpu_until_a_window_has_ended_without() {
        let limit = InFlightLimit::default();
        limit.note_waits_for_cpu();
        limit.adapt(CpuLoad::Full);
        assert!(limit.is_cpu_awaited());
        limit.adapt(CpuLoad::Full);
        assert!(!limit.is_cpu_awaited());
    }

    #[test]
    fn the_limit_ends_if_nothing_was_short_for_long() {
        let limit = InFlightLimit::default();
        limit.adapt(CpuLoad::Full);
        let windows = (1..1000).find(|_| {
            limit.adapt(CpuLoad::Low);
            !limit.is_bounded()
        });
        // A window is 25 ms or longer.
        assert!((30..60).contains(&windows.expect("it ends")), "{windows:?}");
    }

    /// Requests that wait for a backend keep the CPU busy only if there are many.
    #[test]
    fn it_comes_to_rest_where_the_cpu_has_just_enough_to_do() {
        let limit = InFlightLimit::default();
        limit.adapt(CpuLoad::Full);
        let weights: Vec<usize> = (0..200)
            .map(|_| {
                let weight = limit.weight.load(Ordering::Relaxed);
                limit.adapt(if weight >= 300 { CpuLoad::Full } else { CpuLoad::Low });
                weight
            })
            .collect();
        assert!(weights[100..].iter().all(|weight| (250..350).contains(weight)), "{weights:?}");
        let weight = limit.weight.load(Ordering::Relaxed);
        (0..10).for_each(|_| limit.adapt(CpuLoad::High));
        assert_eq!(limit.weight.load(Ordering::Relaxed), weight, "neither short nor idle");
    }
}
