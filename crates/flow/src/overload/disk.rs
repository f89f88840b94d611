//! The room of a file system (rule 7), and frames that wait in memory for a disk that is slow or
//! fails (rule 10).

use std::time::Duration;

use super::{DeliveryState, Policy, PoolState};

/// A sender waits this long for a disk. Then it is refused if the disk does not work at all.
pub const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// With more unread bytes a delivery is behind because of its backend, not because of the CPU.
pub(super) const BACKLOG_BYTES: u64 = 16 << 20;

/// Bytes that the file system has for the logs: their files and the free space, if it is known. No
/// space is free while it refuses writes for lack of space: a quota or inodes may be used up.
pub fn room_bytes(files_bytes: u64, free_bytes: Option<u64>, refuses_writes: bool) -> u64 {
    let free_bytes = if refuses_writes { 0 } else { free_bytes.unwrap_or(u64::MAX) };
    files_bytes.saturating_add(free_bytes)
}

/// Bytes that a delivery keeps of the unwritten frames that it may give up. `None`: all.
pub fn keep_unwritten_bytes(
    unwritten_bytes: u64,
    arriving_bytes: u64,
    limit_bytes: u64,
) -> Option<u64> {
    (unwritten_bytes.saturating_add(arriving_bytes) > limit_bytes / 2).then_some(limit_bytes / 4)
}

/// The memory for frames that are not on disk, a pool with a reserve for other receivers.
pub fn unwritten(used_bytes: u64, limit_bytes: u64, deliveries: usize) -> PoolState {
    PoolState { limit_bytes, room_bytes: limit_bytes, used_bytes, firm_bytes: 0, deliveries }
}

/// The arriving bytes exceed that memory, or a delivery of the route has more than a fair share
/// while it is nearly full. `of_route`: unwritten bytes of each.
pub fn is_unwritten_full(
    unwritten: &PoolState,
    arriving_bytes: u64,
    mut of_route: impl Iterator<Item = u64>,
) -> bool {
    let share_bytes = unwritten.fair_share_bytes();
    unwritten.is_full(arriving_bytes)
        || unwritten.is_above_high_water(arriving_bytes) && of_route.any(|it| it > share_bytes)
}

/// A new frame is not delivered soon, so that it waits for the disk.
pub fn is_late(delivery: &DeliveryState) -> bool {
    delivery.backend.in_outage || is_backlog(delivery.unread_bytes)
}

/// The delivery is behind because of its backend, by its unread bytes alone.
pub fn is_backlog(unread_bytes: u64) -> bool {
    unread_bytes > BACKLOG_BYTES
}

/// For a disk that has not worked for a while: a sender would wait for it in vain, because this
/// delivery is late and gives nothing up.
pub fn waits_in_vain(delivery: &DeliveryState) -> bool {
    delivery.policy == Policy::Backpressure && is_late(delivery)
}
