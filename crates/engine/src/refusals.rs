//! Retryable refusals and their delays.

use std::time::Duration;

use sluice_flow::Refusal;

/// Asks the sender to retry in about a second. The delay is random, so that refused senders do not
/// return all at once.
pub(crate) fn overloaded(reason: impl Into<String>) -> Refusal {
    let delay = Duration::from_millis(fastrand::u64(750..1500));
    Refusal::Retry { delay, reason: reason.into() }
}
