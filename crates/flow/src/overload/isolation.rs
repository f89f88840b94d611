//! Who sheds under `isolate` ([`sheds`]), so that no delivery waits for a sick one (rules 4 and 5).

use super::pacing::PACE_BYTES;
use super::{DeliveryState, Policy, Sheds};

/// A delivery keeps up if it lags by less than this part of what a sick one does.
const KEEPS_UP_PART: u64 = 4;

/// What the best backend of a route takes of what it is sent.
pub fn best_taken_share(route: impl Iterator<Item = DeliveryState>) -> f64 {
    route
        .filter(|delivery| !delivery.is_best_effort)
        .map(|delivery| delivery.backend.taken_share)
        .fold(0.0, f64::max)
}

/// The delivery's own backend is why it lags, rather than too little of the CPU or too much that is
/// sent to all. `best_taken_share` is that of its route: where all refuse alike, none is to blame.
pub fn is_sick(delivery: &DeliveryState, best_taken_share: f64) -> bool {
    let backend = delivery.backend;
    backend.in_outage
        || backend.stands_still
        || backend.is_outpaced
        || takes_much_less(delivery, best_taken_share)
}

pub(super) fn takes_much_less(delivery: &DeliveryState, best_taken_share: f64) -> bool {
    delivery.backend.taken_share < best_taken_share / 2.0
}

/// What the rules need to know of a route to judge one of its deliveries.
#[derive(Clone, Copy, Debug)]
pub struct RouteView {
    best_taken_share: f64,
    /// Some healthy delivery lags by so little that it keeps up beside any other.
    has_close: bool,
    /// By how much the healthy delivery lags that lags the least.
    least_lag_bytes: u64,
}

impl RouteView {
    pub fn of(route: impl Iterator<Item = DeliveryState> + Clone) -> Self {
        let best_taken_share = best_taken_share(route.clone());
        let mut view = RouteView { best_taken_share, has_close: false, least_lag_bytes: u64::MAX };
        let is_healthy = |it: &DeliveryState| !it.is_best_effort && !is_sick(it, best_taken_share);
        for other in route.filter(is_healthy) {
            view.has_close |= other.lag_bytes <= PACE_BYTES.min(other.limit_bytes / KEEPS_UP_PART);
            view.least_lag_bytes = view.least_lag_bytes.min(other.lag_bytes);
        }
        view
    }

    /// Whether a healthy delivery of the route lags by little, seen from this one.
    pub(super) fn another_keeps_up(&self, delivery: &DeliveryState) -> bool {
        self.has_close || self.least_lag_bytes <= delivery.lag_bytes / KEEPS_UP_PART
    }
}

/// What the delivery may give up: rule 5 (isolate), or what its policy says.
pub fn sheds(delivery: &DeliveryState, route: &RouteView) -> Sheds {
    match delivery.policy {
        Policy::DropOldest => Sheds::Everything,
        Policy::Backpressure => Sheds::Nothing,
        // A delivery that is sick itself does not keep up.
        Policy::Isolate
            if is_sick(delivery, route.best_taken_share) && route.another_keeps_up(delivery) =>
        {
            Sheds::Taken
        }
        Policy::Isolate => Sheds::Nothing,
    }
}
