//! The wording and the delays of refusals.

use std::time::Duration;

use sluice_flow::Refusal;

/// A refusal that asks the sender to come back in about a second: spread out, so that refused senders do not return as one.
pub(crate) fn overloaded(reason: impl Into<String>) -> Refusal {
    let delay = Duration::from_millis(fastrand::u64(750..1500));
    Refusal::Retry { delay, reason: reason.into() }
}
