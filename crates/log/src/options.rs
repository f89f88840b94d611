//! How a log on disk is opened, and the result of opening it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::Disk;
use crate::gauges::MemoryUse;

#[derive(Clone)]
pub struct OpenOptions {
    pub disk: Arc<dyn Disk>,
    /// Directory of this log alone, created if it is missing. The caller owns it ([`crate::lock`]).
    pub directory: PathBuf,
    /// Name of the log (its signal), for the headers of its files and the names of its threads.
    pub name: String,
    /// Length of a segment file. A frame that is larger gets one of its own.
    pub segment_bytes: u64,
    /// Counts the frames in memory. Logs that are given the same one share their memory.
    pub memory: Arc<MemoryUse>,
    /// Above this in `memory` (bytes of charge), frames that are on disk too are evicted.
    pub memory_limit_bytes: u64,
    /// Bytes of charge that are read from disk ahead of each reader.
    pub read_ahead_bytes: u64,
    /// A frame that is not resolved everywhere is written after this time, and at once while a
    /// reader lags by more or memory is short.
    pub flush_after: Duration,
    /// Interval of writing cursors and removing segments without a reader, while something is on
    /// disk. Frames that were resolved since are delivered again after a crash.
    pub keep_interval: Duration,
    /// The log goes on without a file or a block that the disk has refused for this long: at the
    /// start, and when a reader comes to bad blocks.
    pub read_patience: Duration,
}

impl OpenOptions {
    pub fn new(
        disk: Arc<dyn Disk>,
        directory: impl Into<PathBuf>,
        name: impl Into<String>,
    ) -> Self {
        OpenOptions {
            disk,
            directory: directory.into(),
            name: name.into(),
            segment_bytes: 64 << 20,
            memory: Arc::default(),
            memory_limit_bytes: 64 << 20,
            read_ahead_bytes: 4 << 20,
            flush_after: Duration::from_millis(20),
            // Half of the second that may be delivered again after a crash: writing takes time too.
            keep_interval: Duration::from_millis(500),
            read_patience: Duration::from_secs(10),
        }
    }
}

/// Files and damage that [`crate::Log::open`] found on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub segments: u64,
    pub disk_bytes: u64,
    /// Segments that the disk refused to read. They stay as they are until readers come to them.
    pub unread: Vec<PathBuf>,
    /// Files that earlier processes set aside. Nothing in them is delivered.
    pub set_aside: Vec<PathBuf>,
    /// Readers that have a cursor file.
    pub cursors: u64,
    /// Bytes of the segments whose frames were scanned, the newest ones.
    pub bytes_scanned: u64,
    /// Damaged frames in those. All damage is counted when readers come to it.
    pub frames_damaged: u64,
    /// Orphans that stand for cursor files of which nothing can be read, which are set aside, and
    /// for those that are gone. Everything that is on disk now is kept for them until they are
    /// forgotten.
    pub lost_cursors: Vec<String>,
    /// The list of cursor files is damaged and is written anew. Whether one is gone is not known.
    pub damaged_list: Option<PathBuf>,
    /// Cursor files of which the disk refused one slot. The other slot is used, and new offsets
    /// start far above it: the refused slot may be the newer one.
    pub cursors_refused: Vec<PathBuf>,
}
