//! Parts of one bucket have times of their own: a backend that keeps one point of a series for each
//! time would overwrite the first part by the second.

use std::collections::BTreeMap;

use super::aggregate::Span;

/// Buckets whose parts are remembered.
const REMEMBERED: usize = 1024;
/// Places for parts in a bucket, counted from its end.
const PLACES: u64 = 1024;
/// The longest distance between two places: some backends keep no times below a millisecond.
const STEP: u64 = 1_000_000;

/// The number of parts that were written of each bucket.
pub(super) struct Parts {
    /// By the ends of buckets.
    written: BTreeMap<u64, u32>,
    /// Buckets up to this end were written, perhaps, by a process before this one.
    of_before: u64,
    /// Places that a process begins with in those: each process with another, most likely.
    first_place: u32,
    /// Buckets up to this end are forgotten.
    forgotten: u64,
}

impl Parts {
    /// Of a process that begins at `now`.
    pub(super) fn new(now: u64, lateness: u64) -> Self {
        let of_before = now.saturating_sub(lateness);
        Parts { written: BTreeMap::new(), of_before, first_place: place_of(now), forgotten: 0 }
    }

    /// The number of the next part of a bucket.
    pub(super) fn next(&self, end: u64, now: u64) -> u32 {
        match self.written.get(&end) {
            Some(written) => *written,
            None if end <= self.forgotten => place_of(now),
            None if end <= self.of_before => self.first_place,
            None => 0,
        }
    }

    pub(super) fn note(&mut self, span: &Span) {
        self.written.insert(span.end, span.part.wrapping_add(1));
        if self.written.len() > REMEMBERED
            && let Some((end, _)) = self.written.pop_first()
        {
            self.forgotten = self.forgotten.max(end);
        }
    }
}

/// One of the places but for the first, by the milliseconds of a time.
fn place_of(time: u64) -> u32 {
    (1 + time / 1_000_000 % (PLACES / 2)) as u32
}

impl Span {
    /// The time of the points of this part. `newest`: that of the newest point that is in it.
    pub(super) fn time(&self, newest: u64) -> u64 {
        if self.is_cut && self.part == 0 {
            return newest.max(self.start + 1);
        }
        let step = ((self.end - self.start) / PLACES).clamp(1, STEP);
        self.end - u64::from(self.part) % PLACES * step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn span(end: u64, part: u32, is_cut: bool) -> Span {
        Span { start: end - 10 * SECOND, end, part, is_cut }
    }

    /// Guarantee: a bucket's first part has the time of its end, and each further one another,
    /// within the bucket and a millisecond apart.
    #[test]
    fn parts_have_times_of_their_own() {
        let mut parts = Parts::new(100 * SECOND, 0);
        let mut times = Vec::new();
        for _ in 0..5 {
            let span = span(200 * SECOND, parts.next(200 * SECOND, 0), false);
            times.push(span.time(0));
            parts.note(&span);
        }
        let expected: Vec<u64> = (0..5).map(|part| 200 * SECOND - part * STEP).collect();
        assert_eq!(times, expected);
        let last = span(200 * SECOND, u32::MAX, false).time(0);
        assert!(last > 190 * SECOND && last < 200 * SECOND);
    }

    /// Scenario: a bucket is cut short at the end of a process, and goes on in the next one; a late
    /// point comes for one that the former process has written. Guarantee: no two times are equal.
    #[test]
    fn a_later_process_takes_other_times() {
        let former = Parts::new(100 * SECOND, 2 * SECOND);
        let cut = span(200 * SECOND, former.next(200 * SECOND, 0), true);
        assert_eq!(cut.time(195 * SECOND), 195 * SECOND);
        assert_eq!(cut.time(0), 190 * SECOND + 1);
        let later = Parts::new(196 * SECOND, 2 * SECOND);
        assert_eq!(later.next(200 * SECOND, 0), 0);
        assert_ne!(later.next(190 * SECOND, 0), 0);
    }

    /// Guarantee: what is remembered is bounded, and a bucket that is forgotten does not begin at
    /// its end again.
    #[test]
    fn forgotten_buckets_do_not_begin_anew() {
        let mut parts = Parts::new(0, 0);
        for index in 1..=2 * REMEMBERED as u64 {
            parts.note(&span(index * 10 * SECOND, 0, false));
        }
        assert_eq!(parts.written.len(), REMEMBERED);
        assert_ne!(parts.next(10 * SECOND, 77_000_000), 0);
        assert_eq!(parts.next(u64::MAX, 0), 0);
    }
}
