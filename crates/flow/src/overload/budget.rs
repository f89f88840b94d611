//! The pool that all backlogs share.

use super::disk::BACKLOG_BYTES;
use super::{DeliveryState, Policy, Sheds};

/// Shedding keeps the room divided by this free, for frames of healthy deliveries in flight.
const RESERVE_PART: u64 = 8;
/// Shedding frees the room divided by this beyond the need: each choice of a delivery looks at all
/// of them.
const STEP_PART: u64 = 64;
/// Connections may borrow this percentage of the memory that no backlog takes.
const LENDABLE_PERCENT: u64 = 85;

/// The pool at a moment, in bytes of charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    pub limit_bytes: u64,
    /// The usable part of the limit: less if the file system is full before ([`super::disk`]).
    pub room_bytes: u64,
    /// Frames that some delivery has not resolved, each once, and private bytes of deliveries.
    pub used_bytes: u64,
    /// Upper bound of the part of `used_bytes` that no delivery may shed.
    pub firm_bytes: u64,
    pub deliveries: usize,
}

impl PoolState {
    /// Deliveries shed above this.
    pub const fn high_water_bytes(&self) -> u64 {
        high_water(self.room_bytes)
    }

    /// The larger equal part: of the room, or of the limit up to `BACKLOG_BYTES` (frames in flight
    /// need no disk). Above the high-water mark some delivery has more, unless room is scarce.
    pub fn fair_share_bytes(&self) -> u64 {
        let share = |bytes| high_water(bytes) / self.deliveries.max(1) as u64;
        share(self.room_bytes).max(share(self.limit_bytes).min(BACKLOG_BYTES))
    }

    /// The lag up to which a delivery sheds nothing to make room in the pool: its part of the
    /// reserve. Only `drop_oldest` needs it: the other policies let no healthy delivery shed.
    pub fn reserve_bytes(&self, delivery: &DeliveryState) -> u64 {
        let part = self.room_bytes / RESERVE_PART / self.deliveries.max(1) as u64;
        if delivery.policy == Policy::DropOldest { part } else { 0 }
    }

    pub fn is_above_high_water(&self, arriving_bytes: u64) -> bool {
        self.used_bytes.saturating_add(arriving_bytes) > self.high_water_bytes()
    }

    /// The room on disk does not count: the pool takes frames that are delivered from memory.
    pub fn is_full(&self, arriving_bytes: u64) -> bool {
        self.used_bytes > 0 && self.used_bytes.saturating_add(arriving_bytes) > self.limit_bytes
    }

    /// Bytes to be shed before `arriving_bytes` arrive. Zero below the high-water mark.
    pub fn to_shed_bytes(&self, arriving_bytes: u64) -> u64 {
        let excess =
            self.used_bytes.saturating_add(arriving_bytes).saturating_sub(self.high_water_bytes());
        if excess > 0 { excess + self.room_bytes / STEP_PART } else { 0 }
    }
}

/// The part of a pool of this size above which deliveries shed, or make senders wait.
pub const fn high_water(bytes: u64) -> u64 {
    bytes - bytes / RESERVE_PART
}

/// Bytes that connections may have borrowed of a pool in memory with these backlogs.
pub fn lendable_bytes(limit_bytes: u64, backlog_bytes: u64) -> u64 {
    limit_bytes.saturating_sub(backlog_bytes) / 100 * LENDABLE_PERCENT
}

/// Which deliveries shed (rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShedFirst<I> {
    /// The delivery that alone pins the most, of those that may shed.
    Alone(I),
    /// No delivery pins more than a fair share alone: the oldest frames that all their deliveries
    /// may shed, or else the frames of the delivery that alone pins the most.
    Together { else_alone: Option<I> },
}

/// `deliveries`: what each may shed, and the bytes that it pins alone.
pub fn shed_first<I>(
    pool: &PoolState,
    deliveries: impl Iterator<Item = (I, Sheds, u64)>,
) -> ShedFirst<I> {
    let sheds =
        deliveries.filter(|(_, sheds, alone_bytes)| *sheds != Sheds::Nothing && *alone_bytes > 0);
    match sheds.max_by_key(|(_, _, alone_bytes)| *alone_bytes) {
        Some((id, _, alone_bytes)) if alone_bytes >= pool.fair_share_bytes() => {
            ShedFirst::Alone(id)
        }
        most => ShedFirst::Together { else_alone: most.map(|(id, ..)| id) },
    }
}

/// Upper bound of the part of the pool that cannot be shed: at most the pool without the frames
/// that deliveries which may shed pin alone, and at most what the other deliveries pin together.
/// `deliveries`: what each may shed, the bytes that it pins in all, and those that it pins alone.
pub fn firm_bytes(used_bytes: u64, deliveries: impl Iterator<Item = (Sheds, u64, u64)>) -> u64 {
    let (mut firm_bytes, mut shed_bytes) = (0_u64, 0_u64);
    for (sheds, pinned_bytes, alone_bytes) in deliveries {
        match sheds {
            Sheds::Nothing => firm_bytes = firm_bytes.saturating_add(pinned_bytes),
            Sheds::Taken | Sheds::Everything => shed_bytes = shed_bytes.saturating_add(alone_bytes),
        }
    }
    firm_bytes.min(used_bytes.saturating_sub(shed_bytes))
}
