//! Inspects a directory of logs without owning or changing it. A process may be running on it.

mod overview;
mod verify;

pub(crate) use overview::cursor_paths;
pub use overview::{
    CursorOverview, DeadLetterOverview, LogOverview, SegmentOverview, dead_letter_directories,
    is_log, lost_cursors, overview,
};
pub use verify::{Finding, Verification, verify};

/// Folder of the readers' files within a log's directory.
pub const CURSORS_DIRECTORY: &str = "cursors";
