//! Why a request is not accepted.

use std::time::Duration;

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Come back later: UNAVAILABLE + RetryInfo, 503 + Retry-After.
    Retry { delay: Duration, reason: String },
    /// The request can never fit, however often it is sent: RESOURCE_EXHAUSTED without RetryInfo, 413.
    TooLarge { reason: String },
    /// The data is at fault and will be refused again: INVALID_ARGUMENT, 400.
    Invalid { reason: String },
    /// The sole backend refused it for good (`buffer.ack: delivered` with one delivery): handed on to the sender.
    Rejected { reason: String },
    /// No pipeline takes this signal from this receiver: UNIMPLEMENTED, 404.
    Unrouted,
}

impl Refusal {
    /// When the same request may be tried again. `None`: never, it would be refused again.
    pub fn retry_delay(&self) -> Option<Duration> {
        match self {
            Refusal::Retry { delay, .. } => Some(*delay),
            Refusal::TooLarge { .. } | Refusal::Invalid { .. } | Refusal::Rejected { .. } | Refusal::Unrouted => None,
        }
    }
}
