//! The task of a delivery: reads the log, sends the dispatcher's batches, resolves their frames.

mod memory;
mod send;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::OptionFuture;
use sluice_flow::dispatch::{
    Batch, Cause, DispatchPolicy, Dispatcher, Late, Refused, Unit, Verdict,
};
use sluice_flow::overload::Workload;
use sluice_flow::{Outcome, Packed};
use sluice_log::Next;
use sluice_otlp::SplitLimits;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use self::memory::LOOK_AGAIN;
use super::dead_letter_writer::{DeadLetterWriter, Unwritten};
use super::feed::Feed;
use super::leased::{Fate, Leased};
use super::prepare::{Lease, Limits, Preparer, dominant_header_bytes};
use super::sending::can_be_cut;
use super::{Delivery, DeliveryId, Stop, messages, naming};
use crate::large_work::requeue;
use crate::private_memory::ChargedMemory;
use send::Sent;

/// A task reads frames for this long, then looks at answers and lets other tasks run.
const TURN: Duration = Duration::from_millis(10);

struct Task {
    delivery: Arc<Delivery>,
    preparer: Preparer,
    dispatcher: Dispatcher<Lease>,
    sending: JoinSet<Sent>,
    in_flight: HashMap<Id, Batch<Lease>>,
    dead_letters: DeadLetterWriter,
    /// The frame of which not all units are made.
    feed: Option<Feed>,
    /// The log had nothing more when it was last asked.
    has_read_all: bool,
    /// The log gave no more when it was last asked: it has none, or too much of it is unresolved.
    has_read_enough: bool,
    /// Packed copies of batches that wait for a retry.
    packed_waiting: ChargedMemory,
    /// A frame waits for memory for its copy: when to look again.
    looks_again: Option<Instant>,
}

/// Runs a delivery until it is told to stop. Frames that are not resolved by then stay in the log.
pub(crate) async fn run(
    delivery: Arc<Delivery>,
    dispatch: DispatchPolicy,
    preparer: Preparer,
    mut stop: watch::Receiver<Stop>,
) {
    let mut task = Task {
        dead_letters: DeadLetterWriter::new(
            delivery.clone(),
            preparer.exporter.clone(),
            preparer.large_work.clone(),
        ),
        feed: None,
        has_read_all: false,
        has_read_enough: false,
        packed_waiting: delivery.private.charge(0),
        looks_again: None,
        delivery,
        preparer,
        dispatcher: Dispatcher::new(dispatch),
        sending: JoinSet::new(),
        in_flight: HashMap::new(),
    };
    let mut began = Instant::now();
    let mut workload = Workload::starting(began);
    loop {
        #[cfg(test)]
        task.delivery.stats.turns.fetch_add(1, Ordering::Relaxed);
        let stopping = *stop.borrow_and_update();
        let (mut wake_at, mut has_time) = (None, true);
        if stopping == Stop::HandOver {
            task.settle_refused(true);
            task.dead_letters.end();
            // It sheds nothing any more: other deliveries have to.
            task.delivery.note_shed(false);
            if task.sending.is_empty() && !task.dead_letters.is_storing() {
                break;
            }
        } else {
            has_time = task.advance(began, stopping == Stop::Drain);
            let is_done = task.has_read_all && task.dispatcher.is_idle();
            if stopping == Stop::Drain && is_done && !task.dead_letters.is_storing() {
                break;
            }
            wake_at = task.dispatcher.next_wake().filter(|_| task.may_send());
            wake_at = wake_at.into_iter().chain(task.looks_again).min();
        }
        task.delivery.health.note_work(&mut workload, began, Instant::now());
        if !has_time {
            requeue().await;
        }
        let wake = wake_at.map(|at| tokio::time::sleep_until(at.into()));
        tokio::select! {
            () = task.delivery.wake.notified() => {}
            Some(done) = task.sending.join_next_with_id(), if !task.sending.is_empty() => {
                task.finish(done);
            }
            stored = task.dead_letters.stored(), if task.dead_letters.is_storing() => {
                stored.iter().for_each(|part| task.resolve_part(part, Fate::Taken));
            }
            Some(()) = OptionFuture::from(wake) => {}
            // A closed channel means that the engine is gone: hand over.
            changed = stop.changed() => if changed.is_err() { break },
        }
        began = Instant::now();
        while let Some(done) = task.sending.try_join_next_with_id() {
            task.finish(done);
        }
    }
    task.delivery.log.rewind(task.delivery.cursor);
}

