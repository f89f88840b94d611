//! Why an engine cannot start, and why a request is refused for now.

use std::fmt::Display;
use std::time::Duration;

use sluice_config::Class;
use sluice_flow::Refusal;

/// Why an engine could not start, or not take over another configuration. For people: it names the
/// component or the option at fault.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub(crate) String);

impl StartError {
    pub(crate) fn of(class: Class, id: &str, reason: impl Display) -> StartError {
        StartError(format!("{} {id}: {reason}", class.name()))
    }
}

/// Asks the sender to retry in about a second. The delay is random, so that refused senders do not
/// return all at once.
pub(crate) fn overloaded(reason: impl Into<String>) -> Refusal {
    let delay = Duration::from_millis(fastrand::u64(750..1500));
    Refusal::Retry { delay, reason: reason.into() }
}
