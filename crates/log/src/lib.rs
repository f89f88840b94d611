//! The log of one signal: every frame once, in order of arrival, with one cursor a delivery.
//!
//! A log is its memory tail; with a directory it also has segment files behind it, to which a frame
//! goes only if its readers do not resolve it soon. Users see no difference: offsets, cursors made
//! of a floor and resolved ranges, and reads by offset are the same.
//!
//! From the bottom up: `disk` (operations on a file system), `format` (bytes), `segment`,
//! `cursor_file`, `cursor_list` and `dead_letters` (files), `log` (the memory tail, under one
//! lock), and three threads: `writer` (group commit), `reader` (reads ahead), `maintenance`
//! (cursors and retention). The threads share `home` beside the log; `recovery` puts the parts
//! together. `inspect` looks at the files of another process, and `repair` changes those that were
//! set aside.

mod aside;
mod cursor;
pub mod cursor_file;
mod cursor_list;
pub mod dead_letters;
pub mod disk;
mod error;
pub mod format;
mod gauges;
mod home;
pub mod inspect;
pub mod lock;
mod log;
mod maintenance;
mod options;
mod ranges;
mod reader;
mod record;
mod recovery;
pub mod repair;
pub mod segment;
mod slots;
mod types;
mod writer;

pub use error::{FileError, Result};
pub use format::DroppedRange;
pub use gauges::{Gauge, MemoryUse, ReaderGauges, Sheds};
pub use log::{GivenUp, Log};
pub use options::{OpenOptions, Recovered};
pub use ranges::RangeSet;
pub use record::{Record, RecordFacts, StoredRecord, Undecodable};
pub use types::{
    Appended, Charge, CursorId, DiskTrouble, Holding, Keep, LogStats, Next, Offset, Orphan,
    Subscription, Wake,
};
