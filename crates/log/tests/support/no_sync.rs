//! A disk whose syncs do nothing: a power-cut test on it must see loss, or it cannot see any.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sluice_log::disk::{Access, DirectoryEntry, Disk, DiskFile};

pub struct NoSync<D>(pub D);

struct NoSyncFile(Arc<dyn DiskFile>);

impl<D: Disk> Disk for NoSync<D> {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(NoSyncFile(self.0.create_new(path)?)))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(NoSyncFile(self.0.open(path, access)?)))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.create_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.0.list(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn device(&self, path: &Path) -> io::Result<u64> {
        self.0.device(path)
    }
}

impl DiskFile for NoSyncFile {
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        self.0.write_at(bytes, position)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(buffer, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, len_bytes: u64) -> io::Result<()> {
        self.0.allocate(len_bytes)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.set_len(len_bytes)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.0.is_at(path)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.0.len_bytes()
    }
}
