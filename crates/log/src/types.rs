//! Types that a log and its users share: offsets, sums and sets of them, records, readers, figures.

mod range_set;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

pub use range_set::RangeSet;

/// Position in a log: the number of frames appended before. An offset is never given twice.
pub type Offset = u64;

/// Index of a reader, never given to another one within the life of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CursorId(pub(crate) usize);

/// Bytes and items that an entry counts for in the budget of each of its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    pub bytes: u64,
    pub items: u64,
}

/// A number of frames, with the sums of their items and charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    pub frames: u64,
    pub items: u64,
    /// Sum of the frames' charges.
    pub bytes: u64,
}

impl Holding {
    pub fn add(&mut self, other: impl Into<Holding>) {
        let other = other.into();
        self.frames += other.frames;
        self.items += other.items;
        self.bytes += other.bytes;
    }

    /// Saturates: after a crash the count of frames on disk may be too low. Then the other sums are
    /// wrong, too: nothing is left of them without frames.
    pub(crate) fn remove(&mut self, other: impl Into<Holding>) {
        let other = other.into();
        self.frames = self.frames.saturating_sub(other.frames);
        if self.frames == 0 {
            *self = Holding::default();
            return;
        }
        self.items = self.items.saturating_sub(other.items);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// The holding of one frame.
impl From<Charge> for Holding {
    fn from(Charge { bytes, items }: Charge) -> Self {
        Holding { frames: 1, items, bytes }
    }
}

impl FromIterator<Charge> for Holding {
    fn from_iter<I: IntoIterator<Item = Charge>>(charges: I) -> Self {
        let mut holding = Holding::default();
        charges.into_iter().for_each(|charge| holding.add(charge));
        holding
    }
}

/// Facts of an entry that stand in its frame's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFacts {
    /// Wall clock on receipt, for people.
    pub received_unix_ns: u64,
    /// How the payload is compressed, in codes of the log's user.
    pub encoding: u8,
    /// Free for the log's user, except for the highest bit, which has to be 0.
    pub flags: u8,
    pub uncompressed_len_bytes: u32,
}

/// An entry, or a dead letter, as it was read back. Its [`Record`] methods return it unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// For a dead letter: its number.
    pub offset: Offset,
    pub facts: RecordFacts,
    pub charge: Charge,
    pub metadata: Bytes,
    pub payload: Bytes,
}

/// Why nothing can be made of the bytes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    Damaged,
    /// A newer release wrote it, and reads it.
    OfNewerRelease,
}

/// An entry that can be kept on disk.
pub trait Record: Send + Sync + Sized + 'static {
    fn facts(&self) -> RecordFacts;

    /// Appends everything that [`Record::decode`] needs beside facts and payload.
    fn encode_metadata(&self, output: &mut Vec<u8>);

    fn payload(&self) -> &[u8];

    /// The bytes are whole: their checksum holds.
    fn decode(stored: StoredRecord) -> Result<Self, Undecodable>;

    /// The entry is durable on disk. The writer thread calls this once, without a lock, after the
    /// sync. Not called for entries that were read back; may be called for resolved ones.
    fn durable(&self);
}

impl Record for StoredRecord {
    fn facts(&self) -> RecordFacts {
        self.facts
    }

    fn encode_metadata(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.metadata);
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn decode(stored: StoredRecord) -> Result<Self, Undecodable> {
        Ok(stored)
    }

    /// No thread waits: closing the log says whether everything was written.
    fn durable(&self) {}
}

/// Result of [`crate::Log::append`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub offset: Offset,
    /// The given readers that have unsubscribed: they do not get the entry.
    pub gone: Vec<CursorId>,
    /// More waits for some reader now than its budget allows.
    pub over_budget: bool,
}

/// Result of [`crate::Log::read`].
#[derive(Debug)]
pub enum Next<T> {
    /// The next entry, leased until it is resolved.
    Entry(Offset, Arc<T>),
    /// The entry is being read from disk. The reader is woken when it is in memory.
    Loading,
    /// The reader has leased as much as it may. It reads again after it has resolved some of it.
    Full,
    /// Nothing is left to read until something is appended.
    Empty,
}

impl<T> Next<T> {
    /// The entry, if there is one now.
    pub fn entry(self) -> Option<(Offset, Arc<T>)> {
        if let Next::Entry(offset, entry) = self { Some((offset, entry)) } else { None }
    }
}

/// Called, without a lock, when a reader should read again or frames were dropped for it.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// A reader that is to be added.
#[derive(Clone)]
pub struct Subscription {
    /// Identifies the reader after a restart.
    pub name: String,
    /// The budget: bytes of charge that may wait for the reader.
    pub limit_bytes: u64,
    /// Bytes of charge that the reader may have leased at a time. It may always lease one entry.
    pub lease_limit_bytes: u64,
    /// An entry that only best-effort readers took counts as taken by no reader.
    pub is_best_effort: bool,
    pub wake: Wake,
}

impl Subscription {
    /// A reader without limits that does not need to be woken.
    pub fn new(name: impl Into<String>) -> Self {
        Subscription {
            name: name.into(),
            limit_bytes: u64::MAX,
            lease_limit_bytes: u64::MAX,
            is_best_effort: false,
            wake: Arc::new(|| {}),
        }
    }
}

/// Whether the unresolved frames of a reader are kept when it unsubscribes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// They are given up.
    Nothing,
    /// They stay on disk for a reader of the same name, or until [`crate::Log::forget`].
    Backlog,
}

