//! The pool that all backlogs share.

use super::Sheds;
use super::disk::BACKLOG_BYTES;

/// Of the pool, what shedding keeps free for what healthy deliveries have in flight.
const RESERVE_PART: u64 = 8;
/// Shedding frees so much of the pool at a time beyond what is needed: to choose who sheds costs a
/// look at every delivery.
const STEP_PART: u64 = 64;

/// The pool at a moment, in bytes of charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    pub limit_bytes: u64,
    /// What of it can be had: less where the file system is full before ([`super::disk`]).
    pub room_bytes: u64,
    /// Frames that some delivery has not resolved, each once, and what deliveries hold beside them.
    pub used_bytes: u64,
    /// What of it no delivery may shed, at most.
    pub firm_bytes: u64,
    pub deliveries: usize,
}

impl PoolState {
    /// Above this deliveries shed.
    pub const fn high_water_bytes(&self) -> u64 {
        high_water(self.room_bytes)
    }

    /// What every delivery could have alone. Above the high-water mark some delivery has more,
    /// unless there is next to no room: what deliveries have in flight needs none.
    pub fn fair_share_bytes(&self) -> u64 {
        let share = |bytes| high_water(bytes) / self.deliveries.max(1) as u64;
        share(self.room_bytes).max(share(self.limit_bytes).min(BACKLOG_BYTES))
    }

    pub fn is_above_high_water(&self, arriving_bytes: u64) -> bool {
        self.used_bytes.saturating_add(arriving_bytes) > self.high_water_bytes()
    }

    /// On a full file system below its limit, the pool still takes what is delivered from memory.
    pub fn is_full(&self, arriving_bytes: u64) -> bool {
        self.used_bytes > 0 && self.used_bytes.saturating_add(arriving_bytes) > self.limit_bytes
    }

    /// What has to be shed before so much arrives. Nothing below the high-water mark.
    pub fn to_shed_bytes(&self, arriving_bytes: u64) -> u64 {
        let excess =
            self.used_bytes.saturating_add(arriving_bytes).saturating_sub(self.high_water_bytes());
        if excess > 0 { excess + self.room_bytes / STEP_PART } else { 0 }
    }
}

const fn high_water(bytes: u64) -> u64 {
    bytes - bytes / RESERVE_PART
}

/// Who sheds (rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShedFirst<I> {
    /// The delivery that alone pins the most, of those that may shed.
    Alone(I),
    /// No delivery pins more than a fair share alone: the oldest frames that all their deliveries
    /// may shed; only if there are none, the delivery that alone pins the most.
    Together { else_alone: Option<I> },
}

/// `deliveries`: whether each may shed, and how much it pins alone.
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

/// The part of the pool that cannot be shed, at most. It is what is left without the frames that
/// deliveries which may shed pin alone, and no more than the other deliveries pin together.
/// `deliveries`: what each may shed, pins in all, and pins alone.
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
