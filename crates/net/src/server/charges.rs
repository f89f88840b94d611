//! Memory of the requests of one connection, charged to the budget of all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::budget::{ConnectionBudget, Share};

/// Streams of one connection are charged in steps of this size: the buffers of a busy connection,
/// and the first few streams.
const STREAMS_BLOCK_BYTES: usize = 24 << 10;

/// Memory of one connection's requests in flight, charged to the budget in blocks.
pub(super) struct StreamCharges {
    pub(super) budget: Arc<ConnectionBudget>,
    needed_bytes: AtomicUsize,
    taken_bytes: AtomicUsize,
    /// Memory kept beside requests. Changed by the connection's task.
    kept_bytes: AtomicUsize,
}

impl StreamCharges {
    pub(super) fn new(budget: &Arc<ConnectionBudget>) -> Self {
        StreamCharges {
            budget: Arc::clone(budget),
            needed_bytes: AtomicUsize::new(0),
            taken_bytes: AtomicUsize::new(0),
            kept_bytes: AtomicUsize::new(0),
        }
    }

    /// Charges a request. False: the budget is spent, and the request must be refused. In either
    /// case [`StreamCharges::give_back`] is due.
    pub(super) fn try_take(&self, bytes: usize, is_stalled: impl FnOnce() -> bool) -> bool {
        let needed_bytes = self.needed_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let taken_bytes = self.taken_bytes.load(Ordering::Acquire);
        let missing_bytes = needed_bytes.saturating_sub(taken_bytes);
        if missing_bytes == 0 {
            return true;
        }
        let block_bytes = missing_bytes.next_multiple_of(STREAMS_BLOCK_BYTES);
        let is_first = taken_bytes == 0 && block_bytes == STREAMS_BLOCK_BYTES;
        let share = if !is_first {
            Share::Further
        } else if is_stalled() {
            Share::Stalled
        } else {
            Share::First
        };
        let is_taken = self.budget.take_for_streams(block_bytes, share);
        if is_taken {
            self.taken_bytes.fetch_add(block_bytes, Ordering::AcqRel);
        }
        is_taken
    }

    /// Charges what is kept from now on beside requests. Returns how much there is no room for.
    pub(super) fn keep(&self, bytes: usize) -> usize {
        let kept_bytes = self.kept_bytes.load(Ordering::Relaxed);
        if bytes == kept_bytes {
            // Each read asks: the counter that all connections share is left alone.
            return 0;
        }
        let more_bytes = bytes.saturating_sub(kept_bytes);
        if more_bytes > 0 && !self.budget.take_for_streams(more_bytes, Share::Further) {
            return more_bytes;
        }
        self.budget.give_back_of_streams(kept_bytes.saturating_sub(bytes));
        self.kept_bytes.store(bytes, Ordering::Relaxed);
        0
    }

    pub(super) fn give_back(&self, bytes: usize) {
        if self.needed_bytes.fetch_sub(bytes, Ordering::AcqRel) == bytes {
            self.give_back_blocks();
        }
    }

    fn give_back_blocks(&self) {
        // A request that begins meanwhile may go uncharged, until the next one begins.
        let taken_bytes = self.taken_bytes.swap(0, Ordering::AcqRel);
        self.budget.give_back_of_streams(taken_bytes);
    }
}

