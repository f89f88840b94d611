//! The figures of a log and of its readers, and troubles with the disk.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use super::Holding;

/// A number that only the log changes.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }
}

/// Memory of frames, in bytes of charge. Logs that share their memory share one of these.
#[derive(Debug, Default)]
pub struct MemoryUse {
    /// Frames in memory that some reader has not resolved, each counted once.
    pub stored_bytes: Gauge,
    /// The part of `stored_bytes` that is not durable, in logs on disk.
    pub unwritten_bytes: Gauge,
}

/// Which of its unresolved frames a reader may give up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Sheds {
    #[default]
    Nothing,
    /// Frames that another reader has taken; best-effort readers do not count.
    Taken,
    Everything,
}

impl Sheds {
    /// Whether a frame may be given up. `is_taken`: whether another reader has taken it.
    pub(crate) fn allows(self, is_taken: impl FnOnce() -> bool) -> bool {
        match self {
            Sheds::Nothing => false,
            Sheds::Taken => is_taken(),
            Sheds::Everything => true,
        }
    }
}

/// Backlog of one reader, as of the last time that the log's lock was released.
#[derive(Debug, Default)]
pub struct ReaderGauges {
    /// Lag behind the head, in bytes of charge: frames appended for the reader and not resolved.
    pub held_bytes: Gauge,
    pub held_frames: Gauge,
    /// The part of `held_bytes` that the reader has not leased.
    pub unread_bytes: Gauge,
    /// The part of `held_bytes` that is not durable.
    pub unwritten_bytes: Gauge,
    /// The part of `held_bytes` that is in memory for this reader only.
    pub alone_bytes: Gauge,
    /// The reader's budget.
    pub limit_bytes: Gauge,
    sheds: AtomicU8,
    reserve_bytes: Gauge,
}

impl ReaderGauges {
    /// True if more waits for the reader than its budget allows, a single frame excepted.
    pub fn is_over_budget(&self) -> bool {
        self.held_frames.get() > 1 && self.held_bytes.get() > self.limit_bytes.get()
    }

    /// True if the reader's lag exceeds its part of the reserve.
    pub fn is_beyond_reserve(&self) -> bool {
        self.held_bytes.get() > self.reserve_bytes.get()
    }

    pub fn may_shed(&self) -> Sheds {
        match self.sheds.load(Ordering::Relaxed) {
            0 => Sheds::Nothing,
            1 => Sheds::Taken,
            _ => Sheds::Everything,
        }
    }

    /// Up to this lag the reader gives up nothing to make room for others.
    pub fn reserve(&self, bytes: u64) {
        self.reserve_bytes.set(bytes);
    }

    /// Sets which frames the reader may give up from now on.
    pub fn allow(&self, sheds: Sheds) {
        self.sheds.store(sheds as u8, Ordering::Relaxed);
    }
}

/// An operation that the disk refuses. The log tries it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskTrouble {
    pub reason: String,
    /// Only space (or a quota, or inodes) is missing.
    pub out_of_space: bool,
    /// Frames cannot be written: nothing is made durable meanwhile. Otherwise segments cannot be
    /// read, or cursors cannot be written.
    pub stops_writing: bool,
    /// For how long a call has had no answer. Zero if the disk answered with an error.
    pub without_answer: Duration,
}

impl DiskTrouble {
    /// Nothing is made durable meanwhile.
    pub(crate) fn of_writing(reason: String) -> Self {
        DiskTrouble { reason, stops_writing: true, ..DiskTrouble::default() }
    }
}

/// Counters of a log since it was opened, and sizes as they are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Length of all segment files, reserved space included, and of those that cannot be removed.
    pub disk_bytes: u64,
    pub segments: u64,
    pub frames_written: u64,
    pub bytes_written: u64,
    /// Group commits, each with one sync.
    pub commits: u64,
    /// Writes of cursor files.
    pub cursor_writes: u64,
    /// Frames that were evicted from memory because they are on disk.
    pub frames_evicted: u64,
    /// Frames read back from disk.
    pub frames_read: u64,
    /// Damaged places that readers passed. Each has lost a frame or more, unless it is what a crash
    /// left of a write that was never acknowledged.
    pub frames_damaged: u64,
    /// Frames that readers passed because only a newer release can decode them.
    pub frames_of_newer_release: u64,
    /// Frames that waited for readers on disk, and that could not be read or were not there.
    pub lost: Holding,
    /// Files that were set aside, now and by earlier processes: `disk_bytes` includes them.
    pub set_aside_files: u64,
    pub set_aside_bytes: u64,
    /// Unneeded files that cannot be removed: `disk_bytes` includes them.
    pub unremoved_files: u64,
    /// Readers whose cursor files are lost and that were not forgotten.
    pub lost_cursors: u64,
    /// Frames that readers wait for and that the start found in no file. They count as lost once
    /// the reader has come to the end.
    pub missing_frames: u64,
    /// Segments rewritten with only the frames that are still wanted.
    pub rewrites: u64,
    /// Writes that failed.
    pub failures: u64,
    /// Files that other processes removed, moved away or cut while they were being written.
    pub disturbed_files: u64,
}
