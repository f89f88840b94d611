//! Refusals that the log was not told of yet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_flow::overload::Stamp;

/// Lines about refusals for one reason are at least this far apart.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Refusals for one reason since the last line in the log about them.
#[derive(Default)]
pub(crate) struct Untold {
    told_at: Stamp,
    requests: AtomicU64,
}

impl Untold {
    /// Counts a refusal. Returns the number of those since the last line, if it is time for one.
    pub(crate) fn count(&self, now: Instant) -> Option<u64> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.told_at.is_within(LINE_INTERVAL, now) {
            return None;
        }
        self.told_at.set(now);
        Some(self.requests.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: of a flood, the first refusal is told at once, and then a number every ten
    /// seconds.
    #[test]
    fn a_flood_of_refusals_is_told_every_ten_seconds_with_its_number() {
        let (untold, start) = (Untold::default(), Instant::now());
        let told: Vec<_> = (0..205)
            .filter_map(|tick| untold.count(start + Duration::from_millis(tick * 100)))
            .collect();
        // A stamp has whole milliseconds.
        let is_right = told.len() == 3 && told[1..].iter().all(|many| (100..=101).contains(many));
        assert!(told[0] == 1 && is_right, "{told:?}");
    }
}
