//! Whether a request is admitted, before any of it is read (rules 1 and 6 to 9).

use std::time::{Duration, Instant};

use super::isolation::{self, RouteView};
use super::{DeliveryState, Policy, PoolState, Sheds, Stamp, pacing};

/// A request waits at least this long for memory before it is refused.
const MEMORY_WAIT: Duration = Duration::from_millis(250);
/// Before that a request is paced for at most this long. Then only limits count.
const PACE_WAIT: Duration = Duration::from_millis(750);
const LONGEST_WAIT: Duration = PACE_WAIT.saturating_add(MEMORY_WAIT);

#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Length of the request.
    pub own_bytes: u64,
    /// `own_bytes`, and the length of all admitted requests that have not arrived.
    pub bytes: u64,
    /// The part of `bytes` that comes the same way: the same receiver and signal.
    pub route_bytes: u64,
    /// The memory that requests on their way have beside the pool.
    pub beside_bytes: u64,
    pub is_cpu_bound: bool,
    pub may_be_paced: bool,
}

impl Arrival {
    /// The bytes for which the pool and the disk must have room: those of the route, and of all
    /// routes what exceeds the memory beside the pool. So both together stay within the sum of
    /// their limits.
    pub fn pool_bytes(&self) -> u64 {
        self.route_bytes.max(self.bytes.saturating_sub(self.beside_bytes))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle<I> {
    /// Deliveries have as much to do as the CPU allows.
    Paced,
    /// This delivery has reached its limit, or is to blame that the pool is nearly full.
    Delivery(I),
    Pool,
}

/// Whether a request is admitted. The caller has made the pool shed before, as far as it may.
pub fn admit<I>(
    pool: &PoolState,
    arrival: Arrival,
    route: impl Iterator<Item = (I, DeliveryState)> + Clone,
) -> Result<(), Obstacle<I>> {
    let states = || route.clone().map(|(_, state)| state);
    if arrival.may_be_paced && pacing::is_paced(arrival.is_cpu_bound, states()) {
        return Err(Obstacle::Paced);
    }
    if let Some(id) = in_the_way(pool, arrival, route.clone()).next() {
        return Err(Obstacle::Delivery(id));
    }
    if pool.is_full(arrival.pool_bytes()) { Err(Obstacle::Pool) } else { Ok(()) }
}

/// The deliveries for which senders have to wait.
pub fn in_the_way<I>(
    pool: &PoolState,
    arrival: Arrival,
    route: impl Iterator<Item = (I, DeliveryState)> + Clone,
) -> impl Iterator<Item = I> {
    // Computed once, and only if a delivery is full: a route may have hundreds of deliveries.
    let mut view = None;
    route.clone().filter_map(move |(id, delivery)| {
        if !is_in_the_way(pool, arrival, &delivery) {
            return None;
        }
        let states = || route.clone().map(|(_, state)| state);
        let view = view.get_or_insert_with(|| RouteView::of(states()));
        (isolation::sheds(&delivery, view) == Sheds::Nothing).then_some(id)
    })
}

/// Senders have to wait for this delivery unless it may shed: it is full, or the pool nearly is and
/// the delivery pins more than its share or its backend takes nothing.
fn is_in_the_way(pool: &PoolState, arrival: Arrival, delivery: &DeliveryState) -> bool {
    let takes_nothing = delivery.backend.in_outage || delivery.backend.stands_still;
    let may_pin_bytes = if takes_nothing { 0 } else { pool.fair_share_bytes() };
    let is_to_blame =
        pool.is_above_high_water(arrival.pool_bytes()) && delivery.pinned_bytes() > may_pin_bytes;
    let is_full = delivery.is_full(arrival.route_bytes, arrival.own_bytes);
    delivery.policy != Policy::DropOldest && (is_full || is_to_blame)
}

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    began: Instant,
}

impl Patience {
    pub fn from(now: Instant) -> Self {
        Patience { began: now }
    }

    pub fn paced_until(&self) -> Instant {
        self.began + PACE_WAIT
    }

    pub fn ends(&self) -> Instant {
        self.began + LONGEST_WAIT
    }

    pub fn may_be_paced(&self, now: Instant) -> bool {
        now < self.paced_until()
    }

    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.ends()
    }
}

/// Whether a request may still wait for memory. `not_found`: when one last found none.
pub fn is_memory_wanted(not_found: &Stamp, now: Instant) -> bool {
    not_found.is_within(LONGEST_WAIT, now)
}
