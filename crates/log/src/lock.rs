//! Ensures that one process owns a directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Ownership of a directory. It ends when this is dropped, and with the process, however that ends.
pub struct DirectoryLock {
    _file: File,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{}: the directory is in use by {}", directory.display(), holder_name(*holder))]
    InUse {
        directory: PathBuf,
        /// Process id of the owner, if it is known.
        holder: Option<u32>,
    },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

fn holder_name(holder: Option<u32>) -> String {
    holder.map_or_else(|| "another process".to_owned(), |pid| format!("the process {pid}"))
}

impl DirectoryLock {
    /// Takes ownership of a directory that exists, without waiting.
    pub fn acquire(directory: &Path) -> Result<Self, LockError> {
        let path = directory.join("lock");
        let failed = |error| LockError::Io { path: path.clone(), error };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        if let Err(error) = file.try_lock() {
            let TryLockError::WouldBlock = error else { return Err(failed(error.into())) };
            let mut holder = String::new();
            // The holder's process id is only for the message.
            let read = (&file).take(32).read_to_string(&mut holder);
            let holder = read.ok().and_then(|_| holder.trim().parse().ok());
            return Err(LockError::InUse { directory: directory.to_owned(), holder });
        }
        file.set_len(0).map_err(failed)?;
        file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0).map_err(failed)?;
        Ok(DirectoryLock { _file: file })
    }
}
