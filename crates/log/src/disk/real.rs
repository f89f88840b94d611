//! The disk of the operating system.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate, fdatasync, statvfs};
use rustix::io::{Errno, retry_on_intr};

use super::direct::Direct;
use super::{Access, DirectoryEntry, Disk, DiskFile, write_all_at};

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
}

impl RealFile {
    fn handle(file: File, path: &Path) -> Arc<dyn DiskFile> {
        let counts_names = file.metadata().is_ok_and(|attributes| attributes.nlink() > 0);
        Arc::new(RealFile { file, direct: Direct::new(path), counts_names })
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

    fn is_linked(&self) -> io::Result<bool> {
        Ok(!self.counts_names || self.file.metadata()?.nlink() > 0)
    }
}

/// Reserves space where the file system has no call for it.
fn write_zeros(file: &RealFile, start: u64, end: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_LEN_BYTES];
    (start..end).step_by(ZEROS_LEN_BYTES).try_for_each(|position| {
        let len = (end - position).min(ZEROS_LEN_BYTES as u64);
        write_all_at(file, &zeros[..len as usize], position)
    })
}
