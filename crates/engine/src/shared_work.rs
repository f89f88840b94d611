//! Work on a frame that several deliveries need: done once, kept until the last took its copy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_flow::Payload;

use crate::private_memory::{ChargedCopy, ChargedMemory, PrivateMemory};

/// Bytes of shared results in the whole process, and their bound.
#[derive(Debug)]
pub(crate) struct SharedWorkMemory {
    /// Everything that was made for several deliveries, until the last of them drops it.
    private: Arc<PrivateMemory>,
    /// The part that is kept for deliveries that have not asked yet.
    kept: Arc<PrivateMemory>,
    /// After a reload lowers it, results that are kept stay until their last use.
    pub(crate) limit_bytes: AtomicU64,
}

impl SharedWorkMemory {
    pub(crate) fn new(limit_bytes: u64, private: Arc<PrivateMemory>) -> Self {
        let limit_bytes = AtomicU64::new(limit_bytes);
        SharedWorkMemory { private, kept: Arc::default(), limit_bytes }
    }
}

/// The result of a chain of steps for a frame.
#[derive(Clone, Debug)]
pub(crate) struct Processed {
    pub payload: Payload,
    pub items: u32,
    /// The payload as it is charged, where several deliveries share it: once.
    pub charged: Option<Arc<ChargedCopy>>,
}

struct SharedResult {
    chain: u64,
    processed: Processed,
    uses_left: usize,
    _kept: ChargedMemory,
}

/// Results of steps that several deliveries need, kept until the last of them took its copy. A
/// delivery that lags finds them dropped when memory is short, and does the work again.
pub(crate) struct SharedWork {
    memory: Arc<SharedWorkMemory>,
    results: Mutex<Vec<SharedResult>>,
    /// The frame inflated, while some delivery uses it.
    inflated: Mutex<Weak<ChargedCopy>>,
}

impl SharedWork {
    pub(crate) fn new(memory: Arc<SharedWorkMemory>) -> Self {
        SharedWork { memory, results: Mutex::default(), inflated: Mutex::default() }
    }

    /// The frame inflated, charged to the one delivery that uses it, or to all that do together.
    pub(crate) fn inflated<E>(
        &self,
        own: &Arc<PrivateMemory>,
        inflate: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Arc<ChargedCopy>, E> {
        let mut inflated = self.inflated.lock();
        if let Some(copy) = inflated.upgrade() {
            copy.move_to(&self.memory.private);
            return Ok(copy);
        }
        let copy = ChargedCopy::new(inflate()?, own);
        *inflated = Arc::downgrade(&copy);
        Ok(copy)
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
            return Ok(results.swap_remove(index).processed);
        }
        let mut processed = compute()?;
        let bytes = processed.payload.bytes.len();
        let copy = ChargedCopy::new(processed.payload.bytes.clone(), &self.memory.private);
        processed.charged = Some(copy);
        let _kept = self.memory.kept.charge(bytes);
        if self.memory.kept.used_bytes() <= self.memory.limit_bytes.load(Ordering::Relaxed) {
            let (processed, uses_left) = (processed.clone(), sharers - 1);
            results.push(SharedResult { chain, processed, uses_left, _kept });
        }
        Ok(processed)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::private_memory::CommonMemory;

    fn processed(bytes: usize) -> Result<Processed, ()> {
        Ok(Processed {
            payload: Payload::identity(Bytes::from(vec![0; bytes])),
            items: 1,
            charged: None,
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
        assert_eq!((computed, memory.kept.used_bytes()), (1, 0));
    }

    #[test]
    fn a_frame_is_inflated_once_and_charged_to_the_delivery_that_alone_holds_it() {
        let all = Arc::<CommonMemory>::default();
        let [one, other, together] = [(); 3].map(|()| PrivateMemory::new(all.clone()));
        let shared = SharedWork::new(Arc::new(SharedWorkMemory::new(0, together.clone())));
        let mut inflated = 0;
        let mut inflate = |own| {
            let bytes = || {
                inflated += 1;
                Ok::<_, ()>(Bytes::from(vec![0; 100]))
            };
            shared.inflated(own, bytes).unwrap()
        };
        let charged = || [&one, &other, &together].map(|it| it.used_bytes());
        let first = inflate(&one);
        assert_eq!(charged(), [100, 0, 0]);
        let second = inflate(&other);
        drop(first);
        assert_eq!((charged(), all.used_bytes()), ([0, 0, 100], 100));
        drop(second);
        let _again = inflate(&other);
        assert_eq!((charged(), inflated), ([0, 100, 0], 2));
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
        assert_eq!(memory.kept.used_bytes(), 100);
        memory.limit_bytes.store(250, Ordering::Relaxed);
        work();
        assert_eq!(memory.kept.used_bytes(), 200);
        drop(entries);
        assert_eq!(memory.kept.used_bytes(), 0);
    }
}
