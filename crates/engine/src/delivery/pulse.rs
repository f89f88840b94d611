//! What a delivery's backend did of late: by it is judged whether senders are slowed down for its sake, or it is left to itself.

use std::time::{Duration, Instant};

use sluice_flow::TakenShare;

use crate::stamp::Stamp;

/// A backend that took nothing for so long, of what it was sent, stands still.
const MOVING: Duration = Duration::from_millis(500);
/// So long nobody is slowed down for a delivery again for which it was done in vain: its senders send at a rate of their own.
const IN_VAIN: Duration = Duration::from_secs(60);
/// At 70 % refused, the share that is taken of so many requests varies by two hundredths.
const SHARE_REQUESTS: u32 = 256;

/// Written by the delivery's task, read by receivers.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// When something was taken, or sent after there was nothing to send.
    moved: Stamp,
    dropped: Stamp,
    in_vain: Stamp,
    taken_share: TakenShare,
}

impl Default for Pulse {
    fn default() -> Self {
        Pulse {
            moved: Stamp::default(),
            dropped: Stamp::default(),
            in_vain: Stamp::default(),
            taken_share: TakenShare::over(SHARE_REQUESTS),
        }
    }
}

impl Pulse {
    /// The first request after there was none under way.
    pub(super) fn note_begun(&self, now: Instant) {
        self.moved.set(now);
    }

    /// A request was answered: taken, or to be sent again.
    pub(super) fn note_answer(&self, is_taken: bool, now: Instant) {
        self.taken_share.note(is_taken);
        if is_taken {
            self.moved.set(now);
        }
    }

    /// The policy dropped something.
    pub(super) fn note_dropped(&self, now: Instant) {
        self.dropped.set(now);
    }

    /// A sender was slowed down from `began` on, as long as may be. `grew`: more waits for the delivery now.
    pub(crate) fn note_waited(&self, began: Instant, now: Instant, grew: bool) {
        if grew || self.dropped.is_after(began) {
            self.in_vain.set(now);
        }
    }

    /// Its backend takes something, and to slow senders down was not in vain.
    pub(super) fn is_worth_waiting_for(&self, now: Instant) -> bool {
        self.moved.is_within(MOVING, now) && !self.in_vain.is_within(IN_VAIN, now)
    }

    /// It is sicker than the other: not only slow as others are, under too much load.
    pub(crate) fn takes_less_than_half_of(&self, other: &Pulse) -> bool {
        self.taken_share.get() < other.taken_share.get() / 2.0
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
    fn a_backend_that_takes_nothing_is_not_waited_for() {
        let pulse = Pulse::default();
        assert!(!pulse.is_worth_waiting_for(after(0)));
        pulse.note_begun(after(0));
        assert!(pulse.is_worth_waiting_for(after(400)), "it may just be slow");
        pulse.note_answer(true, after(450));
        assert!(pulse.is_worth_waiting_for(after(900)));
        pulse.note_answer(false, after(920));
        assert!(!pulse.is_worth_waiting_for(after(1_000)));
    }

    #[test]
    fn nobody_waits_for_a_minute_once_it_was_in_vain() {
        let pulse = Pulse::default();
        let worth = |ms| {
            pulse.note_answer(true, after(ms));
            pulse.is_worth_waiting_for(after(ms))
        };
        pulse.note_dropped(after(1_000));
        pulse.note_waited(after(1_500), after(2_000), false);
        assert!(worth(2_000), "it was dropped before");
        pulse.note_dropped(after(2_500));
        pulse.note_waited(after(2_100), after(3_000), false);
        assert!(!worth(3_100) && !worth(62_900) && worth(63_100));
        pulse.note_waited(after(63_200), after(64_000), true);
        assert!(!worth(64_100));
    }

    #[test]
    fn who_refuses_much_more_than_another_is_sicker_and_who_refuses_as_much_is_not() {
        let (healthy, refusing, as_much) = (Pulse::default(), Pulse::default(), Pulse::default());
        for request in 0..4_000_u64 {
            healthy.note_answer(true, after(request));
            refusing.note_answer(request % 10 < 3, after(request));
            as_much.note_answer(request % 5 < 2, after(request));
        }
        assert!(refusing.takes_less_than_half_of(&healthy));
        assert!(!refusing.takes_less_than_half_of(&as_much) && !as_much.takes_less_than_half_of(&refusing));
        assert!(!healthy.takes_less_than_half_of(&refusing));
    }
}
