//! The time of the last event of a kind, readable without a lock.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The origin of all stamps.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds since `START`, plus one. Zero: the event never happened.
#[derive(Debug, Default)]
pub struct Stamp(AtomicU64);

impl Stamp {
    pub fn set(&self, at: Instant) {
        self.0.store(since_start_ms(at), Ordering::Relaxed);
    }

    /// Whether the event happened less than `time` before `now`.
    pub fn is_within(&self, time: Duration, now: Instant) -> bool {
        let at_ms = self.0.load(Ordering::Relaxed);
        at_ms > 0 && since_start_ms(now) < at_ms + time.as_millis() as u64
    }

    /// Whether the event happened at least a millisecond after `at`.
    pub fn is_after(&self, at: Instant) -> bool {
        self.0.load(Ordering::Relaxed) > since_start_ms(at)
    }
}

fn since_start_ms(at: Instant) -> u64 {
    1 + at.saturating_duration_since(*START).as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_happened_was_not_lately() {
        let (stamp, now, second) = (Stamp::default(), *START, Duration::from_secs(1));
        assert!(!stamp.is_within(second, now) && !stamp.is_after(now));
        stamp.set(now);
        assert!(
            stamp.is_within(second, now)
                && stamp.is_within(second, now + Duration::from_millis(999))
        );
        assert!(!stamp.is_within(second, now + second) && !stamp.is_after(now));
        stamp.set(now + second);
        assert!(stamp.is_after(now) && !stamp.is_after(now + second));
    }
}
