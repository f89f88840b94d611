//! Answers to senders are delayed so that nothing has to be dropped (rules 2 and 3).
//!
//! The answer waits, not the request: the data is on its way to the other deliveries meanwhile, and
//! occupies neither the connection's window nor memory for receiving. Requests that waited unread
//! would have to be refused as soon as other requests of their connection need the window.

use std::time::{Duration, Instant};

use super::isolation::{RouteView, best_taken_share, takes_much_less};
use super::{BackendHealth, DeliveryState, Policy, PoolState};

/// A request that waited for a delivery within this time shows that slowing senders down has not
/// helped. An earlier one may have been on its way when answers began to be delayed.
const STILL_IN_THE_WAY: Duration = Duration::from_millis(100);

/// Whether [`delays`] may find a delivery, in less time. `lags`: lag and limit of each delivery.
pub fn is_tight(pool: &PoolState, mut lags: impl Iterator<Item = (u64, u64)>) -> bool {
    pool.used_bytes > pool.room_bytes / 4
        || lags.any(|(lag_bytes, limit_bytes)| lag_bytes > limit_bytes / 2)
}

/// The delivery for which answers are delayed: its backend works, but the delivery or the pool will
/// be full before all senders notice. `in_flight_bytes`: bytes that may arrive until then.
pub fn delays<I>(
    pool: &PoolState,
    in_flight_bytes: u64,
    mut route: impl Iterator<Item = (I, DeliveryState)> + Clone,
) -> Option<I> {
    let best = best_taken_share(route.clone().map(|(_, state)| state));
    let found = route.find(|(_, delivery)| {
        let backend = delivery.backend;
        let works = backend.is_moving && !backend.is_outpaced && !backend.in_outage;
        delivery.policy == Policy::Isolate
            && works
            && !takes_much_less(delivery, best)
            && is_nearly_full(pool, in_flight_bytes, delivery)
    });
    found.map(|(id, _)| id)
}

/// The bytes in flight would exceed its limit, of which more than half is used; or the high-water
/// mark, with all bytes that no delivery may shed, and it pins more than a fair share.
fn is_nearly_full(pool: &PoolState, in_flight_bytes: u64, delivery: &DeliveryState) -> bool {
    let high_water = pool.high_water_bytes();
    let fills_pool = pool.firm_bytes + in_flight_bytes.min(high_water / 2) > high_water;
    let arriving_bytes = in_flight_bytes.min(delivery.limit_bytes / 2);
    delivery.is_full(arriving_bytes, arriving_bytes)
        || fills_pool && delivery.pinned_bytes() > pool.fair_share_bytes()
}

/// The delivery's backlog went on growing although a sender has been slowed since `began`.
pub fn goes_on(health: &BackendHealth, grew: bool, began: Instant, now: Instant) -> bool {
    let still_in_the_way = || health.in_the_way.is_after(now - STILL_IN_THE_WAY);
    grew || health.shed.is_after(began) || still_in_the_way()
}

/// Whether slowing a sender for the full time was in vain: the delivery's backlog went on growing
/// ([`goes_on`]). Only this backend is to blame, as CPU time is left for the delivery and another
/// one of the route keeps up. One with a small backlog is not to blame for large requests.
pub fn was_in_vain(
    pool: &PoolState,
    delivery: &DeliveryState,
    goes_on: bool,
    others: impl Iterator<Item = DeliveryState> + Clone,
) -> bool {
    let holds_much = delivery.lag_bytes > delivery.limit_bytes / 2
        || delivery.pinned_bytes() > pool.fair_share_bytes();
    goes_on
        && holds_much
        && delivery.policy == Policy::Isolate
        && !delivery.backend.is_outpaced
        && !delivery.backend.is_short_of_cpu
        && RouteView::of(others).another_keeps_up(delivery)
}
