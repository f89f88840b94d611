//! A disk that fails on demand: files in memory that lose unsynced pages, tear writes under way,
//! run out of space, inodes and descriptors, and fail in the n-th call.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::{Condvar, Mutex, MutexGuard};
use sluice_log::disk::{Access, DirectoryEntry, Disk, DiskFile};

use super::at_rest::BadPages;
pub use super::calls::{Call, Counts, Operation, input_output, no_space, too_many_open_files};
use super::faulty_file::FaultyFile;
use super::memory_file::MemoryFile;
pub use super::memory_file::Unsynced;
use super::names::{NameChange, Node};
pub use super::troubles::{Answer, Trouble};
use super::troubles::{Troubles, error_of};

/// A call without an answer looks this often whether the trouble is over.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

type Fault = Box<dyn FnMut(&Call<'_>) -> Option<io::Error> + Send>;
type ReadGate = Arc<dyn Fn(&Path) + Send + Sync>;

pub(super) struct State {
    pub(super) files: Vec<MemoryFile>,
    pub(super) names: BTreeMap<PathBuf, Node>,
    pub(super) durable_names: BTreeMap<PathBuf, Node>,
    pub(super) name_changes: Vec<NameChange>,
    pub(super) open_files: usize,
    /// Handles of an earlier generation are dead: their process or their power is gone.
    pub(super) generation: u64,
    pub(super) random: Rng,
    pub(super) fault: Option<Fault>,
    pub(super) troubles: Troubles,
    pub(super) bad_pages: BadPages,
    /// One for each call.
    pub(super) ticks: u64,
    /// The process dies before the call after this many more.
    pub(super) dies_after: Option<u64>,
    /// End of the names of files, and the positions in them that cannot be read.
    pub(super) unreadable: Option<(String, Range<u64>)>,
    pub(super) counts: Counts,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) file_limit: Option<usize>,
    pub(super) open_files_limit: Option<usize>,
    pub(super) short_calls: bool,
    pub(super) sync_delay: Duration,
    pub(super) read_delay: Duration,
    pub(super) read_gate: Option<ReadGate>,
    pub(super) delayed_reads: u64,
    pub(super) ignores_syncs: bool,
    pub(super) device: u64,
}

