//! How much a file system takes (rule 7), and what waits in memory for a disk that is slow or does
//! not work (rule 10).

use super::{DeliveryState, Policy};

/// A delivery that stays so far behind has a backlog, rather than too little of the CPU.
pub(super) const BACKLOG_BYTES: u64 = 16 << 20;

/// What the file system has for the logs: their files and what is free, if that is known. Nothing
/// is free while it refuses writes for want of space: a quota may be spent, or inodes.
pub fn room_bytes(files_bytes: u64, free_bytes: Option<u64>, refuses_writes: bool) -> u64 {
    let free_bytes = if refuses_writes { 0 } else { free_bytes.unwrap_or(u64::MAX) };
    files_bytes.saturating_add(free_bytes)
}

/// What a delivery keeps of frames that are not on disk and that it may give up. `None`: all.
pub fn keep_unwritten_bytes(
    unwritten_bytes: u64,
    arriving_bytes: u64,
    limit_bytes: u64,
) -> Option<u64> {
    (unwritten_bytes.saturating_add(arriving_bytes) > limit_bytes / 2).then_some(limit_bytes / 4)
}

/// There is no memory left for frames that are not on disk.
pub fn is_unwritten_full(unwritten_bytes: u64, arriving_bytes: u64, limit_bytes: u64) -> bool {
    unwritten_bytes > 0 && unwritten_bytes.saturating_add(arriving_bytes) > limit_bytes
}

/// What comes now is not delivered soon, so that it waits for the disk.
pub fn is_late(delivery: &DeliveryState) -> bool {
    delivery.backend.in_outage || is_backlog(delivery.unread_bytes)
}

/// The delivery's lag alone makes it a backlog.
pub fn is_backlog(unread_bytes: u64) -> bool {
    unread_bytes > BACKLOG_BYTES
}

/// While the disk has not worked for a while: a sender would wait for it in vain, because this
/// delivery is late and gives nothing up.
pub fn waits_in_vain(delivery: &DeliveryState) -> bool {
    delivery.policy == Policy::Backpressure && is_late(delivery)
}
