//! The disk of the operating system, and the lock of a directory.
//!
//! Whole blocks are written past the kernel's page cache. Frames are written once, and read again
//! only after a backend was away, so that a page for them is wasted: the copy costs more CPU time
//! than all other work of writing, checksums included, and pages that wait for the disk count as
//! memory of the container.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::{fs, io};

use rustix::fs::{FallocateFlags, OFlags, fallocate, fdatasync, statvfs};
use rustix::io::{Errno, retry_on_intr};

use super::{Access, DirectoryEntry, Disk, DiskFile, write_all_at};
use crate::error::FileError;

/// Zeros are written in pieces of this size if the file system cannot reserve space.
const ZEROS_LEN_BYTES: usize = 1 << 20;

/// Files and directories of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl RealDisk {
    /// Bytes that an unprivileged process may still write to the file system behind a path. An
    /// error if the file system has no size, as some in memory or on the network.
    pub fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        let status = statvfs(path)?;
        if status.f_blocks == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }
}

struct RealFile {
    file: File,
    direct: Direct,
    /// The file system counts the names of files.
    counts_names: bool,
    /// The file system tells by a path which file is there.
    tells_files: bool,
}

impl RealFile {
    fn handle(file: File, path: &Path) -> Arc<dyn DiskFile> {
        let attributes = file.metadata().ok();
        let counts_names = attributes.as_ref().is_some_and(|it| it.nlink() > 0);
        let there = fs::metadata(path).ok();
        let tells_files =
            attributes.is_some_and(|it| there.is_some_and(|there| is_same(&it, &there)));
        Arc::new(RealFile { file, direct: Direct::new(path), counts_names, tells_files })
    }
}

impl Disk for RealDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        Ok(RealFile::handle(file, path))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(access == Access::ReadWrite).open(path)?;
        Ok(RealFile::handle(file, path))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let attributes = match entry.metadata() {
                Ok(attributes) => attributes,
                // It was removed meanwhile: a process may be running on the directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let is_directory = attributes.is_dir();
            let len_bytes = if is_directory { 0 } else { attributes.len() };
            entries.push(DirectoryEntry { name, is_directory, len_bytes });
        }
        entries.sort();
        Ok(entries)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn device(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.dev())
    }
}

impl DiskFile for RealFile {
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let direct = self.direct.write_at(&self.file, bytes, position);
        direct.unwrap_or_else(|| self.file.write_at(bytes, position))
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    // An interrupted sync has not failed: the pages are still dirty.
    fn sync_data(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fdatasync(&self.file))?)
    }

    fn allocate(&self, len_bytes: u64) -> io::Result<()> {
        match retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), 0, len_bytes)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(self, self.len_bytes()?, len_bytes),
            result => Ok(result?),
        }
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.file.set_len(len_bytes)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let attributes = self.file.metadata()?;
        if self.counts_names && attributes.nlink() == 0 {
            return Ok(false);
        }
        match fs::metadata(path) {
            Ok(there) => Ok(!self.tells_files || is_same(&attributes, &there)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(false),
                _ => Err(error),
            },
        }
    }
}

/// Whether the attributes are of one file.
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Reserves space where the file system has no call for it.
fn write_zeros(file: &RealFile, start: u64, end: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_LEN_BYTES];
    (start..end).step_by(ZEROS_LEN_BYTES).try_for_each(|position| {
        let len = (end - position).min(ZEROS_LEN_BYTES as u64);
        write_all_at(file, &zeros[..len as usize], position)
    })
}

/// The second descriptor of a file, opened at the first aligned write with `O_DIRECT`. If the file
/// system does not support that, for any file or for some lengths, the file is written the usual
/// way from there on.
struct Direct {
    path: PathBuf,
    /// None: it cannot be opened.
    file: OnceLock<Option<File>>,
    is_refused: AtomicBool,
}

impl Direct {
    fn new(path: &Path) -> Self {
        Direct { path: path.to_owned(), file: OnceLock::new(), is_refused: AtomicBool::new(false) }
    }

