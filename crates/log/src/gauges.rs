//! Figures of a log that are read without its lock.

use crate::types::Holding;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Memory of frames, in bytes of charge. Logs that share one pool of memory share one of these.
#[derive(Debug, Default)]
pub struct MemoryUse {
    stored_bytes: AtomicU64,
    unwritten_bytes: AtomicU64,
}

impl MemoryUse {
    /// Frames in memory that some reader has not resolved, each counted once.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }

    /// Those of them that are not durable, of logs on disk.
    pub fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add_stored(&self, bytes: u64) {
        self.stored_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn remove_stored(&self, bytes: u64) {
        self.stored_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_unwritten(&self, bytes: u64) {
        self.unwritten_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn remove_unwritten(&self, bytes: u64) {
        self.unwritten_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Which of its unresolved frames a reader may give up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum GiveUp {
    #[default]
    Nothing,
    /// Those that another reader has taken, a best-effort one not counted.
    Taken,
    Everything,
}

impl GiveUp {
    /// Whether a frame may go, which another reader may have taken.
    pub(crate) fn allows(self, is_taken: impl FnOnce() -> bool) -> bool {
        match self {
            GiveUp::Nothing => false,
            GiveUp::Taken => is_taken(),
            GiveUp::Everything => true,
        }
    }
}

/// What waits for one reader, as of the last time that the log's lock was released.
#[derive(Debug, Default)]
pub struct ReaderGauges {
    held_bytes: AtomicU64,
    held_frames: AtomicU64,
    unread_bytes: AtomicU64,
    unwritten_bytes: AtomicU64,
    alone_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    give_up: AtomicU8,
}

impl ReaderGauges {
    /// How far the reader is behind the head: what was appended for it and is not resolved.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    pub fn held_frames(&self) -> u64 {
        self.held_frames.load(Ordering::Relaxed)
    }

    /// What of that the reader has not come to.
    pub fn unread_bytes(&self) -> u64 {
        self.unread_bytes.load(Ordering::Relaxed)
    }

    /// What of that is not durable.
    pub fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes.load(Ordering::Relaxed)
    }

    /// What of that only this reader keeps in memory.
    pub fn alone_bytes(&self) -> u64 {
        self.alone_bytes.load(Ordering::Relaxed)
    }

    /// The reader's budget.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// True if more waits for the reader than its budget allows, a single frame excepted.
    pub fn is_over_budget(&self) -> bool {
        self.held_frames() > 1 && self.held_bytes() > self.limit_bytes()
    }

    pub fn may_give_up(&self) -> GiveUp {
        match self.give_up.load(Ordering::Relaxed) {
            0 => GiveUp::Nothing,
            1 => GiveUp::Taken,
            _ => GiveUp::Everything,
        }
    }

    /// Says what the reader may give up from now on.
    pub fn allow(&self, give_up: GiveUp) {
        self.give_up.store(give_up as u8, Ordering::Relaxed);
    }

    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// The last three in bytes.
    pub(crate) fn publish(&self, held: Holding, unread: u64, unwritten: u64, alone: u64) {
        self.held_bytes.store(held.bytes, Ordering::Relaxed);
        self.held_frames.store(held.frames, Ordering::Relaxed);
        self.unread_bytes.store(unread, Ordering::Relaxed);
        self.unwritten_bytes.store(unwritten, Ordering::Relaxed);
        self.alone_bytes.store(alone, Ordering::Relaxed);
    }
}
