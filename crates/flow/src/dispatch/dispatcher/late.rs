//! Requests that the backend did not answer in time. It may be gone, or be too slow for so much at
//! a time: sent again as they are, they would be late for ever. So where the exporter allows it,
//! requests get smaller after a run of late ones, and late ones that are larger are cut.
//!
//! While the backend is gone, that cuts a few requests in vain, down to the smallest size.

use std::time::{Duration, Instant};

use sluice_otlp::SplitLimits;

use super::Dispatcher;
use super::refused::Cut;
use super::request_size::RequestSize;
use crate::dispatch::{Batch, Cause, Verdict};

/// Late requests in a row after which requests get smaller: one may be late by chance.
const LATE_IN_A_ROW: u32 = 2;
/// A late request that comes later than this after the one before begins another row, unless it was
/// late before: timeouts, and the pauses between retries, may be longer.
const ROW_LASTS: Duration = Duration::from_secs(10 * 60);

/// As for requests that are too large, but soon: a backend that hung says nothing of the sizes that
/// it takes, so that after many hangs the way back from the least size has to stay short. For one
/// that is too slow for good, each try costs a timeout: tries get rarer up to a point.
const TAKEN_BEFORE_LARGER: (u32, u32) = (8, 64);

/// Consequence of a late request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It is sent again as it is.
    Whole,
    /// It is cut if it is sent again. `first_size`: requests had the configured size until now, and
    /// have at most this many items from now on.
    Cut { first_size: Option<usize> },
}

/// The number of items that a backend takes in time.
pub(super) struct LateRequests {
    /// None: it stays as it is.
    least: Option<usize>,
    size: RequestSize,
    /// None before the first one.
    row: Option<Row>,
}

/// Late requests in a row.
#[derive(Clone, Copy)]
struct Row {
    requests: u32,
    fewest_items: usize,
    /// The time of the last one.
    last: Instant,
}

impl LateRequests {
    /// Sizes in items, of which 0 is no bound. `least`: requests of no more stay as they are.
    pub(super) fn new(least: Option<usize>, configured: usize) -> LateRequests {
        let configured = if configured == 0 { usize::MAX } else { configured };
        let size = RequestSize::new(least.unwrap_or(configured), configured, TAKEN_BEFORE_LARGER);
        LateRequests { least, size, row: None }
    }

    /// The most items of a request.
    pub(super) fn size(&self) -> usize {
        self.size.present()
    }

    /// A request with so many items is late. `again`: it was late before.
    pub(super) fn note_late(&mut self, items: usize, again: bool, now: Instant) -> Late {
        // A single item cannot be cut.
        if self.least.is_none_or(|least| items <= least.max(1)) {
            return Late::Whole;
        }
        if items > self.size() {
            // It was sent before requests got smaller: others of its size were late as well.
            return Late::Cut { first_size: None };
        }
        let lasts = |row: &Row| again || now.saturating_duration_since(row.last) < ROW_LASTS;
        let (before, fewest_items) = match self.row.take().filter(lasts) {
            None => (0, items),
            Some(row) => (row.requests, row.fewest_items.min(items)),
        };
        if before + 1 < LATE_IN_A_ROW {
            self.row = Some(Row { requests: before + 1, fewest_items, last: now });
            return Late::Whole;
        }
        let was_full = self.size.is_full();
        self.size.note_too_large(fewest_items);
        Late::Cut { first_size: was_full.then_some(self.size()) }
    }

    /// A request with so many items was taken in time. One that is smaller than all late ones says
    /// nothing of these. True if later ones may be larger now.
    pub(super) fn note_taken(&mut self, items: usize) -> bool {
        self.row = self.row.filter(|row| items < row.fewest_items);
        self.size.note_taken(items)
    }
}

impl<L> Dispatcher<L> {
    /// Takes note that a batch was not answered in time, before [`Dispatcher::note_outcome`] gets
    /// its outcome, which is to be sent again.
    pub fn note_late(&mut self, batch: &mut Batch<L>, now: Instant) -> Late {
        let size = self.late.size();
        let again = std::mem::replace(&mut batch.was_late, true);
        let late = self.late.note_late(batch.items as usize, again, now);
        batch.is_to_be_cut = late != Late::Whole;
        if self.late.size() != size {
            self.set_sizes();
        }
        late
    }

