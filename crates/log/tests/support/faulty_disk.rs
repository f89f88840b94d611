//! A disk that fails on demand: files in memory that lose unsynced pages, tear writes under way,
//! run out of space, inodes and descriptors, and fail in the n-th call.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use sluice_log::disk::{Access, DirectoryEntry, Disk, DiskFile};

pub use super::calls::{Call, Counts, Operation, input_output, no_space, too_many_open_files};
use super::memory_file::MemoryFile;
pub use super::memory_file::Unsynced;
use super::names::{NameChange, Node};

type Fault = Box<dyn FnMut(&Call<'_>) -> Option<io::Error> + Send>;
type ReadGate = Arc<dyn Fn(&Path) + Send + Sync>;

struct State {
    files: Vec<MemoryFile>,
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    name_changes: Vec<NameChange>,
    open_files: usize,
    /// Handles of an earlier generation are dead: their process or their power is gone.
    generation: u64,
    random: Rng,
    fault: Option<Fault>,
    /// End of the names of files, and the positions in them that cannot be read.
    unreadable: Option<(String, Range<u64>)>,
    counts: Counts,
    capacity_bytes: Option<u64>,
    file_limit: Option<usize>,
    open_files_limit: Option<usize>,
    short_calls: bool,
    sync_delay: Duration,
    read_delay: Duration,
    read_gate: Option<ReadGate>,
    delayed_reads: u64,
    ignores_syncs: bool,
    device: u64,
}

/// A handle on the disk; clones are the same disk.
#[derive(Clone)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
    generation: u64,
}

impl FaultyDisk {
    pub fn new(seed: u64) -> Self {
        let names = BTreeMap::from([(PathBuf::from("/"), Node::Directory)]);
        let state = State {
            files: Vec::new(),
            durable_names: names.clone(),
            names,
            name_changes: Vec::new(),
            open_files: 0,
            generation: 0,
            random: Rng::with_seed(seed),
            fault: None,
            unreadable: None,
            counts: Counts::default(),
            capacity_bytes: None,
            file_limit: None,
            open_files_limit: None,
            short_calls: false,
            sync_delay: Duration::ZERO,
            read_delay: Duration::ZERO,
            read_gate: None,
            delayed_reads: 0,
            ignores_syncs: false,
            device: 1,
        };
        FaultyDisk { state: Arc::new(Mutex::new(state)), generation: 0 }
    }

    /// Kill -9: the files stay as they are. This handle and every file opened through it are dead;
    /// the returned handle works.
    pub fn kill_process(&self) -> FaultyDisk {
        let mut state = self.state.lock();
        state.start_generation();
        FaultyDisk { state: self.state.clone(), generation: state.generation }
    }

    /// As [`FaultyDisk::kill_process`], and unsynced pages are lost or torn.
    pub fn cut_power(&self, unsynced: Unsynced) -> FaultyDisk {
        let mut state = self.state.lock();
        let state = &mut *state;
        // Names reach the disk in the order of the file system's journal: the first ones did, the
        // others did not.
        let kept = match unsynced {
            Unsynced::Lost => 0,
            Unsynced::Mixed | Unsynced::Garbage => state.random.usize(0..=state.name_changes.len()),
        };
        for change in state.name_changes.drain(..).take(kept) {
            change.apply(&mut state.durable_names);
        }
        state.names = state.durable_names.clone();
        // A directory whose own name is lost takes all that is in it along.
        let is_reachable =
            |path: &Path| path.ancestors().all(|above| state.durable_names.contains_key(above));
        state.names.retain(|path, _| is_reachable(path));
        state.durable_names = state.names.clone();
        for file in &mut state.files {
            file.cut_power(unsynced, &mut state.random);
        }
        state.start_generation();
        FaultyDisk { state: self.state.clone(), generation: state.generation }
    }

