//! How many requests may be under way: few while the CPU or the memory for receiving is short, then more and more again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Nobody is called if so many requests are under way with those whose turn it is. Measured: 32 requests of 190 kB are answered as
/// cheaply as 8, and 256 at half to two thirds of that rate.
pub(super) const FEW_REQUESTS: usize = 32;
/// If so many may be under way there is no bound.
const MANY_REQUESTS: usize = 1 << 12;
/// So much more may be under way after each look at which nothing was short. Not twice as many, or every third look would bring far
/// more than memory has room for, all of which would be refused.
const GROWTH_PART: usize = 8;

#[derive(Debug)]
pub(super) struct Room {
    requests: AtomicUsize,
    /// Since it was last looked at.
    was_memory_short: AtomicBool,
}

impl Default for Room {
    fn default() -> Self {
        Room { requests: AtomicUsize::new(usize::MAX), was_memory_short: AtomicBool::new(false) }
    }
}

impl Room {
    /// Whether more may begin beside so many requests.
    pub(super) fn is_left_beside(&self, requests: usize) -> bool {
        requests < self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.requests.load(Ordering::Relaxed) != usize::MAX
    }

    pub(super) fn note_memory_short(&self) {
        self.was_memory_short.store(true, Ordering::Relaxed);
        self.shrink();
    }

    pub(super) fn look(&self, is_cpu_bound: bool) {
        if is_cpu_bound | self.was_memory_short.swap(false, Ordering::Relaxed) {
            self.shrink();
        } else {
            // A shortage that is noted meanwhile is seen at the next look.
            let requests = self.requests.load(Ordering::Relaxed);
            let more = if requests < MANY_REQUESTS { requests + requests / GROWTH_PART } else { usize::MAX };
            self.requests.store(more, Ordering::Relaxed);
        }
    }

    pub(super) fn shrink(&self) {
        self.requests.store(FEW_REQUESTS, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn open(&self) {
        self.requests.store(usize::MAX, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_bound_until_something_is_short() {
        let room = Room::default();
        room.look(false);
        assert!(!room.is_bounded() && room.is_left_beside(1 << 20));
        room.look(true);
        assert!(room.is_bounded() && room.is_left_beside(FEW_REQUESTS - 1) && !room.is_left_beside(FEW_REQUESTS));
    }

    #[test]
    fn memory_that_is_short_counts_at_once_and_until_it_was_looked_at_without() {
        let room = Room::default();
        room.note_memory_short();
        assert!(!room.is_left_beside(FEW_REQUESTS));
        room.look(false);
        assert!(!room.is_left_beside(FEW_REQUESTS), "it was short meanwhile");
        room.look(false);
        assert!(room.is_left_beside(FEW_REQUESTS) && !room.is_left_beside(FEW_REQUESTS + FEW_REQUESTS / GROWTH_PART));
    }

    #[test]
    fn the_bound_ends_if_nothing_was_short_for_long() {
        let room = Room::default();
        room.look(true);
        let looks = (1..1000).find(|_| {
            room.look(false);
            !room.is_bounded()
        });
        // A look is 25 ms or more.
        assert!((30..60).contains(&looks.expect("it ends")), "{looks:?}");
    }
}