    /// One system call. None: these bytes are to be written the usual way.
    fn write_at(&self, file: &File, bytes: &[u8], position: u64) -> Option<io::Result<usize>> {
        if !is_aligned(bytes, position) || self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        let direct = self.file.get_or_init(|| open_direct(&self.path, file)).as_ref()?;
        let written = direct.write_at(bytes, position);
        let refusal = written.as_ref().err().and_then(Errno::from_io_error);
        if matches!(refusal, Some(Errno::INVAL | Errno::OPNOTSUPP)) {
            // Whatever the cause, the usual way may work.
            self.is_refused.store(true, Ordering::Relaxed);
            return None;
        }
        Some(written)
    }
}

/// A second handle of the file, if the path still leads to it and the file system allows it.
fn open_direct(path: &Path, file: &File) -> Option<File> {
    let direct = OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(path)
        .ok()?;
    let identity =
        |file: &File| file.metadata().map(|attributes| (attributes.dev(), attributes.ino())).ok();
    (identity(&direct)? == identity(file)?).then_some(direct)
}

/// Addresses, positions and lengths that are multiples of this suit the blocks of any usual disk.
pub const ALIGNMENT_BYTES: usize = 4096;

/// First capacity of a buffer, which grows to its limit: a log that writes little needs little.
const FIRST_CAPACITY_BYTES: usize = 64 << 10;

/// Bytes on their way to a file, in aligned memory.
#[derive(Debug)]
pub struct AlignedBuffer {
    /// Longer than the aligned part that is used. Never grows in place.
    memory: Vec<u8>,
    /// Index at which the aligned part of the memory begins.
    start: usize,
    capacity: usize,
    len: usize,
    limit: usize,
}

impl AlignedBuffer {
    /// A buffer of at most `limit_bytes`, rounded up to whole blocks. Allocates at the first use.
    pub fn new(limit_bytes: usize) -> Self {
        let limit = limit_bytes.next_multiple_of(ALIGNMENT_BYTES).max(ALIGNMENT_BYTES);
        AlignedBuffer { memory: Vec::new(), start: 0, capacity: 0, len: 0, limit }
    }

    /// Appends as many bytes as fit; returns the rest. If there is a rest, the buffer is full.
    #[must_use]
    pub fn append<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        self.reserve(bytes.len());
        let (now, rest) = bytes.split_at(bytes.len().min(self.capacity - self.len));
        let room = self.start + self.len;
        self.memory[room..room + now.len()].copy_from_slice(now);
        self.len += now.len();
        rest
    }

    /// Appends zeros up to the end of the block.
    pub fn fill_block(&mut self) {
        let len = self.len.next_multiple_of(ALIGNMENT_BYTES);
        self.memory[self.start + self.len..self.start + len].fill(0);
        self.len = len;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    fn reserve(&mut self, more: usize) {
        let wanted = self.len.saturating_add(more).min(self.limit);
        if wanted <= self.capacity {
            return;
        }
        let capacity =
            wanted.next_power_of_two().clamp(FIRST_CAPACITY_BYTES.min(self.limit), self.limit);
        let mut memory = vec![0; capacity + ALIGNMENT_BYTES];
        let start = memory.as_ptr().align_offset(ALIGNMENT_BYTES);
        memory[start..start + self.len].copy_from_slice(self.bytes());
        *self = AlignedBuffer { memory, start, capacity, ..*self };
    }
}

/// Whether a disk can take these bytes at this position without a copy.
fn is_aligned(bytes: &[u8], position: u64) -> bool {
    bytes.as_ptr().align_offset(ALIGNMENT_BYTES) == 0
        && !bytes.is_empty()
        && bytes.len().is_multiple_of(ALIGNMENT_BYTES)
        && position.is_multiple_of(ALIGNMENT_BYTES as u64)
}

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
    #[error(transparent)]
    File(#[from] FileError),
}

fn holder_name(holder: Option<u32>) -> String {
    holder.map_or_else(|| "another process".to_owned(), |pid| format!("the process {pid}"))
}

impl DirectoryLock {
    /// Takes ownership of a directory that exists, without waiting.
    pub fn acquire(directory: &Path) -> Result<Self, LockError> {
        let path = directory.join("lock");
        let failed = |error| {
            LockError::File(FileError::Io { path: path.clone(), action: "cannot lock", error })
        };
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

#[cfg(test)]
mod tests;
