//! Whether new requests should wait because the CPU is the bottleneck (rule 1).
//! `docs/decisions/017-admission-is-paced-by-lag.md` has the reasons.

use super::{DeliveryState, Policy};

/// A delivery with this many unread bytes does not idle for lack of data. Under CPU overload pacing
/// saves the CPU time of receiving and refusing requests that cannot be delivered, and keeps the
/// data in flight within the CPU's caches.
pub(super) const PACE_BYTES: u64 = 4 << 20;
/// At most a delivery's limit divided by this.
const PACE_PART: u64 = 4;

/// A delivery with the policy `backpressure` paces on its own. The other deliveries pace together:
/// while one of them has too little to do, the rest have slow backends.
pub fn is_paced(is_cpu_bound: bool, route: impl Iterator<Item = DeliveryState> + Clone) -> bool {
    let counted = route.filter(|it| it.policy != Policy::DropOldest && !is_out_or_far_behind(it));
    let busy = counted.clone().filter(has_enough_to_do);
    is_cpu_bound
        && (busy.clone().any(|it| it.policy == Policy::Backpressure)
            || busy.clone().next().is_some() && counted.clone().all(|it| has_enough_to_do(&it)))
}

fn has_enough_to_do(delivery: &DeliveryState) -> bool {
    delivery.unread_bytes > PACE_BYTES.min(delivery.limit_bytes / PACE_PART)
}

/// New frames of the delivery wait, whatever the pace of senders.
fn is_out_or_far_behind(delivery: &DeliveryState) -> bool {
    delivery.backend.in_outage || delivery.is_far_behind
}
