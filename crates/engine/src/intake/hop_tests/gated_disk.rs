//! A disk on which segments become durable when the test says so.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use sluice_log::disk::{Access, DirectoryEntry, Disk, DiskFile, RealDisk};

/// The gate before each sync of a segment.
#[derive(Default)]
pub(super) struct Gate {
    is_open: Mutex<(bool, usize)>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn open(&self) {
        self.is_open.lock().0 = true;
        self.opened.notify_all();
    }

    /// Whether a segment was written that is not durable yet.
    pub(super) fn is_waited_at(&self) -> bool {
        let waiting = self.is_open.lock();
        !waiting.0 && waiting.1 > 0
    }

    fn pass(&self) {
        let mut waiting = self.is_open.lock();
        waiting.1 += 1;
        self.opened.wait_while(&mut waiting, |it| !it.0);
    }
}

pub(super) struct GatedDisk(pub Arc<Gate>);

struct GatedFile(Arc<dyn DiskFile>, Arc<Gate>);

impl GatedDisk {
    fn gated(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        match path.extension() {
            Some(ending) if ending == "seg" => Arc::new(GatedFile(file, self.0.clone())),
            _ => file,
        }
    }
}

impl Disk for GatedDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.gated(path, RealDisk.create_new(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.open(path, access)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        RealDisk.list(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_directory(path)
    }

    fn device(&self, path: &Path) -> io::Result<u64> {
        RealDisk.device(path)
    }
}

impl DiskFile for GatedFile {
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        self.0.write_at(bytes, position)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(buffer, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.1.pass();
        self.0.sync_data()
    }

    fn allocate(&self, len_bytes: u64) -> io::Result<()> {
        self.0.allocate(len_bytes)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.set_len(len_bytes)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.0.len_bytes()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.0.is_at(path)
    }
}
