//! The log of one signal: every frame once, in order of arrival, with one cursor a delivery.
//!
//! Today the log is its memory tail. Segment files will stand behind the same interface: offsets, cursors made of a floor
//! and resolved ranges, and reads by offset are already what they need.

mod cursor;
mod log;
mod ranges;
mod slots;

pub use cursor::{Cursor, Dropped};
pub use log::{Appended, Charge, CursorId, Log, Offset};
pub use ranges::RangeSet;
