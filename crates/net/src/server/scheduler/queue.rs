//! The queue of connections that wait to be read from, without threads, clocks or wakers. Time is
//! passed in, counted in ticks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cpu::CpuLoad;
use super::entry::ConnectionEntry;
use super::in_flight_limit::InFlightLimit;
use super::rules::Rules;

/// While the CPU is idle, a connection waits no longer than this for its slice. Two
/// ticks and the time to find out that the CPU is idle are less than 50 ms.
pub(super) const IDLE_WAIT_TICKS: u64 = 2;

/// In the first idle window this many overdue new connections are let in, and in each further one
/// twice as many, up to a bound. A window may be idle only because the few active connections have
/// sent nothing for a moment, and the size of new ones is known only after a slice.
const NEW_AT_FIRST: usize = 4;
const NEW_AT_MOST: usize = 256;

/// The number of new connections that may be let in while the CPU is idle.
#[derive(Debug, Default)]
pub(super) struct NewConnections {
    in_window: usize,
    left: usize,
}

impl NewConnections {
    /// A window of the CPU's load has ended.
    pub(super) fn renew(&mut self, load: CpuLoad) {
        self.in_window = match load {
            CpuLoad::Idle => (2 * self.in_window).clamp(NEW_AT_FIRST, NEW_AT_MOST),
            CpuLoad::Low => self.in_window,
            CpuLoad::Full | CpuLoad::High => 0,
        };
        self.left = self.in_window;
    }
}

#[derive(Debug, Default)]
pub(super) struct ReadQueue {
    waiting: VecDeque<Arc<ConnectionEntry>>,
    /// Connections that had a slice and have requests in flight, or may yet have some.
    active: Vec<Arc<ConnectionEntry>>,
    pub(super) new: NewConnections,
}

impl ReadQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns false if the connection has a slice, or is queued already.
    pub(super) fn enqueue(&mut self, entry: &Arc<ConnectionEntry>, tick: u64) -> bool {
        if entry.has_slice() || entry.is_queued.swap(true, Ordering::Relaxed) {
            return false;
        }
        entry.queued_at_tick.store(tick, Ordering::Relaxed);
        self.waiting.push_back(Arc::clone(entry));
        true
    }

    pub(super) fn remove(&mut self, entry: &Arc<ConnectionEntry>) {
        self.waiting.retain(|other| !Arc::ptr_eq(other, entry));
        self.active.retain(|other| !Arc::ptr_eq(other, entry));
    }

    /// Gives a slice to the first connection in the queue, if the limit admits one more.
    pub(super) fn next(
        &mut self,
        limit: &InFlightLimit,
        rules: Rules,
        tick: u64,
    ) -> Option<Arc<ConnectionEntry>> {
        if self.waiting.is_empty() {
            return None;
        }
        for entry in self.active.extract_if(.., |entry| entry.is_finished()) {
            entry.end_slice();
            entry.is_active.store(false, Ordering::Relaxed);
        }
        let are_paced = limit.are_paced();
        let weight = || self.active.iter().map(|entry| entry.weight(tick, rules, are_paced)).sum();
        let is_admitted = !limit.is_bounded() || limit.admits_beside(weight());
        is_admitted.then(|| self.begin(0, tick)).flatten()
    }

    /// A connection whose requests go on and on, or cost much CPU time, must let the next one in.
    pub(super) fn end_old_slices(&self, tick: u64) {
        if !self.waiting.is_empty() {
            let old = self.active.iter().filter(|entry| entry.has_old_slice(tick));
            old.for_each(|entry| entry.end_slice());
        }
    }

    /// As [`ReadQueue::next`] while the CPU is idle: the limit delays a connection only for a
    /// bounded time, whatever other connections do. Connections with large requests are passed over
    /// unless `admits_large`: they wait for memory, and the CPU may be idle for want of it. So are
    /// new ones beyond the number that [`NewConnections`] has left: their requests may be large.
    pub(super) fn next_overdue(
        &mut self,
        tick: u64,
        admits_large: bool,
    ) -> Option<Arc<ConnectionEntry>> {
        let is_overdue = |entry: &ConnectionEntry| {
            tick.saturating_sub(entry.queued_at_tick.load(Ordering::Relaxed)) >= IDLE_WAIT_TICKS
        };
        let is_next = |entry: &Arc<ConnectionEntry>| match entry.is_new() {
            true => self.new.left > 0,
            false => admits_large || entry.has_small_requests(),
        };
        let index = self.waiting.iter().take_while(|entry| is_overdue(entry)).position(is_next)?;
        self.new.left -= usize::from(self.waiting[index].is_new());
        self.begin(index, tick)
    }

    fn begin(&mut self, index: usize, tick: u64) -> Option<Arc<ConnectionEntry>> {
        let entry = self.waiting.remove(index)?;
        entry.is_queued.store(false, Ordering::Relaxed);
        entry.begin_slice(tick);
        // Requests of its last slice may still be in flight.
        if !entry.is_active.swap(true, Ordering::Relaxed) {
            self.active.push(Arc::clone(&entry));
        }
        Some(entry)
    }
}
