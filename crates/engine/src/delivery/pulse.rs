//! What a delivery's backend did of late: by it is judged whether senders are slowed down for its sake, or it is left to itself.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// A backend that took nothing for so long, of what it was sent, stands still.
const MOVING_MS: u64 = 500;
/// So long nobody is slowed down for a delivery again for which it was done in vain: its senders send at a rate of their own.
const IN_VAIN_MS: u64 = 60_000;
/// About so many requests the moving average goes back: at 70 % refused it varies by two hundredths.
const SHARE_REQUESTS: f32 = 256.0;

/// Written by the delivery's task, read by receivers.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// Times are milliseconds from here; zero: never.
    started: Instant,
    /// When something was taken, or sent after there was nothing to send.
    moved_ms: AtomicU64,
    dropped_ms: AtomicU64,
    in_vain_ms: AtomicU64,
    /// The bits of what was taken of the requests sent lately, 0 to 1.
    taken_share: AtomicU32,
}

impl Default for Pulse {
    fn default() -> Self {
        Pulse {
            started: Instant::now(),
            moved_ms: AtomicU64::new(0),
            dropped_ms: AtomicU64::new(0),
            in_vain_ms: AtomicU64::new(0),
            taken_share: AtomicU32::new(1.0_f32.to_bits()),
        }
    }
}

impl Pulse {
    /// The first request after there was none under way.
    pub(super) fn note_begun(&self, now: Instant) {
        self.moved_ms.store(self.ms(now), Ordering::Relaxed);
    }

    /// A request was answered: taken, or to be sent again.
    pub(super) fn note_answer(&self, is_taken: bool, now: Instant) {
        let share = self.taken_share();
        let share = share + (f32::from(u8::from(is_taken)) - share) / SHARE_REQUESTS;
        self.taken_share.store(share.to_bits(), Ordering::Relaxed);
        if is_taken {
            self.moved_ms.store(self.ms(now), Ordering::Relaxed);
        }
    }

    /// The policy dropped something.
    pub(super) fn note_dropped(&self, now: Instant) {
        self.dropped_ms.store(self.ms(now), Ordering::Relaxed);
    }

    /// A sender was slowed down from `began` on, as long as may be. `grew`: more waits for the delivery now.
    pub(crate) fn note_waited(&self, began: Instant, now: Instant, grew: bool) {
        if grew || self.dropped_ms.load(Ordering::Relaxed) > self.ms(began) {
            self.in_vain_ms.store(self.ms(now), Ordering::Relaxed);
        }
    }

    /// Its backend takes something, and to slow senders down was not in vain.
    pub(super) fn is_worth_waiting_for(&self, now: Instant) -> bool {
        let is_within = |at_ms: u64, ms: u64| at_ms > 0 && self.ms(now) < at_ms + ms;
        is_within(self.moved_ms.load(Ordering::Relaxed), MOVING_MS)
            && !is_within(self.in_vain_ms.load(Ordering::Relaxed), IN_VAIN_MS)
    }

    /// It is sicker than the other: not only slow as others are, under too much load.
    pub(crate) fn takes_less_than_half_of(&self, other: &Pulse) -> bool {
        self.taken_share() < other.taken_share() / 2.0
    }

    fn taken_share(&self) -> f32 {
        f32::from_bits(self.taken_share.load(Ordering::Relaxed))
    }

    fn ms(&self, at: Instant) -> u64 {
        1 + at.saturating_duration_since(self.started).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(pulse: &Pulse, ms: u64) -> Instant {
        pulse.started + Duration::from_millis(ms)
    }

    #[test]
    fn a_backend_that_takes_nothing_is_not_waited_for() {
        let pulse = Pulse::default();
        assert!(!pulse.is_worth_waiting_for(after(&pulse, 0)));
        pulse.note_begun(after(&pulse, 0));
        assert!(pulse.is_worth_waiting_for(after(&pulse, 400)), "it may just be slow");
        pulse.note_answer(true, after(&pulse, 450));
        assert!(pulse.is_worth_waiting_for(after(&pulse, 900)));
        pulse.note_answer(false, after(&pulse, 920));
        assert!(!pulse.is_worth_waiting_for(after(&pulse, 1_000)));
    }

    #[test]
    fn nobody_waits_for_a_minute_once_it_was_in_vain() {
        let pulse = Pulse::default();
        let worth = |ms| {
            pulse.note_answer(true, after(&pulse, ms));
            pulse.is_worth_waiting_for(after(&pulse, ms))
        };
        pulse.note_dropped(after(&pulse, 1_000));
        pulse.note_waited(after(&pulse, 1_500), after(&pulse, 2_000), false);
        assert!(worth(2_000), "it was dropped before");
        pulse.note_dropped(after(&pulse, 2_500));
        pulse.note_waited(after(&pulse, 2_100), after(&pulse, 3_000), false);
        assert!(!worth(3_100) && !worth(62_900) && worth(63_100));
        pulse.note_waited(after(&pulse, 63_200), after(&pulse, 64_000), true);
        assert!(!worth(64_100));
    }

    #[test]
    fn who_refuses_much_more_than_another_is_sicker_and_who_refuses_as_much_is_not() {
        let (healthy, refusing, as_much) = (Pulse::default(), Pulse::default(), Pulse::default());
        for request in 0..4_000_u64 {
            healthy.note_answer(true, after(&healthy, request));
            refusing.note_answer(request % 10 < 3, after(&refusing, request));
            as_much.note_answer(request % 5 < 2, after(&as_much, request));
        }
        assert!(refusing.takes_less_than_half_of(&healthy));
        assert!(!refusing.takes_less_than_half_of(&as_much) && !as_much.takes_less_than_half_of(&refusing));
        assert!(!healthy.takes_less_than_half_of(&refusing));
    }
}
