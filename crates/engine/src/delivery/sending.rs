//! The memory of requests in flight beside their frames: packed copies, and payloads that are
//! inflated to be packed. A backend that hangs holds it until its timeout.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_flow::dispatch::Batch;
use sluice_flow::{Exporter, Payload};
use sluice_otlp::Encoding;

use super::Delivery;
use super::prepare::Lease;

impl Delivery {
    /// The last request may exceed the share and the common part: its size is not known before it
    /// is taken.
    pub(super) fn has_room_to_send(&self) -> bool {
        let is_below = |used, limit: &AtomicU64| used < limit.load(Ordering::Relaxed);
        is_below(self.sending.used_bytes(), &self.sending_limit_bytes)
            || is_below(self.sending.all_used_bytes(), &self.common_sending_limit_bytes)
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
