//! Why an engine could not start.

use crate::admin::AdminError;
use crate::storage::StorageError;

/// Why a plan could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("exporter {id}: {reason}")]
    Exporter { id: String, reason: String },
    #[error("extension {id}: {reason}")]
    Extension { id: String, reason: String },
    #[error("receiver {id}: {reason}")]
    Receiver { id: String, reason: String },
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Admin(#[from] AdminError),
}
