//! The scheduler's record of one connection.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::in_flight_limit::weight_of_bytes;
use super::rules::{Rule, Rules};

/// A slice of this many bytes is little beside the memory for receiving, whatever that is.
pub(super) const SMALL_SLICE_BYTES: usize = 256 << 10;
/// While the limit is in force, a slice ends after this many bytes once no request is half read.
pub(super) const SLICE_LEAST_BYTES: usize = 1 << 20;
/// While the limit is in force and other connections wait, a slice ends after this many ticks
/// (200 ms). Honest senders need less for their requests in flight.
pub(super) const SLICE_TICKS: u64 = 40;
/// A connection without progress for this many ticks does not count: its peer is slow, or its
/// requests wait for something other than the CPU.
pub(super) const STALLED_TICKS: u64 = 8;
/// Progress is at least this many bytes of bodies. A known sender that trickles less, or sends
/// headers only, holds up no other connection.
pub(super) const PROGRESS_LEAST_BYTES: usize = 4 << 10;

#[derive(Debug, Default)]
pub(in crate::server) struct ConnectionEntry {
    pub(super) in_flight: AtomicUsize,
    /// The most that were in flight at a time in this slice, and how many have begun.
    pub(super) most_in_flight: AtomicUsize,
    pub(super) begun: AtomicUsize,
    pub(super) arriving: AtomicUsize,
    /// Bytes that have come of these.
    pub(super) arriving_bytes: AtomicUsize,
    /// Requests that wait, to be admitted or for the check of their credentials.
    pub(in crate::server) waiting: AtomicUsize,
    pub(super) all_have_arrived: Notify,
    /// It waits in the queue. Changed under the scheduler's lock, as are the next two.
    pub(super) is_queued: AtomicBool,
    pub(super) queued_at_tick: AtomicU64,
    /// It is among the active connections, whose requests count.
    pub(super) is_active: AtomicBool,
    /// When its slice began, and whether it has had one to its end.
    slice_at_tick: AtomicU64,
    is_known: AtomicBool,
    /// It may be read from.
    has_slice: AtomicBool,
    /// The most requests at a time in its last slice, and their size: expected in this one too.
    forecast: AtomicUsize,
    request_bytes: AtomicUsize,
    /// Read in its slice.
    read_bytes: AtomicUsize,
    /// The last attempt to read found nothing.
    is_drained: AtomicBool,
    /// The tick of its last progress, and the bytes of bodies that came since.
    progress_at_tick: AtomicU64,
    came_since_bytes: AtomicUsize,
    /// A body has ended since its last slice began, or there was progress.
    brings_bodies: AtomicBool,
    pub(super) waker: Mutex<Option<Waker>>,
}

impl ConnectionEntry {
    pub(super) fn begin_slice(&self, tick: u64) {
        if self.brings_bodies.swap(false, Ordering::Relaxed) || self.is_new() {
            self.progress_at_tick.store(tick, Ordering::Relaxed);
        }
        self.slice_at_tick.store(tick, Ordering::Relaxed);
        for counter in [&self.most_in_flight, &self.begun, &self.read_bytes] {
            counter.store(0, Ordering::Relaxed);
        }
        self.is_drained.store(false, Ordering::Relaxed);
        self.has_slice.store(true, Ordering::Release);
    }

    pub(super) fn end_slice(&self) {
        self.has_slice.store(false, Ordering::Relaxed);
        self.is_known.store(true, Ordering::Relaxed);
        self.forecast.store(self.most_in_flight.load(Ordering::Relaxed), Ordering::Relaxed);
        // Without a new request, what came counts as one: the next slice is likely to be the same.
        let begun = self.begun.load(Ordering::Relaxed).max(1);
        let request_bytes = self.read_bytes.load(Ordering::Relaxed) / begun;
        self.request_bytes.store(request_bytes, Ordering::Relaxed);
        self.all_have_arrived.notify_waiters();
    }