    /// Asked before every call. If it returns an error, the call returns that error and does
    /// nothing else; but a sync that fails loses pages, as in a kernel.
    pub fn set_fault(&self, fault: impl FnMut(&Call<'_>) -> Option<io::Error> + Send + 'static) {
        self.state.lock().fault = Some(Box::new(fault));
    }

    /// Bytes at these positions cannot be read, in files whose names end with `name_ends`.
    pub fn set_unreadable(&self, name_ends: &str, positions: Range<u64>) {
        self.state.lock().unreadable = Some((name_ends.to_owned(), positions));
    }

    /// Another file system is in the place of this one.
    pub fn set_device(&self, device: u64) {
        self.state.lock().device = device;
    }

    /// Puts a directory and those above it on the disk, durably.
    pub fn make_directory(&self, path: &Path) {
        let mut state = self.state.lock();
        for directory in path.ancestors() {
            state.names.insert(directory.to_owned(), Node::Directory);
            state.durable_names.insert(directory.to_owned(), Node::Directory);
        }
    }

    /// Removes a directory and all that is in it; files that are open stay readable.
    pub fn remove_tree(&self, root: &Path) {
        let mut state = self.state.lock();
        let below = |path: &&PathBuf| path.starts_with(root);
        let paths: Vec<_> = state.names.keys().filter(below).cloned().collect();
        paths.into_iter().rev().for_each(|path| state.change_name(NameChange::Remove(path)));
    }

    pub fn clear_fault(&self) {
        let mut state = self.state.lock();
        (state.fault, state.unreadable) = (None, None);
    }

    /// Makes only the call with this number fail (see [`Call::number`]).
    pub fn fail_call(&self, number: u64, error: fn() -> io::Error) {
        self.set_fault(move |call| (call.number == number).then(error));
    }

    /// Makes all calls of a kind fail from now on.
    pub fn fail_operation(&self, operation: Operation, error: fn() -> io::Error) {
        self.set_fault(move |call| (call.operation == operation).then(error));
    }

    /// Sets the size of the disk.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.state.lock().capacity_bytes = capacity_bytes;
    }

    /// Sets the number of inodes.
    pub fn set_file_limit(&self, files: Option<usize>) {
        self.state.lock().file_limit = files;
    }

    /// Sets the number of file descriptors.
    pub fn set_open_files_limit(&self, files: Option<usize>) {
        self.state.lock().open_files_limit = files;
    }

    /// Reads and writes do a random part of what they are asked for, and are interrupted at
    /// random.
    pub fn set_short_calls(&self, short_calls: bool) {
        self.state.lock().short_calls = short_calls;
    }

    /// Sets the duration of a sync.
    pub fn set_sync_delay(&self, delay: Duration) {
        self.state.lock().sync_delay = delay;
    }

    /// Sets the duration of a read.
    pub fn set_read_delay(&self, delay: Duration) {
        self.state.lock().read_delay = delay;
    }

    /// Called with the path before every read, on the thread that reads. It may delay the read.
    pub fn set_read_gate(&self, gate: impl Fn(&Path) + Send + Sync + 'static) {
        self.state.lock().read_gate = Some(Arc::new(gate));
    }

    /// Number of reads that were or are delayed.
    pub fn delayed_reads(&self) -> u64 {
        self.state.lock().delayed_reads
    }

    /// Syncs do nothing and return success: a test on such a disk must see loss.
    pub fn set_ignores_syncs(&self, ignores_syncs: bool) {
        self.state.lock().ignores_syncs = ignores_syncs;
    }

    pub fn counts(&self) -> Counts {
        self.state.lock().counts.clone()
    }

    pub fn reset_counts(&self) {
        self.state.lock().counts = Counts::default();
    }

    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    pub fn open_files(&self) -> usize {
        self.state.lock().open_files
    }

