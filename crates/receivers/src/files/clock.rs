//! The time of a receiver, which passes faster in tests of long outages.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    began: Instant,
    /// Seconds that pass in one.
    rate: u32,
}

impl Clock {
    pub(super) fn new(rate: u32) -> Clock {
        Clock { began: Instant::now(), rate }
    }

    pub(super) fn now(self) -> Instant {
        match self.rate {
            1 => Instant::now(),
            rate => self.began + self.began.elapsed() * rate,
        }
    }

    pub(super) async fn sleep(self, time: Duration) {
        tokio::time::sleep(time / self.rate).await;
    }

    pub(super) async fn sleep_until(self, at: Instant) {
        let elapsed = at.saturating_duration_since(self.began) / self.rate;
        tokio::time::sleep_until((self.began + elapsed).into()).await;
    }
}
