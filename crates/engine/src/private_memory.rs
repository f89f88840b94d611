//! Memory of deliveries beside the log: results of their own steps, cut parts, packed copies,
//! requests in flight.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_log::MemoryUse;

/// Memory of all deliveries together.
#[derive(Debug, Default)]
pub(crate) struct CommonMemory {
    used_bytes: AtomicU64,
    /// Those of copies that could not be made again, so that they are kept while they wait.
    kept_bytes: AtomicU64,
}

impl CommonMemory {
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Without what is kept for backends that may be away for long.
    fn passing_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.kept_bytes.load(Ordering::Relaxed))
    }
}

/// Memory of one delivery, or of work that several share, and of all of them together.
#[derive(Debug, Default)]
pub(crate) struct PrivateMemory {
    own_bytes: AtomicU64,
    common: Arc<CommonMemory>,
}

impl PrivateMemory {
    pub(crate) fn new(common: Arc<CommonMemory>) -> Arc<Self> {
        Arc::new(PrivateMemory { own_bytes: AtomicU64::new(0), common })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.own_bytes.load(Ordering::Relaxed)
    }

    /// Of all deliveries together.
    pub(crate) fn all_used_bytes(&self) -> u64 {
        self.common.used_bytes()
    }

    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> ChargedMemory {
        let mut charged = ChargedMemory { memory: self.clone(), bytes: 0 };
        charged.set(bytes);
        charged
    }
}

/// Limits of the memory that a delivery takes beside the log, in bytes.
#[derive(Debug)]
pub(crate) struct PrivateLimits {
    /// Its own.
    pub own_bytes: AtomicU64,
    /// That of all deliveries together; below its equal part of that, a delivery is not to blame.
    pub all_bytes: AtomicU64,
    pub part_bytes: AtomicU64,
    /// That of all deliveries and of the frames in memory: the pool up to its high water.
    pub pool_bytes: AtomicU64,
    pub stored: OnceLock<Arc<MemoryUse>>,
}

/// Units that wait may keep the limit of all divided by this.
const WAITING_PART: u64 = 4;

impl Default for PrivateLimits {
    fn default() -> Self {
        let [own_bytes, all_bytes, part_bytes, pool_bytes] = [u64::MAX; 4].map(AtomicU64::new);
        PrivateLimits { own_bytes, all_bytes, part_bytes, pool_bytes, stored: OnceLock::new() }
    }
}

impl PrivateLimits {
    /// Changes them (reload).
    pub(crate) fn set(&self, own_bytes: u64, all_bytes: u64, deliveries: usize) {
        self.own_bytes.store(own_bytes, Ordering::Relaxed);
        self.all_bytes.store(all_bytes, Ordering::Relaxed);
        self.part_bytes.store(all_bytes / deliveries.max(1) as u64, Ordering::Relaxed);
    }

    /// No more should be made before something is sent.
    pub(crate) fn is_spent(&self, used: &PrivateMemory) -> bool {
        let own_bytes = used.used_bytes();
        own_bytes > self.own_bytes.load(Ordering::Relaxed)
            || used.all_used_bytes() > self.all_bytes.load(Ordering::Relaxed)
                && own_bytes > self.part_bytes.load(Ordering::Relaxed)
    }

    /// Units that wait for their backend should not keep memory. A part is always left to others.
    pub(crate) fn is_short(&self, used: &PrivateMemory) -> bool {
        let limit_bytes = self.all_bytes.load(Ordering::Relaxed);
        used.used_bytes() > self.own_bytes.load(Ordering::Relaxed)
            || used.common.passing_bytes() > limit_bytes / WAITING_PART
            || self.is_pool_full(used.all_used_bytes())
    }

    /// Frames that are received need the rest of the pool.
    fn is_pool_full(&self, all_bytes: u64) -> bool {
        let stored_bytes = self.stored.get().map_or(0, |memory| memory.stored_bytes.get());
        stored_bytes.saturating_add(all_bytes) > self.pool_bytes.load(Ordering::Relaxed)
    }

    /// Reserves memory for a copy. None if it has to wait until others are gone: a large one finds
    /// room only beside few others. For copies that are kept it does not wait: they may stay for as
    /// long as another backend is away.
    pub(crate) fn reserve(
        &self,
        memory: &Arc<PrivateMemory>,
        bytes: usize,
    ) -> Option<ChargedMemory> {
        let passing_bytes = memory.common.passing_bytes();
        let mut reserved = memory.charge(0);
        let [_, all_before_bytes] = reserved.set(bytes);
        let bytes = bytes as u64;
        let limit_bytes = self.all_bytes.load(Ordering::Relaxed);
        let all_bytes = all_before_bytes.saturating_add(bytes);
        let has_room = bytes <= self.part_bytes.load(Ordering::Relaxed)
            || passing_bytes <= limit_bytes / WAITING_PART
            || all_bytes <= limit_bytes && !self.is_pool_full(all_bytes);
        has_room.then_some(reserved)
    }
}

