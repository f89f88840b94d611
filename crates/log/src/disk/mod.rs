//! The disk as the log uses it: few operations, each of which a test can make fail.
//!
//! [`RealDisk`] does them with system calls. The tests have a disk that loses power, space and
//! pages. `WatchedDisk` knows which calls have no answer yet, and `reads` passes bad blocks.

mod reads;
mod real;
mod watched;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub(crate) use reads::{BadBlocks, ReadBuffer, Reads};
pub use real::{ALIGNMENT_BYTES, AlignedBuffer, DirectoryLock, LockError, RealDisk};
pub(crate) use watched::{CallKind, Calls, WatchedDisk};

/// Whether an opened file may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// Names that are not UTF-8 are not the log's, and are not listed.
    pub name: String,
    pub is_directory: bool,
    /// Length in bytes of a file, 0 of a directory.
    pub len_bytes: u64,
}

/// A file system. Nothing is durable before the file or the directory was synced.
pub trait Disk: Send + Sync + 'static {
    /// Creates a file that must not exist (mode 0600) and opens it for reading and writing.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates one directory (mode 0700). An error if something has its name. Use
    /// [`create_directories`].
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// The entries of a directory, sorted by name.
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Renames a file, replacing an existing one: at once or not at all.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes creations, removals and renames in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Number of the file system that a file or directory is on.
    fn device(&self, path: &Path) -> io::Result<u64>;
}

/// An open file, which several threads may use at once. Positions are in bytes.
pub trait DiskFile: Send + Sync {
    /// One system call: may write less than given, may be interrupted. Use [`write_all_at`]. If
    /// address, length and position are multiples of [`ALIGNMENT_BYTES`], bytes may go to the disk
    /// without a copy in the kernel's memory.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize>;
    /// One system call: see [`read_full_at`]. Returns 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Makes the data and the length durable (fdatasync). After an error the file's unsynced pages
    /// are lost, even if a later call succeeds: never sync a file again after it failed.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes the file `len_bytes` long and reserves its space.
    fn allocate(&self, len_bytes: u64) -> io::Result<()>;
    fn set_len(&self, len_bytes: u64) -> io::Result<()>;
    fn len_bytes(&self) -> io::Result<u64>;
    /// Whether a path leads to the file: false after the file or a directory above it was removed
    /// or moved away.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
}

/// Creates a directory, and those above it that are missing, unless it is there. [`sync_above`]
/// makes their names durable.
pub fn create_directories(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let created = match disk.create_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty()) else {
                return Err(error);
            };
            create_directories(disk, parent)?;
            disk.create_directory(path)
        }
        created => created,
    };
    unless_there(created)
}

/// Creates one directory unless it is there.
pub(crate) fn create_if_missing(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    unless_there(disk.create_directory(path))
}

fn unless_there(created: io::Result<()>) -> io::Result<()> {
    match created {
        // The first use shows whether it is a directory.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

/// Makes the names of a directory and of those above it durable, within its file system: a process
/// that created them may have ended before it synced them. The directory's own name has to be made
/// durable, the others as far as this process may.
pub fn sync_above(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem};
    let device = disk.device(path)?;
    for (index, above) in path.ancestors().skip(1).enumerate() {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        if disk.device(above)? != device {
            break;
        }
        match disk.sync_directory(above) {
            // It is not this process that created it, or it cannot be changed.
            Err(error)
                if index > 0
                    && [InvalidInput, PermissionDenied, ReadOnlyFilesystem]
                        .contains(&error.kind()) =>
            {
                break;
            }
            synced => synced?,
        }
    }
    Ok(())
}

/// Removes a file. False if it is not there.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match disk.remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// Writes all of `bytes`: goes on after a short write and after an interruption.
pub fn write_all_at(file: &dyn DiskFile, mut bytes: &[u8], mut position: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, position) {
            Ok(0) => {
                let error = "the disk took no byte of a write";
                return Err(io::Error::new(io::ErrorKind::WriteZero, error));
            }
            Ok(written) => {
                position += written as u64;
                bytes = &bytes[written..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends; returns how many bytes were read.
pub fn read_full_at(file: &dyn DiskFile, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