/// A reader without a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub name: String,
    /// Its cursor file is lost. What it holds is not known: everything on disk is kept for it.
    pub is_lost: bool,
    pub held: Holding,
    /// Age of its oldest frame by the wall clock, where it is known.
    pub oldest_age: Option<Duration>,
    /// All of its frames that policies ever dropped.
    pub dropped: Holding,
}

/// Nanoseconds since 1970 by the wall clock. 0 if the clock is before 1970.
pub(crate) fn unix_now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A number that only the log changes.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }
}

/// Memory of frames, in bytes of charge. Logs that share their memory share one of these.
#[derive(Debug, Default)]
pub struct MemoryUse {
    /// Frames in memory that some reader has not resolved, each counted once.
    pub stored_bytes: Gauge,
    /// The part of `stored_bytes` that is not durable, in logs on disk.
    pub unwritten_bytes: Gauge,
}

/// Which of its unresolved frames a reader may give up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Sheds {
    #[default]
    Nothing,
    /// Frames that another reader has taken; best-effort readers do not count.
    Taken,
    Everything,
}

impl Sheds {
    /// Whether a frame may be given up. `is_taken`: whether another reader has taken it.
    pub(crate) fn allows(self, is_taken: impl FnOnce() -> bool) -> bool {
        match self {
            Sheds::Nothing => false,
            Sheds::Taken => is_taken(),
            Sheds::Everything => true,
        }
    }
}

/// Backlog of one reader, as of the last time that the log's lock was released.
#[derive(Debug, Default)]
pub struct ReaderGauges {
    /// Lag behind the head, in bytes of charge: frames appended for the reader and not resolved.
    pub held_bytes: Gauge,
    pub held_frames: Gauge,
    /// The part of `held_bytes` that the reader has not leased.
    pub unread_bytes: Gauge,
    /// The part of `held_bytes` that is not durable.
    pub unwritten_bytes: Gauge,
    /// The part of `held_bytes` that is in memory for this reader only.
    pub alone_bytes: Gauge,
    /// The reader's budget.
    pub limit_bytes: Gauge,
    sheds: AtomicU8,
    reserve_bytes: Gauge,
}

impl ReaderGauges {
    /// True if more waits for the reader than its budget allows, a single frame excepted.
    pub fn is_over_budget(&self) -> bool {
        self.held_frames.get() > 1 && self.held_bytes.get() > self.limit_bytes.get()
    }

    /// True if the reader's lag exceeds its part of the reserve.
    pub fn is_beyond_reserve(&self) -> bool {
        self.held_bytes.get() > self.reserve_bytes.get()
    }

    pub fn may_shed(&self) -> Sheds {
        match self.sheds.load(Ordering::Relaxed) {
            0 => Sheds::Nothing,
            1 => Sheds::Taken,
            _ => Sheds::Everything,
        }
    }

    /// Up to this lag the reader gives up nothing to make room for others.
    pub fn reserve(&self, bytes: u64) {
        self.reserve_bytes.set(bytes);
    }

    /// Sets which frames the reader may give up from now on.
    pub fn allow(&self, sheds: Sheds) {
        self.sheds.store(sheds as u8, Ordering::Relaxed);
    }
}

/// An operation that the disk refuses. The log tries it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskTrouble {
    pub reason: String,
    /// Only space (or a quota, or inodes) is missing.
    pub out_of_space: bool,
    /// Frames cannot be written: nothing is made durable meanwhile. Otherwise segments cannot be
    /// read, or cursors cannot be written.
    pub stops_writing: bool,
    /// For how long a call has had no answer. Zero if the disk answered with an error.
    pub without_answer: Duration,
}

impl DiskTrouble {
    /// Nothing is made durable meanwhile.
    pub(crate) fn of_writing(reason: String) -> Self {
        DiskTrouble { reason, stops_writing: true, ..DiskTrouble::default() }
    }
}

/// Counters of a log since it was opened, and sizes as they are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Length of all segment files, reserved space included, and of those that cannot be removed.
    pub disk_bytes: u64,
    pub segments: u64,
    pub frames_written: u64,
    pub bytes_written: u64,
    /// Group commits, each with one sync.
    pub commits: u64,
    /// Writes of cursor files.
    pub cursor_writes: u64,
    /// Frames that were evicted from memory because they are on disk.
    pub frames_evicted: u64,
    /// Frames read back from disk.
    pub frames_read: u64,
    /// Damaged places that readers passed. Each has lost a frame or more, unless it is what a crash
    /// left of a write that was never acknowledged.
    pub frames_damaged: u64,
    /// Frames that readers passed because only a newer release can decode them.
    pub frames_of_newer_release: u64,
    /// Frames that waited for readers on disk, and that could not be read or were not there.
    pub lost: Holding,
    /// Files that were set aside, now and by earlier processes: `disk_bytes` includes them.
    pub set_aside_files: u64,
    pub set_aside_bytes: u64,
    /// Unneeded files that cannot be removed: `disk_bytes` includes them.
    pub unremoved_files: u64,
    /// Readers whose cursor files are lost and that were not forgotten.
    pub lost_cursors: u64,
    /// Frames that readers wait for and that the start found in no file. They count as lost once
    /// the reader has come to the end.
    pub missing_frames: u64,
    /// Segments rewritten with only the frames that are still wanted.
    pub rewrites: u64,
    /// Writes that failed.
    pub failures: u64,
    /// Files that other processes removed, moved away or cut while they were being written.
    pub disturbed_files: u64,
}
