//! For how long the disk has refused without a break.

use std::time::{Duration, Instant};

use sluice_log::READ_PATIENCE;

/// A refusal after a longer time without one begins anew: the disk may have worked in between.
const BREAK: Duration = Duration::from_secs(5);

/// Refusals of one store. Attempts follow each other each second as long as there are letters.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// When the first and the last of the present refusals came.
    refused: Option<(Instant, Instant)>,
}

impl Patience {
    /// To be called before an attempt, with the time from which on it was to be made: how long it
    /// then waits for its turn says nothing about the disk.
    pub(super) fn begin(&mut self, ready: Instant) {
        self.refused = self.refused.filter(|(_, last)| ready.duration_since(*last) <= BREAK);
    }

    /// The attempt was refused. True if the disk has refused to read a part of the state for long:
    /// then the rest of it counts.
    pub(super) fn refuse(&mut self, now: Instant) -> bool {
        let (first, last) = self.refused.get_or_insert((now, now));
        *last = now;
        now.duration_since(*first) >= READ_PATIENCE
    }

    /// The attempt succeeded.
    pub(super) fn end(&mut self) {
        self.refused = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse_at(patience: &mut Patience, at: Instant) -> bool {
        patience.begin(at);
        patience.refuse(at)
    }

    /// Guarantee: only refusals that follow each other for long count as long. One of long ago does
    /// not make the next one so, nor does one before a success.
    #[test]
    fn a_refusal_of_long_ago_does_not_count() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut patience = Patience::default();
        for at in 0..10 {
            assert!(!refuse_at(&mut patience, start + at * second));
        }
        assert!(refuse_at(&mut patience, start + READ_PATIENCE));
        let later = start + 3_600 * second;
        assert!(!refuse_at(&mut patience, later));
        assert!(!refuse_at(&mut patience, later + 4 * second));
        patience.end();
        assert!(!refuse_at(&mut patience, later + 8 * second));
        assert!(!refuse_at(&mut patience, later + 12 * second));
    }

    /// Guarantee: a disk that takes its time for each refusal is given up all the same.
    #[test]
    fn slow_refusals_follow_each_other_too() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut patience = Patience::default();
        let mut refuse = |begins: u32| {
            patience.begin(start + begins * second);
            patience.refuse(start + (begins + 9) * second)
        };
        assert_eq!([refuse(0), refuse(10)], [false, true]);
    }
}
