//! Looks at a directory of logs without owning or changing it, whether or not a process is running on it.

mod overview;
mod verify;

use std::io;
use std::path::PathBuf;

pub use overview::{CursorOverview, DeadLetterOverview, LogOverview, SegmentOverview, overview};
pub use verify::{Finding, Progress, Verification, verify};

use crate::cursor_file::CursorError;
use crate::dead_letters::DeadLetterError;
use crate::segment::SegmentError;

/// Name of the folder of the readers' files within a log's directory.
pub const CURSORS_DIRECTORY: &str = "cursors";

#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error(transparent)]
    Cursor(#[from] CursorError),
    #[error(transparent)]
    DeadLetters(#[from] DeadLetterError),
}
