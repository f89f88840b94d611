//! A disk that knows which calls have no answer yet: one that hangs is in trouble.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Access, DirectoryEntry, Disk, DiskFile};

/// Calls that have begun and have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    state: Mutex<CallsState>,
}

#[derive(Debug, Default)]
struct CallsState {
    next: u64,
    /// When each began and its kind, oldest first.
    open: BTreeMap<u64, (Instant, CallKind)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// Frames cannot become durable while it has no answer.
    Write,
    Read,
}

impl Calls {
    /// The oldest call of a kind without an answer: for how long.
    pub(crate) fn longest(&self, kind: CallKind) -> Option<Duration> {
        let state = self.state.lock();
        let mut of_kind = state.open.values().filter(|(_, it)| *it == kind);
        of_kind.next().map(|(since, _)| since.elapsed())
    }

    fn during<A>(&self, kind: CallKind, call: impl FnOnce() -> A) -> A {
        let number = {
            let mut state = self.state.lock();
            state.next += 1;
            let number = state.next;
            state.open.insert(number, (Instant::now(), kind));
            number
        };
        let answer = call();
        self.state.lock().open.remove(&number);
        answer
    }
}

/// A disk that knows which calls have no answer yet.
#[derive(Clone)]
pub(crate) struct WatchedDisk {
    disk: Arc<dyn Disk>,
    watch: Watch,
}

#[derive(Clone)]
struct Watch {
    calls: Arc<Calls>,
    /// For the writer all calls are writes: without an answer to any of them it does not go on.
    is_of_writer: bool,
}

impl Watch {
    fn write<A>(&self, call: impl FnOnce() -> A) -> A {
        self.calls.during(CallKind::Write, call)
    }

    fn read<A>(&self, call: impl FnOnce() -> A) -> A {
        let kind = if self.is_of_writer { CallKind::Write } else { CallKind::Read };
        self.calls.during(kind, call)
    }
}

impl WatchedDisk {
    pub(crate) fn watching(disk: Arc<dyn Disk>) -> (WatchedDisk, Arc<Calls>) {
        let calls = Arc::<Calls>::default();
        let watch = Watch { calls: calls.clone(), is_of_writer: false };
        (WatchedDisk { disk, watch }, calls)
    }

    /// The same disk, for the log's writer.
    pub(crate) fn of_writer(self) -> Self {
        let watch = Watch { is_of_writer: true, ..self.watch };
        WatchedDisk { watch, ..self }
    }

    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(WatchedFile { file, watch: self.watch.clone() })
    }
}

impl Disk for WatchedDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let created = self.watch.write(|| self.disk.create_new(path));
        created.map(|file| self.file(file))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let opened = self.watch.read(|| self.disk.open(path, access));
        opened.map(|file| self.file(file))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.watch.write(|| self.disk.create_directory(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.watch.read(|| self.disk.list(path))
    }

    // Removing a large file may take long on a disk that works.
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.watch.read(|| self.disk.remove_file(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.watch.write(|| self.disk.rename(from, to))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.watch.write(|| self.disk.sync_directory(path))
    }

    fn device(&self, path: &Path) -> io::Result<u64> {
        self.watch.read(|| self.disk.device(path))
    }
}

struct WatchedFile {
    file: Arc<dyn DiskFile>,
    watch: Watch,
}

impl DiskFile for WatchedFile {
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        self.watch.write(|| self.file.write_at(bytes, position))
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.watch.read(|| self.file.read_at(buffer, position))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.watch.write(|| self.file.sync_data())
    }

    fn allocate(&self, len_bytes: u64) -> io::Result<()> {
        self.watch.write(|| self.file.allocate(len_bytes))
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.watch.write(|| self.file.set_len(len_bytes))
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.watch.read(|| self.file.len_bytes())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.watch.read(|| self.file.is_at(path))
    }
}
