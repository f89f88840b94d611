//! The shares of the process's memory.

/// The parts of the memory limit, all in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    pub limit_bytes: u64,
    /// For connections that are open, of all receivers together.
    pub connections_bytes: u64,
    /// For requests that are being read, and as much again for bytes of requests that wait, which
    /// bounds the flow-control windows; small requests find more in both. No backlog can take it.
    pub receiving_bytes: u64,
    /// For results that the deliveries of a pipeline share.
    pub shared_work_bytes: u64,
    /// For the ranges that were had from other Sluices, of each signal. Fixed at the start.
    pub window_bytes: u64,
    /// For the backlogs of all deliveries of all signals together.
    pub backlog_bytes: u64,
    /// The backlog of one best-effort delivery (`debug`), at most.
    pub best_effort_bytes: u64,
    /// Packed copies of requests that wait for a retry, of one delivery, at most.
    pub packed_bytes: u64,
    /// Copies of requests in flight, beside the backlogs, of one delivery: its own share. All share
    /// as much again.
    pub sending_bytes: u64,
    pub common_sending_bytes: u64,
    /// Dead letters, a delivery.
    pub dead_letters_bytes: u64,
    /// Of each receiver and exporter that keeps memory beside that of requests.
    pub kept_bytes: u64,
}

use sluice_otlp::Signal;

use super::MIB;
use crate::receiving::SMALL_REQUESTS_PART;

/// The process itself: code, runtime, a few connections.
const PROCESS_BYTES: u64 = 16 * MIB;
/// The smallest limit with which the rest can work.
pub(super) const LIMIT_MIN_BYTES: u64 = 48 * MIB;
/// The limit divided by this is for senders' connections.
const CONNECTIONS_PART: u64 = 8;
/// More is for payloads: about 12,700 idle connections.
const CONNECTIONS_MAX_BYTES: u64 = 256 * MIB;
/// Memory that allocations cost beyond their size (size classes, fragmentation), in percent of it.
const ALLOCATOR_OVERHEAD_PERCENT: u64 = 20;

/// The memory for payloads beyond these bytes, divided by the part, is for what receivers and
/// exporters keep.
const KEPT_PART: u64 = 4;
const KEPT_FROM_BYTES: u64 = 8 * MIB;
/// The memory for payloads divided by this is for sending.
const SENDING_PART: u64 = 16;
/// The memory for payloads divided by this is for a signal's window of ranges: a window for some
/// thousand senders at the default limit.
const WINDOW_PART: u64 = 192;
/// The memory for all backlogs divided by this is for a best-effort delivery's backlog.
const BEST_EFFORT_PART: u64 = 16;
/// The memory for all backlogs divided by this is for packed copies of one delivery. Packing again
/// costs CPU time; copies take memory that frames need.
const PACKED_PART: u64 = 16;

impl MemoryPlan {
    /// `spike_bytes`, which `memory_limiter` keeps free, is here the share of receiving.
    /// `own_bytes`: own telemetry that waits to be sent. `keepers`: receivers and exporters that
    /// keep memory.
    pub fn new(
        limit_bytes: u64,
        deliveries: usize,
        dead_letters_bytes: Option<u64>,
        spike_bytes: Option<u64>,
        own_bytes: u64,
        keepers: usize,
    ) -> Self {
        let limit_bytes = limit_bytes.max(LIMIT_MIN_BYTES);
        let connections_bytes = (limit_bytes / CONNECTIONS_PART).min(CONNECTIONS_MAX_BYTES);
        let payloads = (limit_bytes - PROCESS_BYTES - connections_bytes - own_bytes) * 100
            / (100 + ALLOCATOR_OVERHEAD_PERCENT);
        let keepers = keepers as u64;
        let kept_bytes = payloads.saturating_sub(KEPT_FROM_BYTES) / KEPT_PART;
        let kept_bytes = kept_bytes.checked_div(keepers).unwrap_or(0);
        let payloads = payloads - kept_bytes * keepers;
        let receives = spike_bytes
            .map_or((payloads / 5).min(256 * MIB), |spike| spike.clamp(payloads / 8, payloads / 3));
        // Small requests find a part more.
        let small_part = SMALL_REQUESTS_PART as u64;
        let receiving_bytes = receives / (small_part + 1) * small_part;
        let shared_work_bytes = payloads / 16;
        let window_bytes = payloads / WINDOW_PART;
        let deliveries = deliveries.max(1) as u64;
        let common_sending_bytes = payloads / SENDING_PART / 2;
        let sending_bytes = common_sending_bytes / deliveries;
        let all_sending_bytes = common_sending_bytes + sending_bytes * deliveries;
        let windows_bytes = window_bytes * Signal::ALL.len() as u64;
        let rest_bytes =
            payloads - 2 * receives - shared_work_bytes - all_sending_bytes - windows_bytes;
        let share = rest_bytes / deliveries;
        let dead_letters_bytes =
            dead_letters_bytes.unwrap_or((share / 8).min(32 * MIB)).min(share / 2);
        let backlog_bytes = rest_bytes - dead_letters_bytes * deliveries;
        MemoryPlan {
            limit_bytes,
            connections_bytes,
            receiving_bytes,
            shared_work_bytes,
            window_bytes,
            backlog_bytes,
            best_effort_bytes: (backlog_bytes / BEST_EFFORT_PART).min(16 * MIB),
            packed_bytes: backlog_bytes / PACKED_PART,
            sending_bytes,
            common_sending_bytes,
            dead_letters_bytes,
            kept_bytes,
        }
    }

    /// The limit if the configuration has none: half of the available memory, at most 1 GiB.
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
                for (dead_letters, spike, keepers) in
                    [(None, None, 0), (Some(0), Some(0), 1), (Some(u64::MAX), Some(u64::MAX), 3)]
                {
                    let own = 4 * MIB;
                    let plan =
                        MemoryPlan::new(limit, deliveries, dead_letters, spike, own, keepers);
                    let each = plan.dead_letters_bytes + plan.sending_bytes;
                    let all = each * deliveries.max(1) as u64 + plan.common_sending_bytes;
                    let backlogs = plan.backlog_bytes + all;
                    let for_small = plan.receiving_bytes / SMALL_REQUESTS_PART as u64;
                    let receiving = 2 * (plan.receiving_bytes + for_small);
                    let kept = plan.kept_bytes * keepers as u64;
                    assert_eq!(kept > 0, keepers > 0);
                    let parts = receiving
                        + plan.shared_work_bytes
                        + 3 * plan.window_bytes
                        + backlogs
                        + kept;
                    let parts = parts * (100 + ALLOCATOR_OVERHEAD_PERCENT) / 100;
                    assert!(
                        parts + plan.connections_bytes + PROCESS_BYTES + 4 * MIB
                            <= plan.limit_bytes,
                        "{plan:?}"
                    );
                    assert!(plan.backlog_bytes >= plan.limit_bytes / 32, "{plan:?}");
                }
            }
        }
    }
}
