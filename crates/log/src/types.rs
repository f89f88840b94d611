//! Types that a log and its users share: offsets, sums and sets of them, records, readers, figures.

mod figures;
mod range_set;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

pub use figures::{DiskTrouble, Gauge, LogStats, MemoryUse, ReaderGauges, Sheds};
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