    /// There is something to read, and it waits for its slice.
    pub(in crate::server) fn is_queued(&self) -> bool {
        self.is_queued.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(in crate::server) fn set_queued(&self, is_queued: bool) {
        self.is_queued.store(is_queued, Ordering::Relaxed);
    }

    /// It was queued at least this many ticks ago.
    pub(super) fn has_waited(&self, ticks: u64, tick: u64) -> bool {
        tick.saturating_sub(self.queued_at_tick.load(Ordering::Relaxed)) >= ticks
    }

    pub(super) fn has_slice(&self) -> bool {
        self.has_slice.load(Ordering::Acquire)
    }

    /// Ends the slice if enough was read and no request is half read: a request of which a part was
    /// read occupies memory for its whole length until the connection's next slice.
    pub(super) fn end_slice_between_requests(&self) {
        let had_enough = self.read_bytes.load(Ordering::Relaxed) >= SLICE_LEAST_BYTES;
        if had_enough && self.has_slice() && self.arriving() == 0 {
            self.end_slice();
        }
    }

    /// Zero bytes: there was nothing to read.
    pub(super) fn note_read(&self, bytes: usize, tick: u64) {
        self.is_drained.store(bytes == 0, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.came_since_bytes.load(Ordering::Relaxed) >= PROGRESS_LEAST_BYTES {
            self.came_since_bytes.store(0, Ordering::Relaxed);
            self.progress_at_tick.store(tick, Ordering::Relaxed);
            self.brings_bodies.store(true, Ordering::Relaxed);
        }
    }

    /// Bytes of a body came.
    pub(super) fn note_came(&self, bytes: usize) {
        self.came_since_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A body has come to its end, or is given up.
    pub(super) fn note_body_ended(&self, came_bytes: usize) {
        if came_bytes > 0 {
            self.brings_bodies.store(true, Ordering::Relaxed);
        }
    }

    /// Its weight against the limit: its requests in flight, or those to expect in its slice, or
    /// the bytes of one request if that is more. Zero while none of its requests can use the CPU.
    /// While some request waits for the CPU, all that wait are taken to.
    pub(super) fn weight(&self, tick: u64, rules: Rules, is_cpu_awaited: bool) -> usize {
        let waits_for_cpu = is_cpu_awaited && self.waiting.load(Ordering::Relaxed) > 0;
        if !waits_for_cpu && (self.is_stalled(tick) || self.waits_for_slice()) {
            return 0;
        }
        let in_flight = self.in_flight();
        let is_forecast = rules.has(Rule::Forecast) && self.has_slice();
        let forecast = if is_forecast { self.forecast.load(Ordering::Relaxed) } else { 0 };
        let bytes = if rules.has(Rule::WeightByBytes) {
            self.request_bytes.load(Ordering::Relaxed)
        } else {
            0
        };
        in_flight.max(forecast).max(weight_of_bytes(bytes))
    }

    /// Nothing is known of its requests: it has not had a slice to its end.
    pub(super) fn is_new(&self) -> bool {
        !self.is_known.load(Ordering::Relaxed)
    }

    pub(super) fn has_old_slice(&self, tick: u64) -> bool {
        let began_at_tick = self.slice_at_tick.load(Ordering::Relaxed);
        self.has_slice() && tick.saturating_sub(began_at_tick) >= SLICE_TICKS
    }

    /// Bytes that it is likely to send in a slice. Nothing is known of a new connection.
    pub(super) fn expected_bytes(&self) -> usize {
        if self.is_new() {
            return SMALL_SLICE_BYTES;
        }
        let requests = self.forecast.load(Ordering::Relaxed).max(1);
        requests.saturating_mul(self.request_bytes.load(Ordering::Relaxed))
    }

    /// A new connection counts as one of these.
    pub(super) fn expects_small_slice(&self) -> bool {
        self.expected_bytes() <= SMALL_SLICE_BYTES
    }

    /// Its requests add nothing to its weight by their bytes, as far as is known.
    pub(super) fn expects_little_requests(&self) -> bool {
        let request_bytes = self.request_bytes.load(Ordering::Relaxed);
        self.expects_small_slice() && weight_of_bytes(request_bytes) == 1
    }

    fn is_stalled(&self, tick: u64) -> bool {
        tick.saturating_sub(self.progress_at_tick.load(Ordering::Relaxed)) >= STALLED_TICKS
    }

    /// A part of each of its requests is still to be read, and it may not be read from now.
    fn waits_for_slice(&self) -> bool {
        !self.has_slice() && self.arriving() >= self.in_flight()
    }

    /// Nothing is in flight, and nothing more will be in this slice.
    pub(super) fn is_finished(&self) -> bool {
        let is_read = self.is_drained.load(Ordering::Relaxed) || !self.has_slice();
        is_read && self.in_flight() == 0
    }
}
