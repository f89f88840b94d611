//! The time from which on there is something to send. A time at which there is nothing would keep
//! the caller busy: it passes, and would be named again.

use std::time::Instant;

use super::{Dispatcher, State};

impl<L> Dispatcher<L> {
    /// The time from which on `next` has something, if nothing else happens: None if it will not.
    /// To be called when `next` has nothing.
    pub fn next_wake(&self) -> Option<Instant> {
        if self.concurrency.free() == 0 {
            return None;
        }
        if self.state != State::Open {
            return self.next_probe().filter(|_| self.in_flight() == 0);
        }
        if self.awaits_answers() {
            return self.first_never_refused().map(|(due, _)| due);
        }
        let retry = self.next_retry();
        let next_due = self.batcher.next_due().filter(|_| !self.policy.in_order || retry.is_none());
        [retry, next_due].into_iter().flatten().min()
    }

    /// The answers that are to come decide whether all data is at fault.
    pub(super) fn awaits_answers(&self) -> bool {
        self.bisection.is_long_run() && self.in_flight() > 0
    }

    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|(&(due, _), _)| due)
    }

    /// The time of the next probe. None if there is nothing to probe with.
    fn next_probe(&self) -> Option<Instant> {
        let looks = !self.policy.in_order && self.bisection.looks_now(true);
        let takes_all = looks || self.gathers_no_longer();
        let is_there = !self.waiting.is_empty()
            || self.bisection.len() > 0
            || self.batcher.ready_len() > 0
            || takes_all && !self.batcher.is_empty();
        if is_there {
            return self.probing.next;
        }
        let due = self.batcher.next_due()?;
        Some(self.probing.next.map_or(due, |probe| probe.max(due)))
    }
}