    /// Lets a batch wait, or the parts of the present size into which a late one is cut. Parts of a
    /// search go on with it instead; where order matters, none may overtake the one before.
    pub(super) fn wait_or_cut(
        &mut self,
        mut batch: Batch<L>,
        reason: String,
        due: Instant,
    ) -> Verdict<L> {
        if !batch.is_to_be_cut {
            return self.wait_until(batch, due);
        }
        let Batch { place, first_attempt, .. } = batch;
        let due = (place.is_none() && !self.policy.in_order).then_some(due);
        let (cut, max_items) = (Cut { place, first_attempt, due }, self.late.size());
        if batch.units.len() == 1
            && let Some(unit) = batch.units.pop()
        {
            self.cut = cut;
            let limits = SplitLimits { max_items, max_bytes: usize::MAX };
            return Verdict::Divide { unit, limits, cause: Cause::GivenUp, reason };
        }
        let mut parts: Vec<Batch<L>> = Vec::new();
        for unit in batch.units {
            let items = u64::from(unit.items);
            match parts.last_mut().filter(|part| part.items + items <= max_items as u64) {
                Some(part) => part.push(unit),
                None => parts.push(Batch::new(vec![unit])),
            }
        }
        self.take_parts(parts, cut);
        Verdict::Kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUT: Late = Late::Cut { first_size: None };

    fn late() -> LateRequests {
        LateRequests::new(Some(100), 10_000)
    }

    /// Guarantee: the first of a row is sent again whole, and each second one halves the size, down
    /// to the least. The first time that this happens is told.
    #[test]
    fn each_second_late_request_in_a_row_halves_the_size() {
        let (mut late, now) = (late(), Instant::now());
        assert_eq!((late.note_late(5_000, false, now), late.size()), (Late::Whole, 10_000));
        assert_eq!(late.note_late(5_000, false, now), Late::Cut { first_size: Some(2_500) });
        for size in [1_250, 625, 312, 156, 100] {
            let items = late.size();
            assert_eq!((late.note_late(items, false, now), late.size()), (Late::Whole, items));
            assert_eq!((late.note_late(items, false, now), late.size()), (CUT, size));
        }
        for items in [100, 1, 100, 100] {
            assert_eq!((late.note_late(items, false, now), late.size()), (Late::Whole, 100));
        }
    }

    /// Scenario: many requests are in flight, and all are late. Guarantee: those of the old size
    /// are cut, and say nothing of the new one.
    #[test]
    fn late_requests_of_the_size_before_do_not_count_again() {
        let (mut late, now) = (late(), Instant::now());
        late.note_late(5_000, false, now);
        for _ in 0..20 {
            late.note_late(5_000, false, now);
        }
        assert_eq!((late.note_late(5_000, false, now), late.size()), (CUT, 2_500));
    }

    /// Guarantee: a request as large as the late ones that is taken ends their row; smaller ones,
    /// of which there may be many in between, do not.
    #[test]
    fn only_a_request_that_is_as_large_ends_a_row() {
        for (taken, size) in [(5_000, 10_000), (10_000, 10_000), (4_999, 2_500), (20, 2_500)] {
            let (mut late, now) = (late(), Instant::now());
            late.note_late(5_000, false, now);
            late.note_taken(taken);
            late.note_late(5_000, false, now);
            assert_eq!(late.size(), size, "{taken}");
        }
    }

    /// Guarantee: after a row of requests that were taken the size is doubled, up to the configured
    /// one; from there on the next time is told again.
    #[test]
    fn taken_requests_double_the_size() {
        let (mut late, now) = (late(), Instant::now());
        (0..2).for_each(|_| {
            late.note_late(400, false, now);
        });
        let mut sizes = vec![late.size()];
        while late.size() < 10_000 {
            late.note_taken(late.size());
            sizes.push(late.size());
        }
        sizes.dedup();
        assert_eq!(sizes, [200, 400, 800, 1_600, 3_200, 6_400, 10_000]);
        late.note_late(5_000, false, now);
        assert_eq!(late.note_late(5_000, false, now), Late::Cut { first_size: Some(2_500) });
    }

    /// Scenario: requests are late, with smaller ones taken in between. Guarantee: one is in a row
    /// with the one before only within some minutes of it.
    #[test]
    fn a_row_ends_some_minutes_after_its_last_request() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        for (pauses, size) in [([9, 1], 2_500), ([10, 9], 2_500), ([600, 10], 10_000)] {
            let (mut late, mut now) = (late(), Instant::now());
            late.note_late(5_000, false, now);
            for pause in pauses {
                late.note_taken(20);
                now += minutes(pause);
                if late.size() == 10_000 {
                    late.note_late(5_000, false, now);
                }
            }
            assert_eq!(late.size(), size, "{pauses:?}");
        }
    }

    /// Scenario: a backend hangs again and again just after requests got larger. Guarantee: the way
    /// back from the least size stays short; the first time it is shorter.
    #[test]
    fn the_way_back_after_many_hangs_is_short() {
        let (mut late, mut now) = (late(), Instant::now());
        let mut ways = Vec::new();
        for _ in 0..20 {
            while late.size() > 100 {
                now += Duration::from_secs(5);
                late.note_late(late.size(), false, now);
            }
            let mut taken = 1..;
            ways.extend(taken.find(|_| {
                late.note_taken(late.size());
                late.size() == 10_000
            }));
        }
        assert_eq!((ways[0], ways[1], ways[19]), (7 * 8, 7 * 16, 7 * 64));
    }

    /// Scenario: pauses between attempts are long. Guarantee: a request that was late before
    /// counts, however long ago that was.
    #[test]
    fn a_request_that_is_late_again_goes_on_with_its_row() {
        let (mut late, now) = (late(), Instant::now());
        late.note_late(5_000, false, now);
        let later = now + 20 * ROW_LASTS;
        assert_eq!(late.note_late(5_000, true, later), Late::Cut { first_size: Some(2_500) });
    }

    /// Guarantee: without a least size, or below it, nothing is cut.
    #[test]
    fn what_may_not_be_cut_stays_whole() {
        for (least, configured) in [(None, 10_000), (Some(100), 50), (Some(0), 1)] {
            let (mut late, now) = (LateRequests::new(least, configured), Instant::now());
            for _ in 0..10 {
                assert_eq!(late.note_late(configured, false, now), Late::Whole);
            }
            assert_eq!(late.size(), configured);
        }
    }
}