impl Drop for StreamCharges {
    fn drop(&mut self) {
        self.give_back_blocks();
        self.budget.give_back_of_streams(self.kept_bytes.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_with_many_streams_leave_room_for_those_with_few() {
        const LIMIT: usize = 100 * STREAMS_BLOCK_BYTES;
        const STREAM: usize = 10_000;
        let budget = ConnectionBudget::new(LIMIT, 0);
        let many: Vec<_> = (0..10).map(|_| StreamCharges::new(&budget)).collect();
        let mut streams = 0;
        while many.iter().all(|charges| charges.try_take(STREAM, || false)) {
            streams += many.len();
            assert!(streams * STREAM < LIMIT, "there is an end");
        }
        assert!((LIMIT / 8..=LIMIT / 4).contains(&(streams * STREAM)), "{streams}");
        let few: Vec<_> = (0..40).map(|_| StreamCharges::new(&budget)).collect();
        assert!(few.iter().all(
            |charges| charges.try_take(STREAM, || false) && charges.try_take(STREAM, || false)
        ));
        let still_more: Vec<_> = (0..40).map(|_| StreamCharges::new(&budget)).collect();
        assert!(
            !still_more.iter().all(|charges| charges.try_take(STREAM, || false)),
            "that is bounded too"
        );
        drop((many, few, still_more));
        assert_eq!(budget.streams_bytes.load(Ordering::Relaxed), 0);
    }

    /// Guarantee: connections whose requests made no progress leave room for the first requests of
    /// others.
    #[test]
    fn stalled_connections_leave_room_for_others() {
        let budget = ConnectionBudget::new(100 * STREAMS_BLOCK_BYTES, 0);
        let all: Vec<_> = (0..100).map(|_| StreamCharges::new(&budget)).collect();
        let taken = |is_stalled| all.iter().filter(|it| it.try_take(1000, || is_stalled)).count();
        assert_eq!((taken(true), budget.is_short()), (50, false), "they need not come back");
        let others: Vec<_> = (0..100).map(|_| StreamCharges::new(&budget)).collect();
        assert_eq!(others.iter().filter(|it| it.try_take(1000, || false)).count(), 25);
    }

    /// Scenario: open connections take much of the budget. Guarantee: those that stalled leave an
    /// eighth of it free. Memory counts as short as soon as streams leave no room for a connection,
    /// though none was refused.
    #[test]
    fn stalled_streams_leave_room_for_new_connections() {
        const LIMIT_BYTES: usize = 80 * STREAMS_BLOCK_BYTES;
        let budget = ConnectionBudget::new(LIMIT_BYTES, 0);
        assert!(budget.take_for_connection(LIMIT_BYTES / 2));
        let all: Vec<_> = (0..60).map(|_| StreamCharges::new(&budget)).collect();
        let take = |it: &&StreamCharges, is_stalled| it.try_take(1000, || is_stalled);
        assert_eq!(all.iter().filter(|it| take(it, true)).count(), 30);
        assert!(!budget.is_short() && budget.take_for_connection(LIMIT_BYTES / 8));
        budget.give_back_of_connection(LIMIT_BYTES / 8);
        let others: Vec<_> = (0..60).map(|_| StreamCharges::new(&budget)).collect();
        let fits = others.iter().position(|it| !take(&it, false) || budget.is_short());
        assert_eq!(fits, Some(8), "40 and 39 streams are the budget, less the next connection");
        assert!(!budget.take_for_connection(LIMIT_BYTES / 8));
    }

    /// Guarantee: what is kept beside requests is charged as long as it is, or its connection
    /// lives.
    #[test]
    fn what_is_kept_beside_requests_is_charged() {
        let budget = ConnectionBudget::new(300_000 * 4, 0);
        let charges = StreamCharges::new(&budget);
        let used_bytes = || budget.streams_bytes.load(Ordering::Relaxed);
        assert_eq!([200_000, 300_000].map(|bytes| charges.keep(bytes)), [0, 0]);
        assert_eq!(used_bytes(), 300_000);
        assert_eq!([400_000, 600_000].map(|bytes| charges.keep(bytes)), [100_000, 300_000]);
        assert_eq!((charges.keep(100_000), used_bytes()), (0, 100_000));
        drop(charges);
        assert_eq!(used_bytes(), 0);
    }

    #[test]
    fn charges_come_back_with_the_last_stream() {
        let budget = ConnectionBudget::new(1 << 20, 0);
        let charges = StreamCharges::new(&budget);
        assert!(charges.try_take(1000, || false) && charges.try_take(1000, || false));
        assert_eq!(budget.streams_bytes.load(Ordering::Relaxed), STREAMS_BLOCK_BYTES);
        charges.give_back(1000);
        assert_eq!(budget.streams_bytes.load(Ordering::Relaxed), STREAMS_BLOCK_BYTES);
        charges.give_back(1000);
        assert_eq!(budget.streams_bytes.load(Ordering::Relaxed), 0);
        assert!(!charges.try_take(1 << 20, || false));
        charges.give_back(1 << 20);
    }
}
