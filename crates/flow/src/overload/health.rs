//! The recent behaviour of a delivery's backend. It decides whether senders are slowed down for the
//! delivery or the delivery is isolated.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Stamp;
use crate::taken_share::TakenShare;

/// A backend with requests that took none for this long stands still.
pub const STILL: Duration = Duration::from_millis(500);
/// The same while the CPU is short: answers may have arrived and not been read.
const STILL_CPU_BOUND: Duration = Duration::from_secs(5);
/// The same for a backend that took requests again after such a halt: longer than a sender is
/// slowed down at most, so that the trial of rules 2 and 3 comes to an end.
const STILL_AFTER_HALT: Duration = Duration::from_secs(2);
/// A halt counts for this long.
const HALT_COUNTS: Duration = Duration::from_secs(10);
/// Least time over which a task is judged to compute most of the time or not.
const WORK_WINDOW: Duration = Duration::from_millis(250);
/// A judgement counts for this long: longer than a task computes before it is judged again.
const COMPUTES: Duration = Duration::from_secs(2);
/// A delivery counts as outpaced for this long after slowing senders for it did not help.
const OUTPACED: Duration = Duration::from_secs(60);

/// Written by the delivery's task, read by receivers.
#[derive(Debug, Default)]
pub struct BackendHealth {
    /// Time at which a request was taken, or the first one was sent after there was none.
    moved: Stamp,
    /// Time at which a request was taken after none for `STILL`, although the CPU was not short.
    halted: Stamp,
    /// Time at which a frame was dropped for the delivery.
    pub shed: Stamp,
    /// Time at which a request was not admitted because of the delivery.
    pub in_the_way: Stamp,
    /// Time at which slowing senders did not help (see [`super::delay::was_in_vain`]).
    pub outpaced: Stamp,
    /// Time at which the delivery's task was found to compute most of the time.
    computes: Stamp,
    /// Time at which the CPU was found to be short for the delivery.
    short_of_cpu: Stamp,
    in_outage: AtomicBool,
    /// A request is in flight or waits for a retry.
    is_busy: AtomicBool,
    /// While 70 % are refused, the standard deviation of the share is 0.02.
    taken_share: TakenShare<256>,
}

/// The state of a backend at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backend {
    /// An unbroken run of failures, or a configuration with which nothing can be sent.
    pub in_outage: bool,
    /// It has requests and has taken none for `STILL`, or longer after a halt or without CPU time.
    pub stands_still: bool,
    /// Slowing senders for it did not help within the last minute.
    pub is_outpaced: bool,
    /// All cores are busy, or the one that the delivery's own task can use.
    pub is_short_of_cpu: bool,
    /// It took a request, or got its first one, within that time.
    pub is_moving: bool,
    /// Share of its requests that it takes, 0 to 1.
    pub taken_share: f64,
}

impl BackendHealth {
    /// Notes the first request after there was none in flight.
    pub fn note_begun(&self, now: Instant) {
        self.moved.set(now);
        self.is_busy.store(true, Ordering::Relaxed);
    }

    pub fn note_idle(&self) {
        self.is_busy.store(false, Ordering::Relaxed);
    }

    pub fn note_answer(&self, is_taken: bool, now: Instant) {
        self.taken_share.note(is_taken);
        if is_taken {
            if !self.moved.is_within(STILL, now)
                && !self.short_of_cpu.is_within(STILL_CPU_BOUND, now)
            {
                self.halted.set(now);
            }
            self.moved.set(now);
        }
    }

    pub fn note_outage(&self, in_outage: bool) {
        self.in_outage.store(in_outage, Ordering::Relaxed);
    }

    /// Notes that the delivery's task has computed from `began` until now.
    pub fn note_work(&self, workload: &mut Workload, began: Instant, now: Instant) {
        if workload.note(began, now) {
            self.computes.set(now);
        }
    }

    /// The state now. Remembers if the CPU is short.
    pub fn judge(&self, now: Instant, is_cpu_bound: bool) -> Backend {
        let is_short_of_cpu = is_cpu_bound || self.computes.is_within(COMPUTES, now);
        if is_short_of_cpu {
            self.short_of_cpu.set(now);
        }
        let still = match is_short_of_cpu {
            true => STILL_CPU_BOUND,
            false if self.halted.is_within(HALT_COUNTS, now) => STILL_AFTER_HALT,
            false => STILL,
        };
        let is_moving = self.moved.is_within(still, now);
        Backend {
            in_outage: self.in_outage.load(Ordering::Relaxed),
            stands_still: self.is_busy.load(Ordering::Relaxed) && !is_moving,
            is_outpaced: self.outpaced.is_within(OUTPACED, now),
            is_short_of_cpu,
            is_moving,
            taken_share: self.taken_share.get(),
        }
    }
}

