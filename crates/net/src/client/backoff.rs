//! How long to wait before connecting again: gRPC's connection backoff with shorter times, because
//! the deliveries above wait, too, and a backend that is back should be used soon.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const FACTOR: f64 = 1.6;
const JITTER: f64 = 0.2;
const LIMIT: Duration = Duration::from_secs(5);

/// The pause after `failures` failed attempts in a row (1 or more).
pub(crate) fn pause(failures: u32) -> Duration {
    let exponent = failures.saturating_sub(1).min(20);
    let seconds = (FIRST.as_secs_f64() * FACTOR.powi(exponent as i32)).min(LIMIT.as_secs_f64());
    Duration::from_secs_f64(seconds * (1.0 + JITTER * (2.0 * fastrand::f64() - 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: one failure, many failures. Guarantee: the pause grows and stays within its limit
    /// and jitter.
    #[test]
    fn pauses_grow_to_a_limit() {
        for _ in 0..1000 {
            let first = pause(1);
            assert!(first >= FIRST.mul_f64(1.0 - JITTER) && first <= FIRST.mul_f64(1.0 + JITTER));
            let last = pause(u32::MAX);
            assert!(last >= LIMIT.mul_f64(1.0 - JITTER) && last <= LIMIT.mul_f64(1.0 + JITTER));
        }
        assert!(pause(4) > pause(1));
    }
}
