//! Memory of deliveries beside the log: results of their own steps, cut parts, packed copies,
//! requests in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

/// Memory of one delivery, or of work that several share, and of all of them together.
#[derive(Debug, Default)]
pub(crate) struct PrivateMemory {
    own_bytes: AtomicU64,
    all_bytes: Arc<AtomicU64>,
}

impl PrivateMemory {
    pub(crate) fn new(all_bytes: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(PrivateMemory { own_bytes: AtomicU64::new(0), all_bytes })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.own_bytes.load(Ordering::Relaxed)
    }

    /// Of all deliveries together.
    pub(crate) fn all_used_bytes(&self) -> u64 {
        self.all_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> ChargedMemory {
        let mut charged = ChargedMemory { memory: self.clone(), bytes: 0 };
        charged.set(bytes);
        charged
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
        [&self.memory.own_bytes, &self.memory.all_bytes]
            .map(|used_bytes| used_bytes.fetch_add(more, Ordering::Relaxed))
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
}

impl ChargedCopy {
    pub(crate) fn new(bytes: Bytes, memory: &Arc<PrivateMemory>) -> Arc<Self> {
        let charged = Mutex::new(memory.charge(bytes.len()));
        Arc::new(ChargedCopy { bytes, charged })
    }

    /// Charges it to `memory` instead.
    pub(crate) fn move_to(&self, memory: &Arc<PrivateMemory>) {
        *self.charged.lock() = memory.charge(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_charged_to_its_delivery_and_to_all_until_it_is_dropped() {
        let all = Arc::new(AtomicU64::new(0));
        let (a, b) = (PrivateMemory::new(all.clone()), PrivateMemory::new(all.clone()));
        let (mut first, second) = (a.charge(100), b.charge(7));
        first.set(30);
        assert_eq!((a.used_bytes(), b.used_bytes(), all.load(Ordering::Relaxed)), (30, 7, 37));
        drop((first, second));
        assert_eq!((a.used_bytes(), all.load(Ordering::Relaxed)), (0, 0));
    }
}
