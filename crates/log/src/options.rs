//! How a log on disk is opened, and what is found.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::Disk;
use crate::gauges::MemoryUse;

#[derive(Clone)]
pub struct OpenOptions {
    pub disk: Arc<dyn Disk>,
    /// Of this log alone. Created if it is missing. The caller owns it ([`crate::lock`]).
    pub directory: PathBuf,
    /// Name of the log (its signal), for the headers of its files and the names of its threads.
    pub name: String,
    /// Length of a segment file. A frame that is larger gets one of its own.
    pub segment_bytes: u64,
    /// What logs that share this memory keep of their frames in it.
    pub memory: Arc<MemoryUse>,
    /// What logs that share this memory keep in it of frames that are on disk too.
    pub memory_limit_bytes: u64,
    /// What is read from disk ahead of each reader, in bytes of charge.
    pub read_ahead_bytes: u64,
    /// When a frame that is not resolved everywhere is written: after that time, and at once while
    /// a reader lags by more or memory is short.
    pub flush_after: Duration,
    /// How often cursors are written and segments without a reader are removed, while something is
    /// on disk. What was resolved since is delivered again after a crash.
    pub keep_interval: Duration,
    /// How long the disk may refuse to read something before the log goes on without it: at the
    /// start, and where a reader meets bad blocks.
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
            // Half of the second before a crash that may come again: writing takes time, too.
            keep_interval: Duration::from_millis(500),
            read_patience: Duration::from_secs(10),
        }
    }
}

/// What was found on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub segments: u64,
    pub disk_bytes: u64,
    /// Segments that the disk refused to read. They stay as they are until readers come to them.
    pub unread: Vec<PathBuf>,
    /// Readers that have a cursor there.
    pub cursors: u64,
    /// Bytes of segments whose frames were looked at, the newest.
    pub bytes_scanned: u64,
    /// Frames of those that were damaged. Others are counted when readers come to them.
    pub frames_damaged: u64,
    /// Cursor files of which nothing can be read. They were set aside and listed as orphans, for
    /// which everything is kept that is on disk now, until they are forgotten.
    pub cursors_damaged: u64,
    /// Cursor files of which the disk refused one slot. The other is used, and offsets go on far
    /// above it: the refused one may be the newer.
    pub cursors_refused: Vec<PathBuf>,
}
