//! Work on a frame that several deliveries need: done once, kept until the last of them took its
//! copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluice_flow::Payload;

use crate::private_memory::{HeldMemory, PrivateMemory};

/// Bytes of shared results in the whole process, and their bound.
#[derive(Debug)]
pub(crate) struct SharedWorkMemory {
    /// Everything that was made for several deliveries, until the last of them let go of it.
    private: Arc<PrivateMemory>,
    /// The part that is kept for deliveries that have not asked yet.
    used_bytes: AtomicUsize,
    limit_bytes: AtomicUsize,
}

impl SharedWorkMemory {
    pub(crate) fn new(limit_bytes: usize, private: Arc<PrivateMemory>) -> Self {
        SharedWorkMemory {
            private,
            used_bytes: AtomicUsize::new(0),
            limit_bytes: AtomicUsize::new(limit_bytes),
        }
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    fn let_go(&self, processed: &Processed) {
        self.used_bytes.fetch_sub(processed.payload.bytes.len(), Ordering::Relaxed);
    }

    /// Changes the limit (reload). Results that are kept stay until their last use.
    pub(crate) fn set_limit(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }
}

/// What a chain of steps made of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Processed {
    pub payload: Payload,
    pub items: u32,
    /// The memory of the payload, where several deliveries share it: charged once.
    pub held: Option<Arc<HeldMemory>>,
}

struct SharedResult {
    chain: u64,
    processed: Processed,
    uses_left: usize,
}

/// Results of steps that several deliveries need, kept until the last of them took its copy. A
/// delivery that lags finds them dropped when memory is short, and does the work again.
pub(crate) struct SharedWork {
    memory: Arc<SharedWorkMemory>,
    results: Mutex<Vec<SharedResult>>,
}

impl SharedWork {
    pub(crate) fn new(memory: Arc<SharedWorkMemory>) -> Self {
        SharedWork { memory, results: Mutex::default() }
    }

    /// The result of `chain`, computed by the first of `sharers` deliveries that asks: two or more.
    pub(crate) fn get_or_compute<E>(
        &self,
        chain: u64,
        sharers: usize,
        compute: impl FnOnce() -> Result<Processed, E>,
    ) -> Result<Processed, E> {
        let mut results = self.results.lock();
        if let Some(index) = results.iter().position(|result| result.chain == chain) {
            results[index].uses_left -= 1;
            if results[index].uses_left > 0 {
                return Ok(results[index].processed.clone());
            }
            let SharedResult { processed, .. } = results.swap_remove(index);
            self.memory.let_go(&processed);
            return Ok(processed);
        }
        let mut processed = compute()?;
        let bytes = processed.payload.bytes.len();
        processed.held = Some(Arc::new(self.memory.private.hold(bytes)));
        let used_bytes = self.memory.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used_bytes <= self.memory.limit_bytes() {
            let (processed, uses_left) = (processed.clone(), sharers - 1);
            results.push(SharedResult { chain, processed, uses_left });
        } else {
            self.memory.let_go(&processed);
        }
        Ok(processed)
    }
}

impl Drop for SharedWork {
    fn drop(&mut self) {
        self.results.get_mut().iter().for_each(|result| self.memory.let_go(&result.processed));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn processed(bytes: usize) -> Result<Processed, ()> {
        Ok(Processed {
            payload: Payload::identity(Bytes::from(vec![0; bytes])),
            items: 1,
            held: None,
        })
    }

    #[test]
    fn shared_work_is_done_once_and_let_go_after_the_last_use() {
        let memory = Arc::new(SharedWorkMemory::new(1000, Arc::default()));
        let shared = SharedWork::new(memory.clone());
        let mut computed = 0;
        for _ in 0..3 {
            shared
                .get_or_compute(7, 3, || {
                    computed += 1;
                    processed(100)
                })
                .unwrap();
        }
        assert_eq!((computed, memory.used_bytes.load(Ordering::Relaxed)), (1, 0));
    }

    #[test]
    fn shared_work_is_bounded_in_bytes() {
        let memory = Arc::new(SharedWorkMemory::new(150, Arc::default()));
        let entries: Vec<_> = (0..3).map(|_| SharedWork::new(memory.clone())).collect();
        let work = || {
            entries
                .iter()
                .for_each(|shared| drop(shared.get_or_compute(7, 3, || processed(100)).unwrap()))
        };
        work();
        assert_eq!(memory.used_bytes.load(Ordering::Relaxed), 100);
        memory.set_limit(250);
        work();
        assert_eq!(memory.used_bytes.load(Ordering::Relaxed), 200);
        drop(entries);
        assert_eq!(memory.used_bytes.load(Ordering::Relaxed), 0);
    }
}
