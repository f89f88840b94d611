//! Figures of a log that are read without its lock.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

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
