//! Requests that the backend refuses for good: they are cut, down to the items at fault.

use std::time::Instant;

use sluice_otlp::SplitLimits;

use super::{Dispatcher, Moment, State};
use crate::dispatch::bisection::{Place, Refused};
use crate::dispatch::{Batch, Cause, Unit, Verdict, retry};

/// A batch that is cut, to which its parts owe what they have.
#[derive(Clone, Copy, Default)]
pub(super) struct Cut {
    pub(super) place: Option<Place>,
    pub(super) first_attempt: Option<Instant>,
    /// The time at which they may be sent. None: at once, ahead of everything else.
    pub(super) due: Option<Instant>,
}

impl<L> Dispatcher<L> {
    /// Takes the parts of a unit that was cut, in order. Each is sent as a request of its own.
    pub fn divided(&mut self, parts: Vec<Unit<L>>) {
        let parts = parts.into_iter().map(|part| Batch::new(vec![part]));
        self.take_parts(parts.collect(), self.cut);
    }

    pub(super) fn take_parts(&mut self, parts: Vec<Batch<L>>, of: Cut) {
        let Cut { place, first_attempt, due } = of;
        let parts = parts.into_iter().map(|part| Batch { first_attempt, ..part });
        match due {
            None => self.bisection.push(parts.collect(), place),
            Some(due) => parts.for_each(|part| drop(self.wait_until(part, due))),
        }
    }

    /// Items that the backend refused and that are at fault themselves. To be called after
    /// outcomes. `has_read_enough`: no unit can be offered before one is resolved.
    pub fn take_at_fault(&mut self, has_read_enough: bool) -> Vec<Refused<L>> {
        let is_last = has_read_enough && self.in_flight() == 0 && self.batcher.is_empty();
        self.bisection.take_at_fault(is_last)
    }

    pub(super) fn rejected(
        &mut self,
        batch: Batch<L>,
        cause: Cause,
        reason: String,
        at: Moment,
    ) -> Verdict<L> {
        if matches!(self.state, State::Outage(_)) {
            // The backend answers.
            self.open(at.now);
        }
        if self.policy.return_rejections && batch.units.len() == 1 {
            return Verdict::Dead { units: batch.units, cause, reason };
        }
        if self.policy.return_rejections || batch.items > 1 {
            if self.state != State::Open {
                self.probe_part(at);
            }
            return self.halve(batch, cause, reason);
        }
        self.refused_alone(batch, cause, reason, at)
    }

    /// The next probe is of a part of a batch that was refused.
    fn probe_part(&mut self, at: Moment) {
        let interval = retry::FAULT_BACKOFF.delay(self.probing.failures.max(1), at.random);
        self.probing.next = Some(at.now + interval / retry::FAULT_PARTS);
    }

    /// A single item was refused: it is at fault, or all data is.
    fn refused_alone(
        &mut self,
        mut batch: Batch<L>,
        cause: Cause,
        reason: String,
        at: Moment,
    ) -> Verdict<L> {
        self.bisection.note_refused();
        // Where order matters there is one request at a time, and no other way to send a part.
        let may_find_good = self.in_flight() > 0 || self.bisection.has_edges();
        let is_fault_of_all =
            self.bisection.is_long_run() && (self.policy.in_order || !may_find_good);
        if is_fault_of_all || self.state != State::Open {
            let items = self.bisection.items_in_a_row();
            let reason = format!("{items} items in a row refused and nothing taken: {reason}");
            batch.refused = Some(cause);
            for refused in self.bisection.take_back() {
                self.wait_until(refused, at.now);
            }
            let verdict = self.hold(batch, reason, retry::FAULT_BACKOFF, at);
            if self.bisection.has_edges() {
                self.probe_part(at);
            }
            return verdict;
        }
        self.bisection.keep(Refused { units: batch.units, cause, reason });
        Verdict::Kept
    }

    /// Later requests are smaller, for some time.
    pub(super) fn too_large(&mut self, batch: Batch<L>, reason: String, at: Moment) -> Verdict<L> {
        if matches!(self.state, State::Outage(_)) {
            // The backend answers.
            self.open(at.now);
        }
        let cause = Cause::TooLarge;
        if batch.items > 1 {
            self.request_size.note_too_large(batch.bytes);
            self.set_sizes();
            return self.halve(batch, cause, reason);
        }
        match self.policy.return_rejections {
            true => Verdict::Dead { units: batch.units, cause, reason },
            false => self.refused_alone(batch, cause, reason, at),
        }
    }

    /// Cuts a batch in two, which go out ahead of everything else, the first half first.
    pub(super) fn halve(
        &mut self,
        mut batch: Batch<L>,
        cause: Cause,
        reason: String,
    ) -> Verdict<L> {
        if batch.units.len() > 1 {
            let second = batch.units.split_off(batch.units.len() / 2);
            let cut = Cut { place: batch.place, first_attempt: batch.first_attempt, due: None };
            self.take_parts([batch.units, second].map(Batch::new).into(), cut);
            return Verdict::Kept;
        }
        match batch.units.pop() {
            Some(unit) if unit.items > 1 => {
                self.cut = Cut { place: batch.place, ..Cut::default() };
                let max_items = (unit.items as usize).div_ceil(2);
                let limits = SplitLimits { max_items, max_bytes: usize::MAX };
                Verdict::Divide { unit, limits, cause, reason }
            }
            last => Verdict::Dead { units: last.into_iter().collect(), cause, reason },
        }
    }
}