/// Requests in flight are dropped with it.
impl Drop for Task {
    fn drop(&mut self) {
        self.delivery.stats.sent_at.lock().clear();
    }
}

impl Task {
    /// Does all work that needs no waiting, or as much as a turn has time for: then false.
    fn advance(&mut self, now: Instant, draining: bool) -> bool {
        if self.delivery.on_disk {
            self.delivery.count_dropped(self.delivery.log.take_dropped(self.delivery.cursor).items);
        }
        self.shed_retries();
        // A frame that is not looked at now waits for an answer, not for this time.
        self.looks_again = None;
        let mut has_time = true;
        loop {
            let mut progressed = false;
            while has_time && self.may_send() && self.may_read() && self.read(now) {
                progressed = true;
                has_time = now.elapsed() < TURN;
            }
            if draining {
                self.dispatcher.drain();
            }
            while self.may_send()
                && let Some(batch) = self.dispatcher.next(now)
            {
                if let Some(batch) = self.without_deserted(batch, now) {
                    self.send_or_cut(batch, now);
                }
                progressed = true;
            }
            if !progressed {
                break;
            }
        }
        if !has_time {
            self.delivery.wake.notify_one();
        }
        self.settle_refused(self.has_read_enough);
        let stats = &self.delivery.stats;
        for (shown, count) in [
            (&stats.in_flight, self.dispatcher.in_flight()),
            (&stats.concurrency_limit, self.dispatcher.concurrency_limit()),
            (&stats.waiting, self.dispatcher.waiting_len()),
        ] {
            shown.store(count as u64, Ordering::Relaxed);
        }
        if self.in_flight.is_empty() && self.dispatcher.waiting_len() == 0 {
            self.delivery.health.note_idle();
        }
        has_time
    }

    /// Units that the backend refused alone are dead letters, once they are known to be at fault.
    fn settle_refused(&mut self, has_read_enough: bool) {
        for Refused { units, cause, reason } in self.dispatcher.take_at_fault(has_read_enough) {
            self.apply(Verdict::Dead { units, cause, reason });
            // They may have been what kept the log from giving more.
            self.delivery.wake.notify_one();
        }
        self.dead_letters.let_go();
    }

    /// Makes the next unit, of the next frame of the log if none is begun. False if there is none
    /// now: a frame that comes from disk or is appended wakes the task.
    fn read(&mut self, now: Instant) -> bool {
        let mut feed = match self.feed.take() {
            Some(feed) if feed.has_begun && self.is_short_of_memory() => {
                // An answer frees memory, and is followed by another look. So do others, unseen.
                self.looks_again = self.in_flight.is_empty().then(|| now + LOOK_AGAIN);
                self.has_read_enough = true;
                self.feed = Some(feed);
                return false;
            }
            Some(feed) => feed,
            None => {
                let next = self.delivery.log.read(self.delivery.cursor);
                self.has_read_all = matches!(next, Next::Empty);
                self.has_read_enough = matches!(next, Next::Empty | Next::Full);
                let Next::Entry(offset, entry) = next else { return false };
                Feed::new(Leased::new(self.delivery.account.clone(), offset, entry))
            }
        };
        let Some(_reserved) = self.reserve(&feed) else {
            self.has_read_enough = true;
            self.feed = Some(feed);
            return false;
        };
        self.has_read_enough = false;
        let (units, steps) = (self.dispatcher.unit_limits(), self.dispatcher.step_limits());
        match self.preparer.next(&mut feed, Limits { units, steps }) {
            Some(Ok(unit)) => self.dispatcher.offer(unit, now),
            Some(Err(part)) => self.set_aside(Unwritten::of(feed.leased.clone(), part), None),
            None => {
                self.end_feed(&feed);
                return true;
            }
        }
        match self.preparer.is_over(&feed) {
            true => self.end_feed(&feed),
            false => self.feed = Some(feed),
        }
        true
    }

