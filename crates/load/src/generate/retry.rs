//! How a sender treats retryable answers.

use std::time::Duration;

/// How a sender treats a retryable answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Retry {
    /// Counts it as refused and goes on with the next request.
    Never,
    /// As SDKs do: waits for as long as the server asked, or exponentially longer with jitter, and
    /// occupies its stream meanwhile. After `give_up_after` the request counts as refused.
    Backoff { initial: Duration, max: Duration, give_up_after: Duration },
}

impl Retry {
    /// The OpenTelemetry SDKs' usual policy: 1 s, 1.5 times longer each time, at most 5 s, for a
    /// minute.
    pub const SDK: Retry = Retry::Backoff {
        initial: Duration::from_secs(1),
        max: Duration::from_secs(5),
        give_up_after: Duration::from_secs(60),
    };

    /// How long to wait before attempt number `attempt` (the first retry is 1), `None` to give up.
    /// `waited` is the time since the first attempt, `asked` what the server asked for.
    pub(crate) fn delay(
        &self,
        attempt: u32,
        waited: Duration,
        asked: Option<Duration>,
    ) -> Option<Duration> {
        let Retry::Backoff { initial, max, give_up_after } = *self else { return None };
        let backoff = initial.mul_f64(1.5_f64.powi(attempt.min(64) as i32 - 1)).min(max);
        // Half fixed, half random: senders that were refused together do not come back together.
        let delay = asked.unwrap_or_else(|| backoff.mul_f64(0.5 + fastrand::f64() / 2.0));
        (waited + delay <= give_up_after).then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_delay_is_honoured_and_patience_ends() {
        let retry = Retry::SDK;
        let asked = Some(Duration::from_secs(7));
        assert_eq!(retry.delay(1, Duration::ZERO, asked), asked);
        assert_eq!(retry.delay(1, Duration::from_secs(54), asked), None);
        assert_eq!(Retry::Never.delay(1, Duration::ZERO, asked), None);
        for attempt in 1..20 {
            let delay = retry.delay(attempt, Duration::ZERO, None).unwrap();
            assert!(
                delay >= Duration::from_millis(500) && delay <= Duration::from_secs(5),
                "{delay:?}"
            );
        }
    }
}
