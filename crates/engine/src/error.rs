//! Why an engine cannot start.

use std::fmt::Display;

use sluice_config::Class;

pub(crate) type Result<T, E = StartError> = std::result::Result<T, E>;

/// Why an engine could not start, or not take over another configuration. For people: it names the
/// component or the option at fault.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub(crate) String);

impl StartError {
    /// `place`: where the configuration defines the component, `gateway.yaml:3`.
    pub(crate) fn of(class: Class, id: &str, place: &str, reason: impl Display) -> StartError {
        StartError(format!("{} {id} ({place}): {reason}", class.name()))
    }
}