    /// All units of a frame are made.
    fn end_feed(&self, feed: &Feed) {
        let Leased { offset, entry, .. } = &*feed.leased;
        if feed.has_begun {
            self.resolve_part(&feed.leased, Fate::Taken);
        } else if self.delivery.log.resolve_unwanted(self.delivery.cursor, *offset) {
            // Its processors let nothing pass: no other delivery may drop the frame for that.
            entry.resolve(self.delivery.cursor, Ok(()));
        }
    }

    /// Gives up units that wait for this delivery alone and whose senders have gone.
    fn without_deserted(&mut self, mut batch: Batch<Lease>, now: Instant) -> Option<Batch<Lease>> {
        let is_deserted = |unit: &Unit<Lease>| unit.lease.leased.entry.is_deserted();
        if !self.dispatcher.returns_rejections() || !batch.units.iter().any(is_deserted) {
            return Some(batch);
        }
        let packed = batch.packed.take();
        self.packed_waiting.give_back(packed.as_ref().map_or(0, |it| it.copied_bytes));
        let (deserted, units) = std::mem::take(&mut batch.units).into_iter().partition(is_deserted);
        self.hand_back(deserted, "its sender has gone");
        batch.set_units(units);
        if batch.units.is_empty() {
            self.dispatcher.hand_back(now);
            return None;
        }
        Some(batch)
    }

    /// Leaves unacknowledged units to their senders.
    fn hand_back(&mut self, units: Vec<Unit<Lease>>, reason: &str) {
        let cause = Cause::NotRetried { asked: None };
        self.apply(Verdict::Dead { units, cause, reason: reason.to_owned() });
    }

    fn finish(&mut self, done: Result<(Id, Sent), JoinError>) {
        let (id, sent) = match done {
            Ok(done) => done,
            Err(error) => {
                let reason = "the exporter failed unexpectedly".to_owned();
                tracing::error!(exporter = %self.delivery.id.exporter, %error, "{reason}");
                let outcome = Outcome::RetryAfter { delay: None, reason };
                (error.id(), Sent { packed: None, outcome, is_late: false })
            }
        };
        let Sent { packed, outcome, is_late } = sent;
        self.delivery.stats.sent_at.lock().remove(&id);
        let Some(mut batch) = self.in_flight.remove(&id) else { return };
        // Nothing of the batch was acknowledged, and senders wait for this delivery alone.
        let is_returned = matches!(outcome, Outcome::Misconfigured { .. })
            && self.dispatcher.returns_rejections()
            && batch.units.iter().all(|unit| unit.lease.leased.entry.is_unanswered());
        self.log_outcome(&outcome, &batch, is_returned);
        self.delivery.stats.count_outcome(&outcome);
        self.delivery.health.note_answer(outcome.is_taken(), Instant::now());
        if is_returned && let Outcome::Misconfigured { reason } = &outcome {
            self.dispatcher.hand_back(Instant::now());
            return self.hand_back(batch.units, reason);
        }
        let (was_packed, mut kept_bytes) = (packed.is_some(), 0);
        let (now, is_taken) = (Instant::now(), outcome.is_taken());
        let is_cut = is_late && self.note_late(&mut batch, now);
        if is_taken {
            self.note_written(&batch, packed.as_ref());
            let bytes = packed.map_or(0, |packed| packed.len_bytes as u64);
            self.delivery.stats.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        } else if !is_cut
            && matches!(outcome, Outcome::RetryAfter { .. } | Outcome::Misconfigured { .. })
        {
            kept_bytes = self.keep_packed(&mut batch, packed);
        }
        let verdict = match naming::narrow(&mut batch, outcome) {
            Outcome::TooLarge { reason } if !was_packed => {
                self.dispatcher.note_unpackable(batch, reason, now)
            }
            outcome => self.dispatcher.note_outcome(batch, outcome, now, fastrand::f64()),
        };
        if !matches!(verdict, Verdict::Kept) {
            // There is no next attempt: the copy that was kept for it is gone with the batch.
            self.packed_waiting.give_back(kept_bytes);
        }
        let returns = self.dispatcher.returns_rejections();
        messages::note_state(&self.delivery, self.dispatcher.state(), returns);
        if !is_taken {
            self.let_go_of_queue();
        }
        self.apply(verdict);
    }

