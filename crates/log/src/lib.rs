//! The log of one signal: every frame once, in order of arrival, with one cursor a delivery.
//!
//! A log is its memory tail; with a directory it also has segment files behind it, to which a frame
//! goes only if its readers do not resolve it soon. Users see no difference: offsets, cursors made
//! of a floor and resolved ranges, and reads by offset are the same. A reader is a subscriber of
//! the log, with its cursor.
//!
//! The modules stand here in the order in which one reads them. A file has one subject
//! (`docs/decisions/047-one-subject-a-file.md`).

// Terms that all modules share: offsets, sums and sets of them, records, readers, figures.
mod types;

// Errors of files.
mod error;

// Operations on a file system, each of which a test can make fail; the lock of a directory.
pub mod disk;

// The bytes of segments and cursor files, without I/O.
pub mod format;

// Files of frames: names, writing, scanning, and what of them was set aside.
pub mod segment;

// Files of an earlier process, for the log and for dead letters: scanning, cutting, retries.
mod recovery;

// The position of each reader, in memory and in its file, and the list of these files.
pub mod cursors;

// Frames that readers wait for and that no file has.
mod missing;

// The thread that makes frames durable (group commit).
mod writer;

// The thread that reads ahead of readers that have fallen out of memory.
mod read_ahead;

// Text of the log's user that is kept beside the cursors.
pub mod companion;

// The thread that stores cursors, and removes, sets aside or rewrites segments.
mod maintenance;

// The log itself: its state under one lock, the memory tail, readers, giving up frames, opening.
mod log;

// Requests that were refused for good, in one bounded store a delivery.
pub mod dead_letters;

// The files of a directory that a process may be running on: overview and check.
pub mod inspect;

// Files that were set aside: put back, or given up.
pub mod repair;

pub use error::{FileError, Result};
pub use format::DroppedRange;
pub use log::{GivenUp, Log};
pub use missing::Missing;
pub use recovery::{OpenOptions, READ_PATIENCE, Recovered, own_directory};
pub use segment::Unremoved;
pub use types::{
    Appended, Charge, CursorId, DiskTrouble, Gauge, Holding, Keep, LogStats, MemoryUse, Next,
    Offset, Orphan, RangeSet, ReaderGauges, Record, RecordFacts, Sheds, StoredRecord, Subscription,
    Undecodable, Wake,
};
