//! The log of one signal: every frame once, in order of arrival, with one cursor a delivery.
//!
//! Today the log is its memory tail. Segment files will stand behind the same interface: offsets, cursors made of a floor
//! and resolved ranges, and reads by offset are already what they need.

mod cursor;
pub mod cursor_file;
pub mod dead_letters;
pub mod disk;
pub mod format;
pub mod inspect;
mod keeper;
pub mod lock;
mod log;
mod options;
mod ranges;
mod reader;
mod record;
mod recovery;
pub mod segment;
mod slots;
mod types;
mod writer;

pub use format::{Gap, Holding};
pub use log::Log;
pub use options::{FlushPolicy, OpenError, OpenOptions, Recovered};
pub use ranges::RangeSet;
pub use record::{DecodeError, Record, RecordFacts, StoredRecord};
pub use types::{Appended, Charge, CursorId, DiskTrouble, Keep, LogStats, Next, Offset, Orphan, Subscription, Wake};
