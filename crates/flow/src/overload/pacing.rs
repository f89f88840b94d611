//! Whether what comes now had better wait, because the CPU is the bottleneck (rule 1).

use super::{DeliveryState, Policy};

/// A delivery for which so much waits is not idle for want of data. Under more load than the CPU
/// can bear this keeps it from being spent on receiving and refusing what cannot be delivered, and
/// what is in flight within the CPU's caches.
pub(super) const PACE_BYTES: u64 = 4 << 20;
/// Of a delivery's limit, at most.
const PACE_PART: u64 = 4;

/// A delivery with the policy `backpressure` paces on its own. The others pace together: while one
/// of them has too little to do, the rest have slow backends.
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

/// What comes now waits, at whatever pace it comes.
fn is_out_or_far_behind(delivery: &DeliveryState) -> bool {
    delivery.backend.in_outage || delivery.is_far_behind
}