    /// Whether a batch that was not answered in time is cut before it is sent again.
    fn note_late(&mut self, batch: &mut Batch<Lease>, now: Instant) -> bool {
        let Late::Cut { first_size } = self.dispatcher.note_late(batch, now) else { return false };
        if let Some(most_items) = first_size {
            messages::log_smaller(&self.delivery, batch.items, most_items);
        }
        // A single unit is cut first.
        if batch.units.len() > 1 {
            self.let_go_if_short(&mut batch.units);
        }
        true
    }

    fn apply(&mut self, verdict: Verdict<Lease>) {
        match verdict {
            Verdict::Kept => {}
            Verdict::Delivered { units, rejected_items, reason } => {
                let items: u64 = units.iter().map(|unit| u64::from(unit.items)).sum();
                let stats = &self.delivery.stats;
                stats.sent_items.fetch_add(items.saturating_sub(rejected_items), Ordering::Relaxed);
                if rejected_items > 0 {
                    stats.partly_rejected_items.fetch_add(rejected_items, Ordering::Relaxed);
                    let DeliveryId { pipeline, exporter } = &self.delivery.id;
                    tracing::warn!(
                        %pipeline, %exporter, items = rejected_items,
                        reason = reason.unwrap_or_default(),
                        "the backend took a request but refused some of its items for good"
                    );
                }
                units.iter().for_each(|it| self.resolve_unit(it, Fate::Taken));
            }
            Verdict::Divide { unit, limits, cause, reason } => {
                if cause == Cause::TooLarge
                    && let Some(bytes) = dominant_header_bytes(&unit)
                {
                    let reason = messages::of_long_header(&reason, unit.items, bytes);
                    self.dead(vec![unit], cause, &reason);
                } else {
                    self.divide(unit, limits, cause);
                }
            }
            Verdict::Dead { units, cause, reason } => self.dead(units, cause, &reason),
        }
        self.delivery.receiving.note_all_freed();
        self.delivery.note_room();
    }

    fn divide(&mut self, unit: Unit<Lease>, limits: SplitLimits, cause: Cause) {
        let (lease, items) = (unit.lease.clone(), unit.items);
        match self.preparer.divide(unit, limits) {
            Ok(mut parts) => {
                // Those of a late unit wait as it would; other ones are sent at once.
                if cause == Cause::GivenUp {
                    self.let_go_if_short(&mut parts);
                }
                self.dispatcher.divided(parts);
            }
            Err(reason) => self.set_part_aside(&lease, items, None, reason),
        }
    }

    fn dead(&mut self, units: Vec<Unit<Lease>>, cause: Cause, reason: &str) {
        for unit in units {
            let is_with_sender = unit.lease.leased.entry.is_with_sender();
            if !self.dispatcher.returns_rejections() || !is_with_sender {
                self.set_part_aside(&unit.lease, unit.items, Some(cause), reason.to_owned());
                continue;
            }
            let returned = &self.delivery.stats.returned_items;
            returned.fetch_add(u64::from(unit.items), Ordering::Relaxed);
            let refusal = Err(messages::refusal(cause, reason.to_owned()));
            // The sender gets the refusal at once, whatever the fate of the other parts.
            unit.lease.leased.entry.resolve(self.delivery.cursor, refusal);
            self.resolve_unit(&unit, Fate::Returned);
        }
    }

