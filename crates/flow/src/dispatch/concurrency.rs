//! The limit of requests in flight: as many as raise the goodput, no more.
//!
//! A hill climb on delivered bytes a second, judged only in windows in which the limit delayed
//! requests. Schemes that react to latency or to refusals differ: this one does not slow down for a
//! backend that refuses at random (fewer in flight would deliver less), and backs off from one that
//! slows down under load (fewer deliver as much).

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcurrencyLimits {
    pub initial: usize,
    pub max: usize,
}

impl Default for ConcurrencyLimits {
    fn default() -> Self {
        ConcurrencyLimits { initial: 8, max: 64 }
    }
}

const WINDOW: Duration = Duration::from_millis(200);
/// A window needs this many finished requests to count.
const WINDOW_MIN_REQUESTS: u32 = 8;
/// Factor of the goodput at which a raised limit stays, and at which a lowered one stays.
const GAIN: f64 = 1.05;
const LOSS: f64 = 0.97;
/// Windows to rest between two experiments that failed; doubles up to the maximum.
const REST_WINDOWS: u32 = 4;
const REST_WINDOWS_MAX: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Experiment {
    /// Measuring the present limit; then the next experiment, in the given direction.
    Rest { windows: u32, next_up: bool },
    /// A new limit is on trial against `baseline` bytes a second at `limit`.
    Trial { limit: usize, baseline: f64 },
}

#[derive(Debug)]
pub struct Concurrency {
    limit: usize,
    max: usize,
    in_flight: usize,
    experiment: Experiment,
    rest: u32,
    climbing: bool,
    window_start: Option<Instant>,
    window_bytes: u64,
    window_requests: u32,
    saturated: bool,
}

impl Concurrency {
    pub fn new(limits: ConcurrencyLimits) -> Self {
        let max = limits.max.max(1);
        Concurrency {
            limit: limits.initial.clamp(1, max),
            max,
            in_flight: 0,
            experiment: Experiment::Rest { windows: 1, next_up: true },
            rest: REST_WINDOWS,
            climbing: true,
            window_start: None,
            window_bytes: 0,
            window_requests: 0,
            saturated: false,
        }
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub fn free(&self) -> usize {
        self.limit.saturating_sub(self.in_flight)
    }

    pub fn start(&mut self, now: Instant) {
        self.in_flight += 1;
        self.window_start.get_or_insert(now);
        self.saturated |= self.in_flight >= self.limit;
    }

    /// Counts the end of a request. `delivered_bytes` is 0 unless the backend took it.
    pub fn finish(&mut self, delivered_bytes: u64, now: Instant) {
        self.in_flight -= 1;
        self.window_bytes += delivered_bytes;
        self.window_requests += 1;
        let Some(start) = self.window_start else { return };
        let elapsed = now.saturating_duration_since(start);
        let enough = self.window_requests >= WINDOW_MIN_REQUESTS.max(2 * self.limit as u32);
        if elapsed >= WINDOW && enough {
            let goodput = self.window_bytes as f64 / elapsed.as_secs_f64();
            if self.saturated && goodput > 0.0 {
                self.judge(goodput);
            }
            self.window_start = Some(now);
            self.window_bytes = 0;
            self.window_requests = 0;
            self.saturated = self.in_flight >= self.limit;
        }
    }

    fn judge(&mut self, goodput: f64) {
        match self.experiment {
            Experiment::Rest { windows, next_up } if windows > 1 => {
                self.experiment = Experiment::Rest { windows: windows - 1, next_up };
            }
            Experiment::Rest { next_up, .. } => self.try_other(goodput, next_up),
            Experiment::Trial { limit: before, baseline } => {
                let raised = self.limit > before;
                if goodput >= baseline * if raised { GAIN } else { LOSS } {
                    if raised {
                        self.rest = REST_WINDOWS;
                    }
                    self.try_other(goodput, raised);
                } else {
                    self.climbing = false;
                    self.limit = before;
                    self.experiment = Experiment::Rest { windows: self.rest, next_up: !raised };
                    self.rest = (self.rest * 2).min(REST_WINDOWS_MAX);
                }
            }
        }
    }

    fn try_other(&mut self, goodput: f64, up: bool) {
        let before = self.limit;
        self.limit = match (up, self.climbing) {
            (true, true) => (before * 2).min(self.max),
            (true, false) => (before + (before / 4).max(1)).min(self.max),
            (false, _) => (before - before / 4).max(1).min(before.saturating_sub(1).max(1)),
        };
        self.experiment = if self.limit == before {
            Experiment::Rest { windows: self.rest, next_up: !up }
        } else {
            Experiment::Trial { limit: before, baseline: goodput }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a closed loop against a backend whose goodput (bytes a second) depends on the number of
    /// requests in flight.
    fn settle(backend: impl Fn(usize) -> f64, limits: ConcurrencyLimits, seconds: f64) -> usize {
        let mut concurrency = Concurrency::new(limits);
        let start = Instant::now();
        let (mut elapsed, request_bytes) = (0.0, 1000u64);
        let mut late_limits = Vec::new();
        while elapsed < seconds {
            let now = start + Duration::from_secs_f64(elapsed);
            while concurrency.free() > 0 {
                concurrency.start(now);
            }
            elapsed += request_bytes as f64 / backend(concurrency.in_flight());
            concurrency.finish(request_bytes, start + Duration::from_secs_f64(elapsed));
            if elapsed > seconds * 0.75 {
                late_limits.push(concurrency.limit());
            }
        }
        late_limits.sort_unstable();
        late_limits[late_limits.len() / 2]
    }

    #[test]
    fn climbs_while_more_in_flight_delivers_more() {
        // Latency-bound: each slot adds its share, up to 40.
        let limit = settle(
            |slots| 10_000.0 * slots.min(40) as f64,
            ConcurrencyLimits { initial: 4, max: 64 },
            120.0,
        );
        assert!((30..=50).contains(&limit), "limit {limit}");
    }

    #[test]
    fn shrinks_when_fewer_deliver_as_much() {
        // One worker behind a queue: two in flight deliver as much as sixty.
        let limit = settle(|_| 200_000.0, ConcurrencyLimits { initial: 64, max: 64 }, 240.0);
        assert!(limit <= 16, "limit {limit}");
    }

    #[test]
    fn leaves_a_backend_that_slows_down_under_load() {
        let backend = |slots: usize| {
            10_000.0 * slots.min(8) as f64 / (1.0 + (slots.saturating_sub(8) as f64) * 0.2)
        };
        let limit = settle(backend, ConcurrencyLimits { initial: 32, max: 64 }, 240.0);
        assert!((5..=14).contains(&limit), "limit {limit}");
    }

    #[test]
    fn never_leaves_its_bounds() {
        for max in [1, 2, 3] {
            let limit =
                settle(|slots| 1000.0 * slots as f64, ConcurrencyLimits { initial: 8, max }, 60.0);
            assert!((1..=max).contains(&limit));
        }
    }
}
