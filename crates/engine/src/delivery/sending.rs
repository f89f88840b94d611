//! The memory of requests in flight beside their frames: packed copies, and payloads that are
//! inflated to be packed. A backend that hangs holds it until its timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_flow::dispatch::Batch;
use sluice_flow::{Exporter, Payload};
use sluice_otlp::Encoding;

use super::Delivery;
use super::prepare::Lease;

/// The part in use of a delivery's own share, or of the memory that all deliveries share.
#[derive(Debug)]
pub(crate) struct SendingMemory {
    used_bytes: AtomicU64,
    limit_bytes: AtomicU64,
}

impl Default for SendingMemory {
    fn default() -> Self {
        SendingMemory { used_bytes: AtomicU64::new(0), limit_bytes: AtomicU64::new(u64::MAX) }
    }
}

impl SendingMemory {
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The last request may exceed the share: its size is not known before it is taken.
    pub(super) fn has_room(&self) -> bool {
        self.used_bytes() < self.limit_bytes()
    }
}

/// Memory of a request in flight. It is charged until this is dropped.
pub(super) struct Charged {
    delivery: Arc<Delivery>,
    bytes: u64,
}

impl Charged {
    pub(super) fn new(delivery: &Arc<Delivery>, bytes: usize) -> Self {
        let bytes = bytes as u64;
        for memory in [&delivery.sending, &delivery.common_sending] {
            memory.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Charged { delivery: delivery.clone(), bytes }
    }

    /// Gives back all but these bytes, and wakes the delivery's task if there is room now.
    pub(super) fn lower_to(&mut self, bytes: usize) {
        let less_bytes = self.bytes.saturating_sub(bytes as u64);
        self.bytes -= less_bytes;
        for memory in [&self.delivery.sending, &self.delivery.common_sending] {
            let before_bytes = memory.used_bytes.fetch_sub(less_bytes, Ordering::Relaxed);
            if before_bytes >= memory.limit_bytes() && memory.has_room() {
                self.delivery.wake.notify_one();
            }
        }
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.lower_to(0);
    }
}

/// Bytes that packing a batch takes beside its frames, at most.
pub(super) fn packing_bytes(batch: &Batch<Lease>, exporter: &dyn Exporter) -> usize {
    let payloads = || batch.units.iter().map(|unit| &unit.lease.payload);
    let is_packed = |payload: &&Payload| payload.encoding != Encoding::Identity;
    let is_passed_on = batch.units.len() == 1
        && payloads().filter(is_packed).any(|it| exporter.passes_through() == Some(it.encoding));
    if is_passed_on {
        return 0;
    }
    let inflated = payloads().filter(is_packed).map(|it| it.uncompressed_len_bytes);
    batch.bytes + inflated.sum::<usize>()
}