    /// Every file with its path, in order of the paths. Not counted as a call.
    pub fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.state.lock();
        let files = state.names.iter().filter_map(|(path, node)| match node {
            Node::File(index) => Some((path.clone(), &state.files[*index])),
            Node::Directory => None,
        });
        files
            .map(|(path, file)| {
                let mut bytes =
                    vec![0; usize::try_from(file.len_bytes()).expect("test files fit into memory")];
                file.read(&mut bytes, 0);
                (path, bytes)
            })
            .collect()
    }

    /// Creates or replaces a file, durably. Not counted as a call.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state.lock();
        let mut file = MemoryFile::default();
        file.write(bytes, 0);
        file.sync();
        state.files.push(file);
        let node = Node::File(state.files.len() - 1);
        state.names.insert(path.to_owned(), node);
        state.durable_names.insert(path.to_owned(), node);
    }

    /// Flips one bit of a file, durably. Not counted as a call.
    pub fn flip_bit(&self, path: &Path, bit: u64) {
        let mut state = self.state.lock();
        if let Some(&Node::File(index)) = state.names.get(path) {
            state.files[index].flip_bit(bit);
            state.files[index].sync();
        }
    }

    /// Begins a call: counts it and asks the fault for an error.
    fn call(
        &self,
        operation: Operation,
        path: &Path,
    ) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        state.begin(self.generation, operation, path)?;
        Ok(state)
    }

    fn handle(
        &self,
        mut state: parking_lot::MutexGuard<'_, State>,
        index: usize,
        path: &Path,
        access: Access,
    ) -> Arc<dyn DiskFile> {
        state.open_files += 1;
        Arc::new(FaultyFile { disk: self.clone(), index, path: path.to_owned(), access })
    }
}

impl State {
    fn start_generation(&mut self) {
        self.generation += 1;
        self.open_files = 0;
    }

    fn begin(&mut self, generation: u64, operation: Operation, path: &Path) -> io::Result<()> {
        if generation != self.generation {
            return Err(input_output());
        }
        let call = Call { number: self.counts.total(), operation, path };
        let error = self.fault.as_mut().and_then(|fault| fault(&call));
        *self.counts.calls.entry(operation).or_default() += 1;
        error.map_or(Ok(()), Err)
    }

    fn used_bytes(&self) -> u64 {
        let live = self.names.values().filter_map(|node| match node {
            Node::File(index) => Some(self.files[*index].used_bytes()),
            Node::Directory => None,
        });
        live.sum()
    }

    /// True if a file may grow from its present use to `used_bytes`.
    fn has_room(&self, index: usize, used_bytes: u64) -> bool {
        let more = used_bytes.saturating_sub(self.files[index].used_bytes());
        more == 0 || self.capacity_bytes.is_none_or(|capacity| self.used_bytes() + more <= capacity)
    }

    fn check_descriptors(&self) -> io::Result<()> {
        if self.open_files_limit.is_some_and(|limit| self.open_files >= limit) {
            return Err(too_many_open_files());
        }
        Ok(())
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }

    fn file_at(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Node::File(index)) => Ok(*index),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().and_then(|parent| self.names.get(parent));
        if parent == Some(&Node::Directory) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// The part of `len` bytes that a call does this time.
    fn part_of(&mut self, len: usize) -> io::Result<usize> {
        if !self.short_calls || len == 0 {
            return Ok(len);
        }
        match self.random.u8(0..8) {
            0 => Err(io::ErrorKind::Interrupted.into()),
            1..5 => Ok(self.random.usize(1..=len)),
            _ => Ok(len),
        }
    }
}

