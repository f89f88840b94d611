//! How much may be under way: little while the CPU or the memory for receiving is short, then more and more again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::cpu::CpuLoad;

/// What may be under way where something is short: so many requests, or a request on each of 8 connections if they have 190 kB.
/// Measured with 256 senders of those, which have a connection each: with 8 an item costs a fifth less than with 32, with 4 as much as
/// with 16. What is under way fits into the caches next to the core then: of 32, each of which arrives in pieces, the first ones have left
/// them when the last come. With 4 connections of 8 requests it is the other way round, 8 cost a tenth more than 32: a connection's
/// requests arrive one after the other, and the more there are, the more are sent together.
pub(super) const LEAST_WEIGHT: usize = 32;
/// A connection weighs one, and one more for each so many bytes of a request.
const BYTES_OF_WEIGHT: usize = 48 << 10;
/// If so much may be under way there is no bound.
const NO_BOUND_WEIGHT: usize = 1 << 12;
/// By so much what may be under way grows after a window in which nothing was short, and shrinks after one in which the CPU was. Not more,
/// or every few windows would bring more than memory has room for, all of which would be refused; and it comes to rest where the CPU has
/// just enough to do, which takes more requests where each waits for a backend.
const STEP_PART: usize = 8;

pub(super) fn weight_of_bytes(bytes: usize) -> usize {
    1 + bytes / BYTES_OF_WEIGHT
}

#[derive(Debug)]
pub(super) struct InFlightLimit {
    weight: AtomicUsize,
    /// Since it was last looked at.
    was_memory_short: AtomicBool,
}

impl Default for InFlightLimit {
    fn default() -> Self {
        InFlightLimit { weight: AtomicUsize::new(usize::MAX), was_memory_short: AtomicBool::new(false) }
    }
}

impl InFlightLimit {
    /// Whether more may begin beside requests of this weight.
    pub(super) fn is_left_beside(&self, weight: usize) -> bool {
        weight < self.weight.load(Ordering::Relaxed)
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.weight.load(Ordering::Relaxed) != usize::MAX
    }

    pub(super) fn note_memory_short(&self) {
        self.was_memory_short.store(true, Ordering::Relaxed);
        self.close();
    }

    /// A window has ended. A shortage of memory that is noted meanwhile is seen after the next.
    pub(super) fn look(&self, cpu: CpuLoad) {
        let weight = self.weight.load(Ordering::Relaxed);
        let next = match cpu {
            _ if self.was_memory_short.swap(false, Ordering::Relaxed) => LEAST_WEIGHT,
            CpuLoad::Full if weight == usize::MAX => LEAST_WEIGHT,
            CpuLoad::Full => (weight - weight / STEP_PART).max(LEAST_WEIGHT),
            CpuLoad::High => weight,
            CpuLoad::Low if weight < NO_BOUND_WEIGHT => weight + weight / STEP_PART,
            CpuLoad::Low => usize::MAX,
        };
        self.weight.store(next, Ordering::Relaxed);
    }

    /// As little as possible may be under way.
    pub(super) fn close(&self) {
        self.weight.store(LEAST_WEIGHT, Ordering::Relaxed);
    }

    pub(super) fn open(&self) {
        self.weight.store(usize::MAX, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_bound_until_something_is_short() {
        let limit = InFlightLimit::default();
        limit.look(CpuLoad::Low);
        assert!(!limit.is_bounded() && limit.is_left_beside(1 << 20));
        limit.look(CpuLoad::Full);
        assert!(limit.is_bounded() && limit.is_left_beside(LEAST_WEIGHT - 1) && !limit.is_left_beside(LEAST_WEIGHT));
    }

    #[test]
    fn memory_that_is_short_counts_at_once_and_until_a_window_has_ended_without() {
        let limit = InFlightLimit::default();
        limit.note_memory_short();
        assert!(!limit.is_left_beside(LEAST_WEIGHT));
        limit.look(CpuLoad::Low);
        assert!(!limit.is_left_beside(LEAST_WEIGHT), "it was short meanwhile");
        limit.look(CpuLoad::Low);
        assert!(limit.is_left_beside(LEAST_WEIGHT) && !limit.is_left_beside(LEAST_WEIGHT + LEAST_WEIGHT / STEP_PART));
    }

    #[test]
    fn the_bound_ends_if_nothing_was_short_for_long() {
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
        let weights: Vec<usize> = (0..200)
            .map(|_| {
                let weight = limit.weight.load(Ordering::Relaxed);
                limit.look(if weight >= 300 { CpuLoad::Full } else { CpuLoad::Low });
                weight
            })
            .collect();
        assert!(weights[100..].iter().all(|weight| (250..350).contains(weight)), "{weights:?}");
        let weight = limit.weight.load(Ordering::Relaxed);
        (0..10).for_each(|_| limit.look(CpuLoad::High));
        assert_eq!(limit.weight.load(Ordering::Relaxed), weight, "neither short nor idle");
    }
}