    fn note_written(&self, batch: &Batch<Lease>, packed: Option<&Packed>) {
        let (account, exporter) = (&self.delivery.account, &*self.preparer.exporter);
        if let (Some(unit), Some(packed)) = (batch.units.first(), packed) {
            account.note_written(exporter, unit.lease.leased.offset, packed);
        }
    }

    fn resolve_unit(&self, unit: &Unit<Lease>, fate: Fate) {
        unit.lease.leased.settled.add(u64::from(unit.items));
        self.resolve_part(&unit.lease.leased, fate);
    }

    /// The last part of a frame resolves it, as taken only if all its parts were.
    fn resolve_part(&self, leased: &Leased, fate: Fate) {
        let (log, cursor) = (&self.delivery.log, self.delivery.cursor);
        let frame_fate = leased.resolve_part(fate);
        match frame_fate {
            Some(Fate::Taken) if log.resolve(cursor, leased.offset) => {
                leased.entry.resolve(cursor, Ok(()));
            }
            None | Some(Fate::Taken) => {}
            Some(Fate::GivenUp) => {
                if let Some(is_lost) = log.give_up(cursor, leased.offset) {
                    leased.entry.given_up(cursor, is_lost);
                }
            }
            Some(Fate::Returned) => {
                log.resolve_unwanted(cursor, leased.offset);
            }
        }
        if frame_fate.is_some() {
            leased.settled.end();
        }
    }

    fn set_part_aside(&mut self, lease: &Lease, items: u32, cause: Option<Cause>, reason: String) {
        let prepared = self.preparer.steps_done(lease);
        let (leased, content) = (lease.leased.clone(), lease.content.clone());
        self.set_aside(Unwritten { leased, prepared, content, items, reason }, cause);
    }

    fn set_aside(&mut self, unwritten: Unwritten, cause: Option<Cause>) {
        self.delivery.stats.count_dead(cause, u64::from(unwritten.items));
        let stored = self.dead_letters.store(unwritten);
        stored.iter().for_each(|part| self.resolve_part(part, Fate::Taken));
    }

    /// Sheds batches that wait for a retry, for bytes that the log could not find elsewhere.
    fn shed_retries(&mut self) {
        let is_over_limit = self.delivery.is_over_limit.swap(false, Ordering::Relaxed);
        let delivery = self.delivery.clone();
        let asked_bytes = delivery.shed_wanted_bytes.load(Ordering::Relaxed);
        let mut wanted_bytes = asked_bytes;
        let (log, cursor) = (&delivery.log, delivery.cursor);
        // The log is dropping frames that are over the limit and on disk.
        let drops_on_disk =
            || delivery.on_disk && log.held(cursor).frames > log.leased(cursor).frames + 1;
        let wants_less = || is_over_limit && delivery.gauges.is_over_budget() && !drops_on_disk();
        let may_go = |batch: &Batch<Lease>| {
            batch.units.iter().all(|unit| log.may_give_up(cursor, unit.lease.leased.offset))
        };
        while wanted_bytes > 0 || wants_less() {
            let Some(batch) = self.dispatcher.shed_oldest(may_go) else { break };
            self.packed_waiting.give_back(batch.packed.as_ref().map_or(0, |it| it.copied_bytes));
            wanted_bytes = wanted_bytes.saturating_sub(batch.bytes as u64);
            delivery.count_dropped(batch.items);
            batch.units.iter().for_each(|unit| self.resolve_unit(unit, Fate::GivenUp));
        }
        if asked_bytes > 0 {
            delivery.note_shed(wanted_bytes == 0);
        }
    }

    fn log_outcome(&self, outcome: &Outcome, batch: &Batch<Lease>, is_returned: bool) {
        let can_be_cut = can_be_cut(outcome, batch, self.dispatcher.returns_rejections());
        let attempt = messages::Attempt { items: batch.items, can_be_cut, is_returned };
        messages::log_outcome(&self.delivery, outcome, &attempt);
    }
}
