//! The log of one signal: every frame once, in order of arrival, with one cursor a delivery.
//!
//! A log is its memory tail; with a directory it also has segment files behind it, to which a frame
//! goes only if its readers do not resolve it soon. Users see no difference: offsets, cursors made
//! of a floor and resolved ranges, and reads by offset are the same.
//!
//! A reader is a subscriber of the log with its cursor. The rooms, in the order in which one reads
//! them:
//!
//! - `types`, `error`, `offsets`: terms that all rooms share.
//! - `disk`: operations on a file system, and the lock of a directory.
//! - `format`: the bytes of segments and cursor files, without I/O.
//! - `segment`: files of frames: their names, writing them, scanning them.
//! - `recovery`: opening what an earlier process left, for the log and for dead letters.
//! - `cursors`: the position of each reader, in memory and in its file.
//! - `writer`: the thread that makes frames durable (group commit).
//! - `read_ahead`: the thread that reads for readers that have fallen out of memory.
//! - `maintenance`: the thread that stores cursors, removes and rewrites segments.
//! - `log`: the state under one lock: the memory tail, what is on disk, readers, giving up frames.
//! - `dead_letters`: requests that were refused for good, one bounded store a delivery.
//! - `inspect`, `repair`: the files of another process, and those that were set aside.

pub mod cursors;
pub mod dead_letters;
pub mod disk;
mod error;
pub mod format;
pub mod inspect;
mod log;
mod maintenance;
mod offsets;
mod read_ahead;
mod recovery;
pub mod repair;
pub mod segment;
mod types;
mod writer;

pub use error::{FileError, Result};
pub use format::DroppedRange;
pub use log::{GivenUp, Log};
pub use offsets::RangeSet;
pub use recovery::{OpenOptions, Recovered};
pub use types::{
    Appended, Charge, CursorId, DiskTrouble, Gauge, Holding, Keep, LogStats, MemoryUse, Next,
    Offset, Orphan, ReaderGauges, Record, RecordFacts, Sheds, StoredRecord, Subscription,
    Undecodable, Wake,
};
