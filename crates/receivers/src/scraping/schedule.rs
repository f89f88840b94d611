//! When a target is scraped: at its own point of each interval, without drift. A slot that has
//! passed is left out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep_until};

/// Timers fire this late at most without being late: such samples have the time of their slot.
const TOLERANCE: Duration = Duration::from_millis(2);

/// A slot counts as missed when this part of the interval has passed.
const LATE_PART: u32 = 10;

pub(crate) struct Schedule {
    interval: Duration,
    /// The first slot, on both clocks.
    first: Instant,
    first_wall: Duration,
    /// The slot to come, at least.
    next: u64,
}

/// One slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    /// Milliseconds since 1970, of the samples.
    pub(crate) time_ms: i64,
    /// Slots that were left out before it.
    pub(crate) missed: u64,
}

/// Since 1970.
pub(crate) fn now_wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    u64::try_from(now_wall().as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Schedule {
    /// `wait`: until the first slot.
    pub(crate) fn new(interval: Duration, wait: Duration) -> Schedule {
        let (first, first_wall) = (Instant::now() + wait, now_wall() + wait);
        Schedule { interval, first, first_wall, next: 0 }
    }

    /// Waits for the next slot. A call that is dropped loses none.
    pub(crate) async fn next(&mut self) -> Tick {
        let slot = self.coming(Instant::now());
        sleep_until(self.at(slot)).await;
        self.take(slot, now_wall())
    }

    /// The slot that is not over yet, and was not taken.
    fn coming(&self, now: Instant) -> u64 {
        slot(now.saturating_duration_since(self.first), self.interval).max(self.next)
    }

    fn at(&self, slot: u64) -> Instant {
        self.first + times(self.interval, slot)
    }

    fn take(&mut self, slot: u64, wall: Duration) -> Tick {
        let missed = slot - self.next;
        self.next = slot + 1;
        let planned = self.first_wall + times(self.interval, slot);
        Tick { time_ms: millis(aligned(wall, planned, self.interval)), missed }
    }
}

/// The slot that begins now or next, so long after the first.
fn slot(passed: Duration, interval: Duration) -> u64 {
    let interval_ns = interval.as_nanos().max(1);
    let (whole, into_ns) = (passed.as_nanos() / interval_ns, passed.as_nanos() % interval_ns);
    let is_late = into_ns > interval_ns / u128::from(LATE_PART);
    u64::try_from(whole).unwrap_or(u64::MAX - 1) + u64::from(is_late)
}

fn times(interval: Duration, slot: u64) -> Duration {
    let nanos = interval.as_nanos().saturating_mul(u128::from(slot));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The time of samples: the slot's unless it was left by more than the tolerance.
fn aligned(now: Duration, planned: Duration, interval: Duration) -> Duration {
    let tolerance = TOLERANCE.min(interval / 100);
    if now.abs_diff(planned) <= tolerance { planned } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Scenario: a target is scraped for an hour; some scrapes take longer than the interval, and
    /// timers are late by some milliseconds. Guarantee: all begin at the target's point, what was
    /// missed is counted, and a wait that is given up loses no slot.
    #[test]
    fn slots_do_not_drift_and_missed_ones_are_left_out() {
        let mut schedule = Schedule::new(15 * SECOND, 4 * SECOND);
        let (first, wall) = (schedule.first, schedule.first_wall);
        let (mut now, mut missed) = (first - 4 * SECOND, 0);
        for round in 0..240 {
            let slot = schedule.coming(now);
            assert_eq!(schedule.coming(now), slot, "it was not taken");
            let at = schedule.at(slot);
            assert!(at >= now || now - at <= SECOND * 3 / 2, "it is not late");
            assert_eq!((at - first).as_millis() % 15_000, 0);
            now = now.max(at) + Duration::from_millis(round % 4);
            let tick = schedule.take(slot, wall + (now - first));
            assert!(tick.time_ms - millis(wall + (at - first)) <= 3, "{tick:?}");
            missed += tick.missed;
            now += SECOND * if round % 60 == 58 { 40 } else { 1 };
        }
        assert_eq!(missed, 4 * 2);
    }

    #[test]
    fn a_slot_that_has_just_begun_is_taken() {
        let ten = 10 * SECOND;
        for (passed_ms, expected) in [(0, 0), (900, 0), (1001, 1), (10_000, 1), (25_000, 3)] {
            assert_eq!(slot(Duration::from_millis(passed_ms), ten), expected, "{passed_ms}");
        }
        assert_eq!(slot(Duration::MAX, Duration::from_nanos(1)), u64::MAX - 1);
        assert_eq!(times(Duration::MAX, u64::MAX), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn samples_have_the_time_of_their_slot_if_that_is_near() {
        let planned = Duration::from_secs(1_700_000_000);
        for (late_ms, interval, is_planned) in
            [(2, 15 * SECOND, true), (3, 15 * SECOND, false), (2, SECOND / 10, false)]
        {
            let late = planned + Duration::from_millis(late_ms);
            let expected = if is_planned { planned } else { late };
            assert_eq!(aligned(late, planned, interval), expected, "{late_ms}");
        }
        let early = planned - Duration::from_millis(1);
        assert_eq!(aligned(early, planned, SECOND), planned);
    }
}