/// Memory that is charged until this is dropped.
#[derive(Debug)]
pub(crate) struct ChargedMemory {
    memory: Arc<PrivateMemory>,
    bytes: usize,
}

impl ChargedMemory {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back a part, at most all of it.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_sub(bytes));
    }

    /// Returns the used bytes of the delivery and of all before this.
    pub(crate) fn set(&mut self, bytes: usize) -> [u64; 2] {
        // A smaller number wraps the difference around, so that adding it subtracts.
        let more = (bytes as u64).wrapping_sub(self.bytes as u64);
        self.bytes = bytes;
        [&self.memory.own_bytes, &self.memory.common.used_bytes].map(|used_bytes| match more {
            // Most units take none: other threads need not wait for that.
            0 => used_bytes.load(Ordering::Relaxed),
            more => used_bytes.fetch_add(more, Ordering::Relaxed),
        })
    }
}

impl Drop for ChargedMemory {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes that are charged as long as this lives.
#[derive(Debug)]
pub(crate) struct ChargedCopy {
    pub(crate) bytes: Bytes,
    charged: Mutex<ChargedMemory>,
    /// Set if it could not be made again.
    kept: OnceLock<Arc<CommonMemory>>,
}

impl ChargedCopy {
    pub(crate) fn new(bytes: Bytes, memory: &Arc<PrivateMemory>) -> Arc<Self> {
        let charged = Mutex::new(memory.charge(bytes.len()));
        Arc::new(ChargedCopy { bytes, charged, kept: OnceLock::new() })
    }

    /// It cannot be made again, and is kept while it waits.
    pub(crate) fn keep(&self) {
        self.kept.get_or_init(|| {
            let common = self.charged.lock().memory.common.clone();
            common.kept_bytes.fetch_add(self.bytes.len() as u64, Ordering::Relaxed);
            common
        });
    }

    /// Charges it to `memory` instead.
    pub(crate) fn move_to(&self, memory: &Arc<PrivateMemory>) {
        *self.charged.lock() = memory.charge(self.bytes.len());
    }
}

impl Drop for ChargedCopy {
    fn drop(&mut self) {
        if let Some(common) = self.kept.get() {
            common.kept_bytes.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_copies_wait_for_each_other_and_small_ones_for_none() {
        let all = Arc::<CommonMemory>::default();
        let deliveries = [(); 8].map(|()| PrivateMemory::new(all.clone()));
        let limits = PrivateLimits::default();
        limits.set(1_000, 800, deliveries.len());
        let reserve = |bytes| {
            let reserved = deliveries.iter().map(|memory| limits.reserve(memory, bytes));
            reserved.flatten().collect::<Vec<_>>()
        };
        let large = reserve(300);
        assert_eq!(large.len(), 2, "a third one would exceed the limit");
        assert_eq!(reserve(100).len(), 8, "their equal parts");
        assert!(!limits.is_spent(&deliveries[0]) && limits.is_short(&deliveries[7]));
        let more = deliveries[2].charge(201);
        assert!(limits.is_spent(&deliveries[0]) && !limits.is_spent(&deliveries[7]));
        drop((large, more));
        let _few = deliveries[2].charge(200);
        assert!(!limits.is_short(&deliveries[2]));
        assert_eq!(reserve(10_000).len(), 1, "one at a time always");
        limits.pool_bytes.store(500, Ordering::Relaxed);
        assert_eq!(reserve(190).len(), 1, "frames need the rest");
        assert_eq!(all.used_bytes(), 200);
    }

    /// Scenario: backends are away whose copies could not be made again, and take all memory for
    /// copies. Guarantee: a large copy of another delivery does not wait for them.
    #[test]
    fn copies_that_are_kept_keep_no_large_ones_out() {
        let all = Arc::<CommonMemory>::default();
        let [sick, well] = [(); 2].map(|()| PrivateMemory::new(all.clone()));
        let limits = PrivateLimits::default();
        limits.set(1_000, 800, 8);
        let copy = ChargedCopy::new(Bytes::from(vec![0; 900]), &sick);
        assert!(limits.reserve(&well, 300).is_none(), "it will be let go of");
        copy.keep();
        copy.keep();
        let reserved = limits.reserve(&well, 300).expect("one at a time always");
        assert!(limits.reserve(&well, 300).is_none());
        drop((copy, reserved));
        assert_eq!((all.used_bytes(), all.passing_bytes()), (0, 0));
    }

    #[test]
    fn what_is_taken_is_charged_to_its_delivery_and_to_all_until_it_is_dropped() {
        let all = Arc::<CommonMemory>::default();
        let (a, b) = (PrivateMemory::new(all.clone()), PrivateMemory::new(all.clone()));
        let (mut first, second) = (a.charge(100), b.charge(7));
        first.set(30);
        assert_eq!((a.used_bytes(), b.used_bytes(), all.used_bytes()), (30, 7, 37));
        drop((first, second));
        assert_eq!((a.used_bytes(), all.used_bytes()), (0, 0));
    }
}
