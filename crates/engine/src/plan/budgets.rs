//! How the process's memory is shared out.

/// What the limit is divided into, all in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    pub limit_bytes: u64,
    /// For connections that are open, of all receivers together.
    pub connections_bytes: u64,
    /// For what requests have sent that wait to be read. It bounds the flow-control windows.
    pub waiting_bytes: u64,
    /// For requests that are being read. No backlog can take it.
    pub receiving_bytes: u64,
    /// For results that the deliveries of a pipeline share.
    pub shared_work_bytes: u64,
    /// For what waits for all deliveries of all signals together.
    pub backlog_bytes: u64,
    /// What may wait for one best-effort delivery (`debug`).
    pub best_effort_bytes: u64,
    /// What a delivery may hold of that in packed copies of requests that wait for a retry.
    pub packed_bytes: u64,
    /// For what is being packed and sent, beside the backlogs.
    pub sending_bytes: u64,
    /// Dead letters, a delivery.
    pub dead_letters_bytes: u64,
}

use super::MIB;

/// The process itself: code, runtime, a few connections.
const PROCESS_BYTES: u64 = 16 * MIB;
/// The smallest limit with which the rest can work.
pub(super) const LIMIT_MIN_BYTES: u64 = 48 * MIB;
/// Of the limit, what senders' connections may take.
const CONNECTIONS_PART: u64 = 8;
/// More is for payloads: about 12,700 idle connections.
const CONNECTIONS_MAX_BYTES: u64 = 256 * MIB;
/// Memory that allocations cost beyond their size (size classes, fragmentation), in percent of it.
const ALLOCATOR_OVERHEAD_PERCENT: u64 = 20;

/// Of what is for payloads.
const SENDING_PART: u64 = 16;
/// Of all backlogs, what a best-effort delivery's may be.
const BEST_EFFORT_PART: u64 = 16;
/// Of all backlogs, what packed copies of one delivery may be: to pack again costs CPU time, to
/// keep them memory that frames need.
const PACKED_PART: u64 = 16;

impl MemoryPlan {
    /// `spike_bytes`, which `memory_limiter` keeps free, is here the share of receiving.
    pub fn new(
        limit_bytes: u64,
        deliveries: usize,
        dead_letters_bytes: Option<u64>,
        spike_bytes: Option<u64>,
    ) -> Self {
        let limit_bytes = limit_bytes.max(LIMIT_MIN_BYTES);
        let connections_bytes = (limit_bytes / CONNECTIONS_PART).min(CONNECTIONS_MAX_BYTES);
        let payloads = (limit_bytes - PROCESS_BYTES - connections_bytes) * 100
            / (100 + ALLOCATOR_OVERHEAD_PERCENT);
        let receiving_bytes = spike_bytes
            .map_or((payloads / 5).min(256 * MIB), |spike| spike.clamp(payloads / 8, payloads / 3));
        let shared_work_bytes = payloads / 16;
        let waiting_bytes = receiving_bytes;
        let receives = waiting_bytes + receiving_bytes;
        let sending_bytes = payloads / SENDING_PART;
        let rest_bytes = payloads - receives - shared_work_bytes - sending_bytes;
        let deliveries = deliveries.max(1) as u64;
        let share = rest_bytes / deliveries;
        let dead_letters_bytes =
            dead_letters_bytes.unwrap_or((share / 8).min(32 * MIB)).min(share / 2);
        let backlog_bytes = rest_bytes - dead_letters_bytes * deliveries;
        MemoryPlan {
            limit_bytes,
            connections_bytes,
            waiting_bytes,
            receiving_bytes,
            shared_work_bytes,
            backlog_bytes,
            best_effort_bytes: (backlog_bytes / BEST_EFFORT_PART).min(16 * MIB),
            packed_bytes: backlog_bytes / PACKED_PART,
            sending_bytes,
            dead_letters_bytes,
        }
    }

    /// The limit where the configuration names none: half of what there is, at most 1 GiB.
    pub fn default_limit_bytes(available_bytes: u64) -> u64 {
        (available_bytes / 2).clamp(LIMIT_MIN_BYTES, 1024 * MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_never_add_up_to_more_than_the_limit() {
        for limit in [1, 48 * MIB, 64 * MIB, 500 * MIB, 2048 * MIB, 64 << 30] {
            for deliveries in [0, 1, 3, 15] {
                for (dead_letters, spike) in
                    [(None, None), (Some(0), Some(0)), (Some(u64::MAX), Some(u64::MAX))]
                {
                    let plan = MemoryPlan::new(limit, deliveries, dead_letters, spike);
                    let letters = plan.dead_letters_bytes * deliveries.max(1) as u64;
                    let backlogs = plan.backlog_bytes + plan.sending_bytes + letters;
                    let receiving = plan.receiving_bytes + plan.waiting_bytes;
                    let parts = receiving + plan.shared_work_bytes + backlogs;
                    assert!(
                        parts + plan.connections_bytes + PROCESS_BYTES <= plan.limit_bytes,
                        "{plan:?}"
                    );
                    assert!(plan.backlog_bytes >= plan.limit_bytes / 32, "{plan:?}");
                }
            }
        }
    }
}
