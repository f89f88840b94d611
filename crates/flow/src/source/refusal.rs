//! Why a request is not accepted.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Come back later: UNAVAILABLE + RetryInfo, 503 + Retry-After.
    Retry { delay: Duration, reason: String },
    /// The request can never fit, however often it is sent: RESOURCE_EXHAUSTED without RetryInfo,
    /// 413.
    TooLarge { reason: String },
    /// The data is at fault and will be refused again: INVALID_ARGUMENT, 400.
    Invalid { reason: String },
    /// The sole backend refused it for good (`buffer.ack: delivered` with one delivery): handed on
    /// to the sender.
    Rejected { reason: String },
    /// The same, but the backend says that it has failed itself: UNKNOWN, 500.
    Failed { reason: String },
    /// No pipeline takes this signal from this receiver: UNIMPLEMENTED, 404.
    Unrouted,
}

impl Refusal {
    /// Asks the sender to retry in about a second. The delay is random, so that refused senders do
    /// not return all at once.
    pub fn overloaded(reason: impl Into<String>) -> Self {
        let delay = Duration::from_millis(fastrand::u64(750..1500));
        Refusal::Retry { delay, reason: reason.into() }
    }
}
