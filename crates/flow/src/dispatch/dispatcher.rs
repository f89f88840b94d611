//! The state of one delivery: which batch goes next, and the effect of an outcome.

mod in_order;
mod late;
mod refused;
mod request_size;
mod sizes;
mod wake;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::batcher::{BatchPolicy, Batcher, Trigger};
use super::bisection::Bisection;
use super::concurrency::{Concurrency, ConcurrencyLimits};
use super::retry::{self, Backoff, RetryPolicy};
use super::verdict::{Cause, Verdict};
use super::{Batch, Unit};
use crate::export::Outcome;
use crate::taken_share::TakenShare;
use late::LateRequests;
use refused::Cut;
use request_size::{RequestSize, TAKEN_BEFORE_LARGER};

pub use late::Late;

/// Longest delay that a backend may ask for: a larger one could overflow the clock.
const ASKED_DELAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The same where all data waits for one request: a probe, or requests in order.
const ASKED_OF_ALL_MAX: Duration = Duration::from_secs(5 * 60);

/// Probes alternate among this many batches: one that stays refused says nothing of the rest.
const PROBE_CANDIDATES: usize = 4;
/// Among this many waiting batches one is sought that may be shed.
const SHED_CANDIDATES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispatchPolicy {
    pub batch: BatchPolicy,
    pub retry: RetryPolicy,
    pub concurrency: ConcurrencyLimits,
    /// The sender of a refused frame still waits and gets the answer (a sole delivery under
    /// `buffer.ack: delivered`): requests are bisected down to frames, never within one, and no
    /// rejection holds the delivery.
    pub return_rejections: bool,
    /// One request at a time, and none overtakes one that is to be sent again: the backend refuses
    /// data that is older than what it has.
    pub in_order: bool,
    /// Requests that are late again and again get smaller, down to this many items. None: they
    /// are sent again as they are.
    pub least_items: Option<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Open,
    /// An unbroken run of failures, with the last reason: one probe at a time.
    Outage(String),
    /// A fault that does not pass by itself: credentials, or a fault of all data. One probe at a
    /// time, nothing is dropped.
    Held(String),
}

#[derive(Default)]
struct Probing {
    failures: u32,
    /// Earliest time of the next probe; None while one is in flight.
    next: Option<Instant>,
    /// Data has come since the last probe, and before the last one since the one before.
    has_fresh: bool,
    had_fresh: bool,
    /// The last probe was a batch that was never refused for good.
    was_never_refused: bool,
}

/// A place among batches that wait: the time at which it may be sent again, and a number.
type WaitingPlace = (Instant, u64);

/// While a delivery in order is held.
#[derive(Default)]
struct Passing {
    /// The request in flight comes after refused ones that wait.
    passes: bool,
    /// The place of the request in flight among those that wait.
    place: Option<WaitingPlace>,
}

impl Passing {
    /// The place to which the request in flight returns, if it had one.
    fn old_place(&mut self) -> Option<WaitingPlace> {
        self.place.take()
    }
}

/// Time of an outcome, and a number uniform in 0..1.
#[derive(Clone, Copy)]
struct Moment {
    now: Instant,
    random: f64,
}

pub struct Dispatcher<L> {
    policy: DispatchPolicy,
    batcher: Batcher<L>,
    concurrency: Concurrency,
    request_size: RequestSize,
    late: LateRequests,
    /// Refused batches by the time at which they may be sent again. They occupy no slot.
    waiting: BTreeMap<WaitingPlace, Batch<L>>,
    /// Parts of refused batches: sent before anything else.
    bisection: Bisection<L>,
    /// The unit that is being cut.
    cut: Cut,
    waiting_sequence: u64,
    state: State,
    probing: Probing,
    in_order: Passing,
    taken_share: TakenShare<{ retry::TAKEN_SHARE_REQUESTS }>,
    failures_in_a_row: u32,
    /// Share of its requests that the backend took before those failures, 0 to 1.
    share_before_failures: f64,
    draining: bool,
}

