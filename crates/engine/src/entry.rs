//! What the log holds: a frame, who waits for it, and the work on it that deliveries share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluice_flow::{Frame, Payload, Refusal};
use sluice_log::{Charge, CursorId};
use tokio::sync::oneshot;

/// What a frame costs beside its bytes: the entry, its place in the log and its metadata.
const OVERHEAD_BYTES: u64 = 512;

pub(crate) struct Entry {
    pub frame: Frame,
    /// Fingerprints of the steps that were run before the log, in order. None of them runs again.
    pub prepared: Arc<[u64]>,
    ack: Option<Ack>,
    shared: SharedWork,
}

impl Entry {
    pub(crate) fn new(frame: Frame, prepared: Arc<[u64]>, ack: Option<Ack>, memory: Arc<SharedWorkMemory>) -> Self {
        Entry { frame, prepared, ack, shared: SharedWork { memory, results: Mutex::default() } }
    }

    pub(crate) fn charge(&self) -> Charge {
        Charge { bytes: self.frame.payload.bytes.len() as u64 + OVERHEAD_BYTES, items: u64::from(self.frame.items) }
    }

    /// Says that `reader` has resolved the frame. The sender is answered when the last one that it waits for has.
    pub(crate) fn resolved(&self, reader: CursorId, result: Result<(), Refusal>) {
        if let Some(ack) = &self.ack {
            ack.resolved(reader, result);
        }
    }

    pub(crate) fn shared(&self) -> &SharedWork {
        &self.shared
    }
}

/// A sender that waits for deliveries.
pub(crate) struct Ack {
    waits_for: Arc<[CursorId]>,
    remaining: AtomicUsize,
    sender: Mutex<Option<oneshot::Sender<Result<(), Refusal>>>>,
}

impl Ack {
    pub(crate) fn new(waits_for: Arc<[CursorId]>) -> (Self, oneshot::Receiver<Result<(), Refusal>>) {
        let (sender, receiver) = oneshot::channel();
        let remaining = AtomicUsize::new(waits_for.len());
        (Ack { waits_for, remaining, sender: Mutex::new(Some(sender)) }, receiver)
    }

    fn resolved(&self, reader: CursorId, result: Result<(), Refusal>) {
        if !self.waits_for.contains(&reader) {
            return;
        }
        let last = self.remaining.fetch_sub(1, Ordering::AcqRel) == 1;
        if (last || result.is_err())
            && let Some(sender) = self.sender.lock().take()
        {
            // A sender that has gone away does not want to know.
            let _ = sender.send(result);
        }
    }
}

/// Bytes of shared results in the whole process, and their bound.
#[derive(Debug)]
pub(crate) struct SharedWorkMemory {
    used_bytes: AtomicUsize,
    limit_bytes: usize,
}

impl SharedWorkMemory {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        SharedWorkMemory { used_bytes: AtomicUsize::new(0), limit_bytes }
    }
}

/// What a chain of steps made of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Processed {
    pub payload: Payload,
    pub items: u32,
}

struct SharedResult {
    chain: u64,
    processed: Processed,
    uses_left: usize,
}

/// Results of steps that several deliveries need, kept until the last of them took its copy. A delivery that lags
/// finds them dropped when memory is short, and does the work again.
pub(crate) struct SharedWork {
    memory: Arc<SharedWorkMemory>,
    results: Mutex<Vec<SharedResult>>,
}

impl SharedWork {
    /// The result of `chain`, computed by the first of `sharers` deliveries that asks.
    pub(crate) fn get_or_compute<E>(
        &self,
        chain: u64,
        sharers: usize,
        compute: impl FnOnce() -> Result<Processed, E>,
    ) -> Result<Processed, E> {
        if sharers < 2 {
            return compute();
        }
        let mut results = self.results.lock();
        if let Some(index) = results.iter().position(|result| result.chain == chain) {
            let processed = results[index].processed.clone();
            results[index].uses_left -= 1;
            if results[index].uses_left == 0 {
                let removed = results.swap_remove(index);
                self.memory.used_bytes.fetch_sub(removed.processed.payload.bytes.len(), Ordering::Relaxed);
            }
            return Ok(processed);
        }
        let processed = compute()?;
        let bytes = processed.payload.bytes.len();
        if self.memory.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.memory.limit_bytes {
            results.push(SharedResult { chain, processed: processed.clone(), uses_left: sharers - 1 });
        } else {
            self.memory.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        Ok(processed)
    }
}

impl Drop for SharedWork {
    fn drop(&mut self) {
        let bytes: usize = self.results.get_mut().iter().map(|result| result.processed.payload.bytes.len()).sum();
        self.memory.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn processed(bytes: usize) -> Result<Processed, ()> {
        Ok(Processed { payload: Payload::identity(Bytes::from(vec![0; bytes])), items: 1 })
    }

    #[test]
    fn shared_work_is_done_once_and_let_go_after_the_last_use() {
        let memory = Arc::new(SharedWorkMemory::new(1000));
        let shared = SharedWork { memory: memory.clone(), results: Mutex::default() };
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
        let memory = Arc::new(SharedWorkMemory::new(150));
        let entries: Vec<_> =
            (0..3).map(|_| SharedWork { memory: memory.clone(), results: Mutex::default() }).collect();
        for shared in &entries {
            shared.get_or_compute(7, 2, || processed(100)).unwrap();
        }
        assert_eq!(memory.used_bytes.load(Ordering::Relaxed), 100);
        drop(entries);
        assert_eq!(memory.used_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_sender_is_answered_by_the_last_delivery_it_waits_for_or_by_the_first_refusal() {
        let log = sluice_log::Log::<()>::default();
        let [a, b, other] = ["a", "b", "c"].map(|name| log.subscribe(sluice_log::Subscription::new(name)));
        let (ack, mut answer) = Ack::new([a, b].into());
        ack.resolved(other, Ok(()));
        ack.resolved(a, Ok(()));
        assert!(answer.try_recv().is_err());
        ack.resolved(b, Ok(()));
        assert_eq!(answer.try_recv(), Ok(Ok(())));

        let (ack, mut answer) = Ack::new([a, b].into());
        let refusal = Refusal::Rejected { reason: "no".into() };
        ack.resolved(a, Err(refusal.clone()));
        assert_eq!(answer.try_recv(), Ok(Err(refusal)));
        ack.resolved(b, Ok(()));
    }
}