/// A handle on the disk; clones are the same disk.
#[derive(Clone)]
pub struct FaultyDisk {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) generation: u64,
    look_again: Arc<Condvar>,
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
            troubles: Troubles::default(),
            bad_pages: BadPages::default(),
            ticks: 0,
            dies_after: None,
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
        let (state, look_again) = (Arc::new(Mutex::new(state)), Arc::default());
        FaultyDisk { state, generation: 0, look_again }
    }

    /// Kill -9: the files stay as they are. This handle and every file opened through it are dead;
    /// the returned handle works.
    pub fn kill_process(&self) -> FaultyDisk {
        let mut state = self.state.lock();
        state.start_generation();
        FaultyDisk { generation: state.generation, ..self.clone() }
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
        FaultyDisk { generation: state.generation, ..self.clone() }
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

    /// Ends all faults and troubles. Pages that are bad stay bad.
    pub fn clear_fault(&self) {
        let mut state = self.state.lock();
        (state.fault, state.unreadable) = (None, None);
        state.troubles.end();
        self.look_again.notify_all();
    }

    /// Adds a trouble to those that the disk has.
    pub fn trouble(&self, trouble: Trouble) {
        self.state.lock().troubles.add(trouble);
    }

    /// The disk's clock: the number of calls so far, and of ticks that passed otherwise.
    pub fn ticks(&self) -> u64 {
        self.state.lock().ticks
    }

    pub fn pass_ticks(&self, ticks: u64) {
        self.state.lock().ticks += ticks;
    }

    /// Number of calls that a trouble met.
    pub fn troubled_calls(&self) -> u64 {
        self.state.lock().troubles.met
    }

    /// The process is dead or will be, without the disk's doing.
    pub fn is_dying(&self) -> bool {
        let state = self.state.lock();
        state.generation != self.generation || state.dies_after.is_some()
    }

    /// It may refuse calls.
    pub fn is_troubled(&self) -> bool {
        let state = self.state.lock();
        let has_fault = state.fault.is_some() || state.unreadable.is_some();
        let is_short = state.capacity_bytes.is_some();
        let is_dead = state.generation != self.generation;
        has_fault || is_short || is_dead || !state.troubles.is_none()
    }

    /// The process dies after this many more calls: the next one is not made.
    pub fn die_after(&self, calls: u64) {
        self.state.lock().dies_after = Some(calls);
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

    /// Begins a call that is to be made.
    pub(super) fn call(&self, call: Call<'_>) -> io::Result<MutexGuard<'_, State>> {
        let (state, begun) = self.begin(call);
        begun.map(|()| state)
    }

    /// Begins a call: counts it and asks the troubles for an answer.
    pub(super) fn begin(&self, call: Call<'_>) -> (MutexGuard<'_, State>, io::Result<()>) {
        let mut state = self.state.lock();
        let answer = match state.answer(self.generation, call) {
            Ok(None) => Ok(()),
            Ok(Some(Answer::Error(error))) => Err(error_of(error)),
            Ok(Some(Answer::Hang)) => {
                let ended = state.troubles.ended;
                while state.troubles.ended == ended && state.generation == self.generation {
                    self.look_again.wait_for(&mut state, LOOK_AGAIN);
                }
                let is_dead = state.generation != self.generation;
                if is_dead { Err(input_output()) } else { Ok(()) }
            }
            Err(error) => Err(error),
        };
        (state, answer)
    }

    fn handle(
        &self,
        mut state: MutexGuard<'_, State>,
        index: usize,
        path: &Path,
        access: Access,
    ) -> Arc<dyn DiskFile> {
        state.open_files += 1;
        Arc::new(FaultyFile { disk: self.clone(), index, path: path.to_owned(), access })
    }
}

impl State {
    pub(super) fn start_generation(&mut self) {
        self.generation += 1;
        self.open_files = 0;
        self.dies_after = None;
    }

    /// The answer of the fault or of a trouble to a call.
    fn answer(&mut self, generation: u64, call: Call<'_>) -> io::Result<Option<Answer>> {
        if self.dies_after == Some(0) {
            self.start_generation();
        }
        if generation != self.generation {
            return Err(input_output());
        }
        let operation = call.operation;
        let call = Call { number: self.counts.total(), ..call };
        let fault = self.fault.as_mut().filter(|_| operation.is_counted());
        let error = fault.and_then(|fault| fault(&call));
        let answer = self.troubles.answer(&call, self.ticks, &mut self.random);
        self.ticks += 1;
        self.dies_after = self.dies_after.map(|calls| calls - 1);
        if operation.is_counted() {
            *self.counts.calls.entry(operation).or_default() += 1;
        }
        error.map_or(Ok(answer), Err)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let live = self.names.values().filter_map(|node| match node {
            Node::File(index) => Some(self.files[*index].used_bytes()),
            Node::Directory => None,
        });
        live.sum()
    }

    /// True if a file may grow from its present use to `used_bytes`.
    pub(super) fn has_room(&self, index: usize, used_bytes: u64) -> bool {
        let more = used_bytes.saturating_sub(self.files[index].used_bytes());
        more == 0 || self.capacity_bytes.is_none_or(|capacity| self.used_bytes() + more <= capacity)
    }

    pub(super) fn check_descriptors(&self) -> io::Result<()> {
        if self.open_files_limit.is_some_and(|limit| self.open_files >= limit) {
            return Err(too_many_open_files());
        }
        Ok(())
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }

    pub(super) fn file_at(&self, path: &Path) -> io::Result<usize> {
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
    pub(super) fn part_of(&mut self, len: usize) -> io::Result<usize> {
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
        let mut state = self.call(Call::new(Operation::CreateNew, path))?;
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
        let changes = access == Access::ReadWrite;
        let state = self.call(Call { changes, ..Call::new(Operation::Open, path) })?;
        state.check_descriptors()?;
        let index = state.file_at(path)?;
        Ok(self.handle(state, index, path, access))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call(Call::new(Operation::CreateDirectory, path))?;
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.check_parent(path)?;
        state.change_name(NameChange::Add(path.to_owned(), Node::Directory));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let state = self.call(Call::new(Operation::List, path))?;
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
        let mut state = self.call(Call::new(Operation::RemoveFile, path))?;
        state.file_at(path)?;
        state.change_name(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.call(Call::new(Operation::Rename, to))?;
        state.file_at(from)?;
        state.check_parent(to)?;
        state.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call(Call::new(Operation::SyncDirectory, path))?;
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
        let state = self.call(Call::new(Operation::Device, path))?;
        match state.names.get(path) {
            Some(_) => Ok(state.device),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
