//! Requests in order: none overtakes one that is to be sent again, because the backend refuses data
//! that is older than what it has. Only where it takes nothing of a long run of items, what follows
//! in order is tried in turn with the oldest: if that is taken, the run is at fault.

use std::time::Instant;

use super::{Dispatcher, State, WaitingPlace};
use crate::dispatch::Batch;
use crate::dispatch::bisection::Refused;

/// At most this many refused items are passed.
const PASSED_MAX: usize = 32 << 10;

impl<L> Dispatcher<L> {
    /// Whether one more unit is to be read that follows those that were refused.
    pub(super) fn wants_next_in_order(&self) -> bool {
        let has_next = !self.batcher.is_empty() || self.bisection.len() > 0;
        self.bisection.looks_elsewhere() && !has_next && self.waiting.len() < PASSED_MAX
    }

    pub(super) fn take_next_in_order(&mut self, now: Instant, probing: bool) -> Option<Batch<L>> {
        let passed = std::mem::take(&mut self.in_order);
        if !self.waiting.is_empty() {
            if probing && self.bisection.looks_elsewhere() && !passed.passes {
                self.batcher.close_all();
                if let Some(batch) = self.bisection.pop().or_else(|| self.batcher.pop()) {
                    self.in_order.passes = true;
                    return Some(batch);
                }
            }
            if !probing && self.next_retry().is_none_or(|due| now < due) {
                return None;
            }
            let (place, batch) = self.waiting.pop_first()?;
            self.in_order.place = probing.then_some(place);
            return Some(batch);
        }
        self.bisection.pop().or_else(|| self.take_gathered(now))
    }

    /// The backend took a request. If that comes after items that it refused, these are at fault.
    pub(super) fn give_up_passed(&mut self) {
        if !std::mem::take(&mut self.in_order).passes {
            return;
        }
        let State::Held(reason) = &self.state else { return };
        let is_passed =
            |(key, batch): (&WaitingPlace, &Batch<L>)| batch.refused.map(|cause| (*key, cause));
        let passed: Vec<_> = self.waiting.iter().filter_map(is_passed).collect();
        for (key, cause) in passed {
            if let Some(Batch { units, .. }) = self.waiting.remove(&key) {
                self.bisection.keep(Refused { units, cause, reason: reason.clone() });
            }
        }
    }
}
