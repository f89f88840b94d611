//! How fast a port accepts connections.

use std::time::Duration;

use tokio::time::Instant;

/// Connections that a port accepts in an interval for each core, at most. Thousands that come at
/// once would keep those that are open waiting until all have been looked at.
const ACCEPTED_AT_ONCE: usize = 8;
const ACCEPT_INTERVAL: Duration = Duration::from_millis(1);

pub(super) struct AcceptPace {
    most: usize,
    left: usize,
    began: Instant,
}

impl AcceptPace {
    pub(super) fn new(cores: usize, now: Instant) -> Self {
        let most = ACCEPTED_AT_ONCE * cores;
        AcceptPace { most, left: most, began: now }
    }

    /// When the next connection may be accepted, if this was the last one of its interval.
    pub(super) fn note_accepted(&mut self, now: Instant) -> Option<Instant> {
        if now - self.began >= ACCEPT_INTERVAL {
            (self.left, self.began) = (self.most, now);
        }
        self.left = self.left.saturating_sub(1);
        (self.left == 0).then(|| self.began + ACCEPT_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: thousands of connections that come at once are spread over time; those that come
    /// one by one do not wait.
    #[test]
    fn a_burst_of_connections_is_spread() {
        let began = Instant::now();
        let (mut pace, mut now) = (AcceptPace::new(2, began), began);
        for _ in 0..100 * 2 * ACCEPTED_AT_ONCE {
            now = pace.note_accepted(now).unwrap_or(now);
        }
        assert_eq!(now - began, 100 * ACCEPT_INTERVAL);
        for _ in 0..100 {
            now += ACCEPT_INTERVAL;
            assert_eq!(pace.note_accepted(now), None);
        }
    }
}
