//! One process owns a directory.

use std::path::Path;

use crate::disk::Disk;
pub use crate::disk::LockError;

/// Name of the lock file in the directory.
pub const LOCK_FILE_NAME: &str = "lock";

/// The ownership of a directory: ends when it is dropped, and with the process, however that ends.
pub struct DirectoryLock {
    _guard: Box<dyn Send + Sync>,
}

impl DirectoryLock {
    /// Takes ownership of a directory that exists, without waiting.
    pub fn acquire(disk: &dyn Disk, directory: &Path) -> Result<Self, LockError> {
        Ok(DirectoryLock { _guard: disk.lock(&directory.join(LOCK_FILE_NAME))? })
    }
}
