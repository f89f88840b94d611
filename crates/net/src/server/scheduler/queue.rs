//! The queue of connections that wait to be read from, without threads, clocks or wakers. Time is
//! passed in, counted in ticks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cpu::CpuLoad;
use super::entry::{ConnectionEntry, SMALL_SLICE_BYTES};
use super::in_flight_limit::InFlightLimit;
use super::rules::{Rule, Rules};

/// While the CPU is idle, a connection waits no longer than this for its slice. Two
/// ticks and the time to find out that the CPU is idle are less than 50 ms.
pub(super) const IDLE_WAIT_TICKS: u64 = 2;

/// If the first of the others has waited for this long (100 ms), its turn is kept until it fits:
/// little requests could fill the limit again and again.
const OTHERS_WAIT_TICKS: u64 = 20;

/// In the first idle window overdue connections are let in that are likely to send this much in
/// all, and in each further one twice as much, up to a bound. A window may be idle only because the
/// active connections have sent nothing for a moment, and a new one may send many times more.
const ALLOWED_AT_FIRST_BYTES: usize = SMALL_SLICE_BYTES;
const ALLOWED_AT_MOST_BYTES: usize = 256 * SMALL_SLICE_BYTES;
/// A slice of this many bytes does not count: it never waits for larger ones.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// The bytes that connections may send in small slices if they are let in while the CPU is idle.
#[derive(Debug, Default)]
pub(super) struct IdleAllowance {
    in_window_bytes: usize,
    left_bytes: usize,
}

impl IdleAllowance {
    /// A window of the CPU's load has ended.
    pub(super) fn renew(&mut self, load: CpuLoad, is_cpu_awaited: bool) {
        self.in_window_bytes = match load {
            CpuLoad::Idle if !is_cpu_awaited => {
                (2 * self.in_window_bytes).clamp(ALLOWED_AT_FIRST_BYTES, ALLOWED_AT_MOST_BYTES)
            }
            CpuLoad::Low => self.in_window_bytes,
            _ => 0,
        };
        self.left_bytes = self.in_window_bytes;
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        bytes <= self.left_bytes || bytes <= UNCOUNTED_BYTES
    }

    fn take(&mut self, bytes: usize) {
        if bytes > UNCOUNTED_BYTES {
            self.left_bytes = self.left_bytes.saturating_sub(bytes);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ReadQueue {
    /// Connections whose requests are little as far as is known, and others. They have turns.
    little: VecDeque<Arc<ConnectionEntry>>,
    others: VecDeque<Arc<ConnectionEntry>>,
    is_turn_of_others: bool,
    /// Connections that had a slice and have requests in flight, or may yet have some.
    active: Vec<Arc<ConnectionEntry>>,
    pub(super) idle_allowance: IdleAllowance,
}

impl ReadQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.little.is_empty() && self.others.is_empty()
    }

    /// Returns false if the connection has a slice, or is queued already.
    pub(super) fn enqueue(
        &mut self,
        entry: &Arc<ConnectionEntry>,
        rules: Rules,
        tick: u64,
    ) -> bool {
        if entry.has_slice() || entry.is_queued.swap(true, Ordering::Relaxed) {
            return false;
        }
        entry.queued_at_tick.store(tick, Ordering::Relaxed);
        let is_little = rules.has(Rule::LittleRequests) && entry.expects_little_requests();
        let queue = if is_little { &mut self.little } else { &mut self.others };
        queue.push_back(Arc::clone(entry));
        true
    }

    pub(super) fn remove(&mut self, entry: &Arc<ConnectionEntry>) {
        self.little.retain(|other| !Arc::ptr_eq(other, entry));
        self.others.retain(|other| !Arc::ptr_eq(other, entry));
        self.active.retain(|other| !Arc::ptr_eq(other, entry));
    }

    /// Gives a slice to the first connection in the queue, if the limit admits one more. Beside
    /// little requests others count as one each: their bytes keep out only their like.
    pub(super) fn next(
        &mut self,
        limit: &InFlightLimit,
        rules: Rules,
        tick: u64,
    ) -> Option<Arc<ConnectionEntry>> {
        if self.is_empty() {
            return None;
        }
        for entry in self.active.extract_if(.., |entry| entry.is_finished()) {
            entry.end_slice();
            entry.is_active.store(false, Ordering::Relaxed);
        }
        let is_cpu_awaited = limit.is_cpu_awaited();
        let is_admitted = |rules| {
            let weights = self.active.iter().map(|entry| entry.weight(tick, rules, is_cpu_awaited));
            !limit.is_bounded() || limit.admits_beside(weights.sum())
        };
        let little_may_go =
            !self.little.is_empty() && is_admitted(rules.and_without(Rule::WeightByBytes));
        let others_may_go = !self.others.is_empty()
            && (!little_may_go || self.is_turn_of_others)
            && is_admitted(rules);
        let first_of_others = self.others.front();
        let turn_is_kept = self.is_turn_of_others
            && first_of_others.is_some_and(|entry| entry.has_waited(OTHERS_WAIT_TICKS, tick));
        let entry = match (others_may_go, little_may_go && !turn_is_kept) {
            (true, _) => self.others.pop_front(),
            (false, true) => self.little.pop_front(),
            (false, false) => None,
        }?;
        self.is_turn_of_others = !others_may_go;
        Some(self.begin(entry, tick))
    }

    /// A connection whose requests go on and on, or cost much CPU time, must let the next one in.
    pub(super) fn end_old_slices(&self, tick: u64) {
        if !self.is_empty() {
            let old = self.active.iter().filter(|entry| entry.has_old_slice(tick));
            old.for_each(|entry| entry.end_slice());
        }
    }

    /// As [`ReadQueue::next`] while the CPU is idle: the limit delays a connection only for a
    /// bounded time, whatever other connections do. Connections with large requests are passed over
    /// unless `admits_large`: they wait for memory, and the CPU may be idle for want of it. So are
    /// those with small ones beyond what [`IdleAllowance`] has left: together they may be large.
    pub(super) fn next_overdue(
        &mut self,
        tick: u64,
        admits_large: bool,
    ) -> Option<Arc<ConnectionEntry>> {
        let is_next = |entry: &Arc<ConnectionEntry>| match entry.expects_small_slice() {
            true => self.idle_allowance.has_room_for(entry.expected_bytes()),
            false => admits_large,
        };
        let next_of = |queue: &VecDeque<Arc<ConnectionEntry>>| {
            let index = queue
                .iter()
                .take_while(|entry| entry.has_waited(IDLE_WAIT_TICKS, tick))
                .position(is_next)?;
            Some((queue[index].queued_at_tick.load(Ordering::Relaxed), index))
        };
        let entry = match (next_of(&self.little), next_of(&self.others)) {
            (Some((at, index)), others) if others.is_none_or(|(other_at, _)| at <= other_at) => {
                self.little.remove(index)
            }
            (_, others) => self.others.remove(others?.1),
        }?;
        if entry.expects_small_slice() {
            self.idle_allowance.take(entry.expected_bytes());
        }
        Some(self.begin(entry, tick))
    }

    fn begin(&mut self, entry: Arc<ConnectionEntry>, tick: u64) -> Arc<ConnectionEntry> {
        entry.is_queued.store(false, Ordering::Relaxed);
        entry.begin_slice(tick);
        // Requests of its last slice may still be in flight.
        if !entry.is_active.swap(true, Ordering::Relaxed) {
            self.active.push(Arc::clone(&entry));
        }
        entry
    }
}
