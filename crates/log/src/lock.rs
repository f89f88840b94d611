//! One process owns a directory.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, LockGuard};

/// Name of the lock file in the directory.
pub const LOCK_FILE_NAME: &str = "lock";

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{}: the directory is in use by {}", path.display(), holder_name(*holder))]
    Held {
        path: PathBuf,
        /// Process id of the owner, if it is known.
        holder: Option<u32>,
    },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

fn holder_name(holder: Option<u32>) -> String {
    holder.map_or_else(|| "another process".to_owned(), |pid| format!("the process {pid}"))
}

/// The ownership of a directory: ends when it is dropped, and with the process, however that ends.
pub struct DirectoryLock {
    _guard: Box<dyn LockGuard>,
}

impl DirectoryLock {
    /// Takes ownership of a directory that exists, without waiting.
    pub fn acquire(disk: &dyn Disk, directory: &Path) -> Result<Self, LockError> {
        Ok(DirectoryLock { _guard: disk.lock(&directory.join(LOCK_FILE_NAME))? })
    }
}