impl Disk for FaultyDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.call(Operation::CreateNew, path)?;
        state.check_parent(path)?;
        state.check_descriptors()?;
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let files = state.names.values().filter(|node| matches!(node, Node::File(_))).count();
        if state.file_limit.is_some_and(|limit| files >= limit) {
            return Err(no_space());
        }
        state.files.push(MemoryFile::default());
        let index = state.files.len() - 1;
        state.change_name(NameChange::Add(path.to_owned(), Node::File(index)));
        Ok(self.handle(state, index, path, Access::ReadWrite))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.call(Operation::Open, path)?;
        state.check_descriptors()?;
        let index = state.file_at(path)?;
        Ok(self.handle(state, index, path, access))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call(Operation::CreateDirectory, path)?;
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.check_parent(path)?;
        state.change_name(NameChange::Add(path.to_owned(), Node::Directory));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let state = self.call(Operation::List, path)?;
        if state.names.get(path) != Some(&Node::Directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let within = state.names.iter().filter(|(entry, _)| entry.parent() == Some(path));
        Ok(within
            .map(|(entry, node)| DirectoryEntry {
                name: entry.file_name().expect("has a parent").to_string_lossy().into_owned(),
                is_directory: *node == Node::Directory,
                len_bytes: match node {
                    Node::File(index) => state.files[*index].len_bytes(),
                    Node::Directory => 0,
                },
            })
            .collect())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call(Operation::RemoveFile, path)?;
        state.file_at(path)?;
        state.change_name(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.call(Operation::Rename, to)?;
        state.file_at(from)?;
        state.check_parent(to)?;
        state.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call(Operation::SyncDirectory, path)?;
        let state = &mut *state;
        if state.ignores_syncs {
            return Ok(());
        }
        let (within, others) = std::mem::take(&mut state.name_changes)
            .into_iter()
            .partition::<Vec<_>, _>(|change| change.directory() == Some(path));
        within.iter().for_each(|change| change.apply(&mut state.durable_names));
        state.name_changes = others;
        Ok(())
    }

    fn device(&self, path: &Path) -> io::Result<u64> {
        let state = self.state.lock();
        match state.names.get(path) {
            Some(_) => Ok(state.device),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

struct FaultyFile {
    disk: FaultyDisk,
    index: usize,
    path: PathBuf,
    access: Access,
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.generation == self.disk.generation {
            state.open_files -= 1;
        }
    }
}

impl FaultyFile {
    /// Begins a call that changes the file.
    fn change(&self, operation: Operation) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.disk.call(operation, &self.path)?;
        if self.access == Access::Read {
            Err(io::ErrorKind::PermissionDenied.into())
        } else {
            Ok(state)
        }
    }

    fn sync(&self, operation: Operation) -> io::Result<()> {
        let delay = self.disk.state.lock().sync_delay;
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let mut state = self.disk.state.lock();
        let state = &mut *state;
        let begun = state.begin(self.disk.generation, operation, &self.path);
        let is_alive = state.generation == self.disk.generation;
        let file = &mut state.files[self.index];
        match &begun {
            Ok(()) if !state.ignores_syncs => file.sync(),
            Err(_) if is_alive => file.fail_sync(&mut state.random),
            _ => {}
        }
        begun
    }
}

impl DiskFile for FaultyFile {
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let mut state = self.change(Operation::Write)?;
        let mut len = state.part_of(bytes.len())?;
        while len > 0
            && !state.has_room(
                self.index,
                state.files[self.index].used_after_write(position, position + len as u64),
            )
        {
            // A disk that is nearly full writes the whole pages that fit.
            len = len.saturating_sub(4096);
        }
        if len == 0 && !bytes.is_empty() {
            return Err(no_space());
        }
        state.files[self.index].write(&bytes[..len], position);
        state.counts.written_bytes += len as u64;
        Ok(len)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let delay = self.disk.state.lock().read_delay;
        if !delay.is_zero() {
            self.disk.state.lock().delayed_reads += 1;
            std::thread::sleep(delay);
        }
        let gate = self.disk.state.lock().read_gate.clone();
        if let Some(gate) = gate {
            gate(&self.path);
        }
        let mut state = self.disk.call(Operation::Read, &self.path)?;
        let len = state.part_of(buffer.len())?;
        if let Some((name_ends, bad)) = &state.unreadable
            && self.path.to_string_lossy().ends_with(name_ends.as_str())
            && position < bad.end
            && position + len as u64 > bad.start
        {
            return Err(input_output());
        }
        let read = state.files[self.index].read(&mut buffer[..len], position);
        state.counts.read_bytes += read as u64;
        Ok(read)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(Operation::SyncData)
    }

    fn allocate(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.change(Operation::Allocate)?;
        if !state.has_room(self.index, state.files[self.index].used_after_allocation(len_bytes)) {
            return Err(no_space());
        }
        state.files[self.index].allocate(len_bytes);
        Ok(())
    }

    fn is_linked(&self) -> io::Result<bool> {
        let state = self.disk.state.lock();
        Ok(state.names.values().any(|node| *node == Node::File(self.index)))
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.change(Operation::SetLen)?;
        state.files[self.index].set_len(len_bytes);
        Ok(())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        let state = self.disk.call(Operation::Len, &self.path)?;
        Ok(state.files[self.index].len_bytes())
    }
}