/// Share of its time that a task computes instead of waiting for its backend. It has one core.
#[derive(Debug)]
pub struct Workload {
    since: Instant,
    computed: Duration,
}

impl Workload {
    pub fn starting(now: Instant) -> Self {
        Workload { since: now, computed: Duration::ZERO }
    }

    /// True at the end of a window of which the task computed at least three quarters.
    fn note(&mut self, began: Instant, now: Instant) -> bool {
        self.computed += now.saturating_duration_since(began);
        let window = now.saturating_duration_since(self.since);
        if window < WORK_WINDOW {
            return false;
        }
        let is_most = self.computed * 4 >= window * 3;
        (self.since, self.computed) = (now, Duration::ZERO);
        is_most
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    fn after(ms: u64) -> Instant {
        *START + Duration::from_millis(ms)
    }

    #[test]
    fn a_backend_that_takes_nothing_stands_still_and_an_idle_one_does_not() {
        let health = BackendHealth::default();
        let stands_still = |ms| health.judge(after(ms), false).stands_still;
        assert!(!stands_still(0) && !stands_still(10_000), "it was sent nothing");
        health.note_begun(after(10_000));
        assert!(!stands_still(10_400) && stands_still(10_600));
        assert!(
            !health.judge(after(14_000), true).stands_still,
            "its answers may be there, unread"
        );
        assert!(health.judge(after(15_100), true).stands_still);
        health.note_answer(false, after(15_200));
        assert!(stands_still(15_250), "a refusal is no sign of movement");
        health.note_answer(true, after(15_300));
        assert!(!stands_still(15_700));
        health.note_idle();
        assert!(!stands_still(60_000));
    }

    #[test]
    fn a_backend_that_halted_lately_is_given_more_time() {
        let health = BackendHealth::default();
        let stands_still = |ms| health.judge(after(ms), false).stands_still;
        health.note_begun(after(1_000));
        health.note_answer(true, after(1_490));
        assert!(stands_still(2_000), "it has not halted before");
        health.note_answer(false, after(2_050));
        health.note_answer(true, after(2_100));
        assert!(!stands_still(4_050) && stands_still(4_100));
        (5_000..20_000).step_by(400).for_each(|ms| health.note_answer(true, after(ms)));
        assert!(!stands_still(20_050) && stands_still(20_400), "that was long ago");
        assert!(!health.judge(after(20_400), true).stands_still, "the CPU is short");
        health.note_answer(true, after(21_000));
        assert!(stands_still(21_600), "the halt may have been for want of CPU time");
    }

    /// Turns of `works` ms of work and `waits` ms of waiting, for `ms` from `from` on.
    fn work(health: &BackendHealth, from: u64, ms: u64, [works, waits]: [u64; 2]) {
        let mut workload = Workload::starting(after(0));
        for began in (from..from + ms).step_by((works + waits) as usize) {
            health.note_work(&mut workload, after(began), after(began + works));
        }
    }

    #[test]
    fn a_task_that_computes_most_of_the_time_is_short_of_cpu() {
        for (turn, expected) in [
            ([17, 0], true),
            ([17, 1], true),
            ([200, 50], true),
            ([400, 10], true),
            ([1, 1], false),
            ([50, 250], false),
            ([300, 300], false),
        ] {
            let health = BackendHealth::default();
            work(&health, 60_000, 1_500, turn);
            assert_eq!(health.judge(after(61_500), false).is_short_of_cpu, expected, "{turn:?}");
            assert!(!health.judge(after(64_500), false).is_short_of_cpu, "{turn:?}: long ago");
            assert!(health.judge(after(64_500), true).is_short_of_cpu, "all cores are busy");
        }
    }

    #[test]
    fn answers_of_a_task_that_computes_may_be_unread() {
        let health = BackendHealth::default();
        health.note_begun(after(1_000));
        work(&health, 1_000, 3_000, [100, 10]);
        assert!(!health.judge(after(4_000), false).stands_still);
        assert!(health.judge(after(6_500), false).stands_still, "it has stopped to compute");
    }

    #[test]
    fn a_delivery_is_outpaced_for_a_minute() {
        let health = BackendHealth::default();
        health.outpaced.set(after(3_000));
        let is_outpaced = |ms| health.judge(after(ms), false).is_outpaced;
        assert!(is_outpaced(3_100) && is_outpaced(62_900) && !is_outpaced(63_100));
    }
}