impl<L> Dispatcher<L> {
    pub fn new(policy: DispatchPolicy) -> Self {
        let concurrency = match policy.in_order {
            true => ConcurrencyLimits { initial: 1, max: 1 },
            false => policy.concurrency,
        };
        let mut dispatcher = Dispatcher {
            policy,
            batcher: Batcher::new(policy.batch),
            concurrency: Concurrency::new(concurrency),
            request_size: RequestSize::new(1, policy.batch.max_bytes, TAKEN_BEFORE_LARGER),
            late: LateRequests::new(policy.least_items, policy.batch.max_items),
            waiting: BTreeMap::new(),
            bisection: Bisection::default(),
            cut: Cut::default(),
            waiting_sequence: 0,
            state: State::Open,
            probing: Probing::default(),
            in_order: Passing::default(),
            taken_share: TakenShare::default(),
            failures_in_a_row: 0,
            share_before_failures: 1.0,
            draining: false,
        };
        dispatcher.set_sizes();
        dispatcher
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn returns_rejections(&self) -> bool {
        self.policy.return_rejections
    }

    pub fn in_flight(&self) -> usize {
        self.concurrency.in_flight()
    }

    pub fn concurrency_limit(&self) -> usize {
        self.concurrency.limit()
    }

    pub fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// True if every unit that was offered is resolved.
    pub fn is_idle(&self) -> bool {
        self.batcher.is_empty()
            && self.waiting.is_empty()
            && self.bisection.is_over()
            && self.in_flight() == 0
    }

    /// True if another unit should be read. Unread frames cost only their space in the log.
    pub fn wants_more(&self) -> bool {
        let backlog = self.batcher.ready_len() + self.bisection.len();
        match self.state {
            State::Open => backlog < self.concurrency.free().max(1) || self.wants_ahead(),
            State::Outage(_) | State::Held(_) => {
                let is_short = backlog == 0 && self.waiting.len() < PROBE_CANDIDATES;
                self.in_flight() == 0 && (is_short || self.wants_ahead())
            }
        }
    }

    /// True if more is read only to find data that the backend takes: not worth much memory.
    pub fn only_looks_ahead(&self) -> bool {
        self.wants_ahead() && !self.batcher.is_empty()
    }

    fn wants_ahead(&self) -> bool {
        let is_held = self.state != State::Open;
        if self.policy.in_order {
            return is_held && self.wants_next_in_order();
        }
        self.bisection.wants_ahead(self.batcher.units_len(), self.waiting.len(), is_held)
    }

    pub fn offer(&mut self, unit: Unit<L>, now: Instant) {
        self.batcher.push(unit, now);
        if self.state != State::Open && self.bisection.looks_elsewhere() {
            self.probing.has_fresh = true;
            // After a time without new data, the first is looked at soon.
            if let Some(next) = self.probing.next.as_mut().filter(|_| !self.probing.had_fresh) {
                *next = (*next).min(now + retry::FAULT_BACKOFF.initial);
            }
        }
    }

    /// Sends all batches from now on without gathering more units.
    pub fn drain(&mut self) {
        self.draining = true;
        self.batcher.close_all();
    }

    /// The next batch that is due, if there is a slot. The caller reports to `note_outcome`.
    pub fn next(&mut self, now: Instant) -> Option<Batch<L>> {
        if self.concurrency.free() == 0 {
            return None;
        }
        let probing = self.state != State::Open;
        if probing && (self.in_flight() > 0 || self.probing.next.is_some_and(|next| now < next)) {
            return None;
        }
        let mut batch = self.take_next(now, probing)?;
        batch.attempts += 1;
        batch.first_attempt.get_or_insert(now);
        self.probing.next = None;
        self.probing.had_fresh = std::mem::take(&mut self.probing.has_fresh);
        self.concurrency.start(now);
        Some(batch)
    }

    fn take_next(&mut self, now: Instant, probing: bool) -> Option<Batch<L>> {
        if self.policy.in_order {
            return self.take_next_in_order(now, probing);
        }
        if self.bisection.items_in_a_row() > 0 {
            if let Some(batch) = self.take_never_refused(now, probing) {
                return Some(batch);
            }
            if self.awaits_answers() {
                return None;
            }
            if (probing || self.bisection.is_long_run())
                && let Some(batch) = self.bisection.pop_edge()
            {
                return Some(batch);
            }
        }
        let is_first_fresh = self.probing.has_fresh && !self.probing.had_fresh;
        if self.bisection.looks_now(probing)
            && let Some(batch) = self.bisection.pop_elsewhere(&mut self.batcher, is_first_fresh)
        {
            return Some(batch);
        }
        if let Some(batch) = self.bisection.pop() {
            return Some(batch);
        }
        // A probe is the oldest batch, due or not: only the probes' own pace counts then.
        if self.next_retry().is_some_and(|due| probing || due <= now) {
            return self.waiting.pop_first().map(|(_, batch)| batch);
        }
        self.take_gathered(now)
    }

    /// The first batch that waits because the backend was not able to take it: it may be good, and
    /// precedes what was refused. Of probes, each second one at most.
    fn take_never_refused(&mut self, now: Instant, probing: bool) -> Option<Batch<L>> {
        let is_turn = !std::mem::take(&mut self.probing.was_never_refused);
        let may_go = |due: Instant| if probing { is_turn } else { due <= now };
        let place = self.first_never_refused().filter(|(due, _)| may_go(*due))?;
        self.probing.was_never_refused = probing;
        self.waiting.remove(&place)
    }

    fn first_never_refused(&self) -> Option<WaitingPlace> {
        let mut waiting = self.waiting.iter().filter(|(_, batch)| batch.refused.is_none());
        waiting.next().map(|(&place, _)| place)
    }

    /// Units that gather are sent at once. With nothing in flight, gathering would only add
    /// latency: others gather while this batch is in flight.
    fn gathers_no_longer(&self) -> bool {
        let lingers = matches!(self.policy.batch.trigger, Trigger::Linger(_));
        self.draining || lingers && self.in_flight() == 0
    }

    fn take_gathered(&mut self, now: Instant) -> Option<Batch<L>> {
        if self.gathers_no_longer() {
            self.batcher.close_all();
        } else {
            self.batcher.close_due(now);
        }
        self.batcher.pop()
    }

    /// Applies the outcome of a batch. `random` is uniform in 0..1.
    pub fn note_outcome(
        &mut self,
        batch: Batch<L>,
        outcome: Outcome,
        now: Instant,
        random: f64,
    ) -> Verdict<L> {
        self.concurrency.finish(if outcome.is_taken() { batch.bytes as u64 } else { 0 }, now);
        if !matches!(outcome, Outcome::RetryAfter { .. }) {
            self.failures_in_a_row = 0;
        }
        let at = Moment { now, random };
        let (rejected_items, reason) = match outcome {
            Outcome::Delivered => (0, None),
            // No backend can refuse more than it was sent.
            Outcome::PartlyRejected { items, reason } => (items.min(batch.items), Some(reason)),
            Outcome::RetryAfter { delay, reason } => {
                return self.retry(batch, delay, reason, at);
            }
            Outcome::Misconfigured { reason } => {
                return self.hold(batch, reason, retry::HOLD_BACKOFF, at);
            }
            Outcome::TooLarge { reason } => {
                return self.too_large(batch, reason, at);
            }
            Outcome::Overlaps { reason } => {
                if self.state != State::Open {
                    self.open(now);
                }
                return self.halve(batch, Cause::Rejected, reason);
            }
            Outcome::Rejected { reason } => {
                return self.rejected(batch, Cause::Rejected, reason, at);
            }
            Outcome::Failed { reason } => return self.rejected(batch, Cause::Failed, reason, at),
        };
        self.note_size_taken(&batch);
        self.note_delivered(&batch, now);
        Verdict::Delivered { units: batch.units, rejected_items, reason }
    }

    /// Applies that a batch is too large for its exporter to encode, or has too many ranges to
    /// name. This says nothing of what the backend takes.
    pub fn note_unpackable(&mut self, batch: Batch<L>, reason: String, now: Instant) -> Verdict<L> {
        self.concurrency.finish(0, now);
        self.halve(batch, Cause::TooLarge, reason)
    }

    /// Removes the first batch that waits for a retry and that `may_go`. Only a bounded number of
    /// batches is checked.
    pub fn shed_oldest(&mut self, may_go: impl Fn(&Batch<L>) -> bool) -> Option<Batch<L>> {
        let mut candidates = self.waiting.iter().take(SHED_CANDIDATES);
        let key = candidates.find(|(_, batch)| may_go(batch)).map(|(key, _)| *key)?;
        self.waiting.remove(&key)
    }

    /// All units that are not in flight.
    pub fn queued_mut(&mut self) -> impl Iterator<Item = &mut Unit<L>> {
        let waiting = self.waiting.values_mut().flat_map(|batch| &mut batch.units);
        self.batcher.units_mut().chain(waiting).chain(self.bisection.units_mut())
    }

    /// Frees the slot of a batch that is handed back to its senders. This says nothing about the
    /// backend: the next batch may be sent at once.
    pub fn hand_back(&mut self, now: Instant) {
        self.concurrency.finish(0, now);
        if self.state != State::Open {
            self.probing.next.get_or_insert(now);
        }
    }

    fn note_delivered(&mut self, batch: &Batch<L>, now: Instant) {
        self.taken_share.note(true);
        self.give_up_passed();
        self.bisection.note_taken(batch.looked_at, batch.place);
        if self.state != State::Open {
            self.open(now);
        }
    }

    fn open(&mut self, now: Instant) {
        self.state = State::Open;
        self.probing = Probing::default();
        if matches!(self.policy.retry, RetryPolicy::Adaptive { .. }) {
            // They waited for the backend, not because of their own delays.
            let waiting = std::mem::take(&mut self.waiting).into_iter();
            self.waiting =
                waiting.map(|((due, number), batch)| ((due.min(now), number), batch)).collect();
        }
    }

    fn retry(
        &mut self,
        batch: Batch<L>,
        asked: Option<Duration>,
        reason: String,
        at: Moment,
    ) -> Verdict<L> {
        if self.failures_in_a_row == 0 {
            self.share_before_failures = self.taken_share.get();
        }
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.taken_share.note(false);
        let (backoff, max_elapsed) = match self.policy.retry {
            RetryPolicy::Adaptive { backoff, ceiling_while_delivering: ceiling } => {
                let max = retry::ceiling(self.taken_share.get(), backoff.initial, ceiling);
                (Backoff { max, ..backoff }, None)
            }
            RetryPolicy::Explicit { backoff, max_elapsed } => (backoff, max_elapsed),
            RetryPolicy::Disabled => {
                let reason = format!("not retried (retry_on_failure is disabled): {reason}");
                let cause = Cause::NotRetried { asked };
                return Verdict::Dead { units: batch.units, cause, reason };
            }
        };
        let asked_max = if self.policy.in_order { ASKED_OF_ALL_MAX } else { ASKED_DELAY_MAX };
        let asked = asked.map(|it| it.min(asked_max));
        let own = backoff.delay(batch.attempts, at.random);
        let due = at.now + own.max(asked.unwrap_or_default());
        if let (Some(max_elapsed), Some(first)) = (max_elapsed, batch.first_attempt)
            && due > first + max_elapsed
        {
            let (attempts, seconds) = (batch.attempts, max_elapsed.as_secs());
            let reason = format!(
                "given up after {attempts} attempts in {seconds}s (max_elapsed_time): {reason}"
            );
            return Verdict::Dead { units: batch.units, cause: Cause::GivenUp, reason };
        }
        let most_failures = retry::failures_of_an_outage(self.share_before_failures);
        let is_open = self.state == State::Open;
        // If it is not open and a probe is to come, this batch was sent before the outage began.
        if is_open && self.failures_in_a_row >= most_failures
            || !is_open && self.probing.next.is_none()
        {
            if !matches!(self.state, State::Held(_)) {
                self.state = State::Outage(reason.clone());
            }
            self.probe_later(retry::OUTAGE_BACKOFF, asked, at);
        }
        self.wait_or_cut(batch, reason, due)
    }

    fn wait_until(&mut self, batch: Batch<L>, due: Instant) -> Verdict<L> {
        self.waiting_sequence += 1;
        let place = self.in_order.old_place().unwrap_or((due, self.waiting_sequence));
        self.waiting.insert(place, batch);
        Verdict::Kept
    }

    /// Keeps the batch whole: if its probe succeeds, the rest follows.
    fn hold(
        &mut self,
        batch: Batch<L>,
        reason: String,
        backoff: Backoff,
        at: Moment,
    ) -> Verdict<L> {
        if !matches!(self.state, State::Held(_)) {
            self.probing = Probing::default();
        }
        self.state = State::Held(reason);
        if self.probing.next.is_none() {
            self.probe_later(backoff, None, at);
        }
        self.wait_until(batch, at.now)
    }

    fn probe_later(&mut self, backoff: Backoff, asked: Option<Duration>, at: Moment) {
        self.probing.failures = self.probing.failures.saturating_add(1);
        let own = backoff.delay(self.probing.failures, at.random);
        let asked = asked.unwrap_or_default().min(ASKED_OF_ALL_MAX);
        self.probing.next = Some(at.now + own.max(asked));
    }
}
