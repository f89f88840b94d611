//! Answers to senders that are delayed so that nothing has to be dropped (rules 2 and 3).
//!
//! It is the answer that waits, not the request: the data is on its way to the other deliveries
//! meanwhile, and it occupies neither the connection's window nor memory for receiving. Requests
//! that waited unread would have to be refused as soon as they hold up others of their connection.

use super::isolation::{RouteView, best_taken_share, takes_much_less};
use super::{DeliveryState, Policy, PoolState};

/// The delivery for whose sake answers are delayed: its backend works, and at this pace it or the
/// pool is full before all senders have noticed. `in_flight_bytes` is what may arrive until then.
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

/// More than half of its limit is spent, or of the pool together with others that do not shed, and
/// what may arrive would exceed it.
fn is_nearly_full(pool: &PoolState, in_flight_bytes: u64, delivery: &DeliveryState) -> bool {
    let high_water = pool.high_water_bytes();
    let fills_pool = pool.firm_bytes + in_flight_bytes.min(high_water / 2) > high_water;
    delivery.is_full(in_flight_bytes.min(delivery.limit_bytes / 2))
        || fills_pool && delivery.pinned_bytes() > pool.fair_share_bytes()
}

/// Whether it was in vain that a sender was slowed down for a delivery as long as may be: its
/// backlog went on growing, and only this backend is to blame, as CPU time is left for the delivery
/// and another one of the route keeps up.
pub fn was_in_vain(
    delivery: &DeliveryState,
    goes_on: bool,
    route: impl Iterator<Item = DeliveryState> + Clone,
) -> bool {
    goes_on && !delivery.backend.is_short_of_cpu && RouteView::of(route).another_keeps_up(delivery)
}
