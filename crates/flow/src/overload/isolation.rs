//! Which deliveries shed under `isolate` ([`sheds`]): none waits for a sick one (rules 4 and 5).
//! `docs/decisions/021-isolate-needs-a-culprit.md` has the reasons.

use super::pacing::PACE_BYTES;
use super::{DeliveryState, Policy, Sheds};

/// A delivery keeps up if it lags by at most the lag of the sick one divided by this.
const KEEPS_UP_PART: u64 = 4;

/// The highest share that a backend of a route takes of its requests.
pub fn best_taken_share(route: impl Iterator<Item = DeliveryState>) -> f64 {
    route
        .filter(|delivery| !delivery.is_best_effort)
        .map(|delivery| delivery.backend.taken_share)
        .fold(0.0, f64::max)
}

/// The delivery lags because of its own backend, not because the CPU is short or all get too much.
/// `best_taken_share` is that of its route: if all backends refuse alike, none is to blame.
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

/// The figures of a route that the rules need to judge one of its deliveries.
#[derive(Clone, Copy, Debug)]
pub struct RouteView {
    best_taken_share: f64,
    /// Some healthy delivery lags by so little that it keeps up beside any other delivery.
    has_close: bool,
    /// The least lag of a healthy delivery.
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

    /// Whether a healthy delivery of the route keeps up, compared with this one.
    pub(super) fn another_keeps_up(&self, delivery: &DeliveryState) -> bool {
        self.has_close || self.least_lag_bytes <= delivery.lag_bytes / KEEPS_UP_PART
    }
}

/// The frames that the delivery may give up: by rule 5 (isolate), or by its policy.
pub fn sheds(delivery: &DeliveryState, route: &RouteView) -> Sheds {
    match delivery.policy {
        Policy::DropOldest => Sheds::Everything,
        Policy::Backpressure => Sheds::Nothing,
        // A sick delivery does not keep up, so that the one that does is another.
        Policy::Isolate
            if is_sick(delivery, route.best_taken_share) && route.another_keeps_up(delivery) =>
        {
            Sheds::Taken
        }
        Policy::Isolate => Sheds::Nothing,
    }
}
