//! Why an engine could not start.

use sluice_config::Class;

use crate::admin::AdminError;
use crate::storage::StorageError;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{class} {id}: {reason}")]
    Component { class: &'static str, id: String, reason: String },
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl StartError {
    pub(crate) fn of(class: Class, id: &str, reason: impl ToString) -> StartError {
        let (class, id, reason) = (class.name(), id.to_owned(), reason.to_string());
        StartError::Component { class, id, reason }
    }
}
