//! Which delivery is left to itself, so that the others need not wait for it (rules 4 and 5).

use super::pacing::PACE_BYTES;
use super::{DeliveryState, Policy};

/// A delivery keeps up if it lags by less than this part of what a sick one does.
const KEEPS_UP_PART: u64 = 4;

/// What a delivery may shed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sheds {
    #[default]
    Nothing,
    /// Frames that another delivery has taken.
    Taken,
    Everything,
}

/// What the best backend of a route takes of what it is sent.
pub fn best_taken_share(route: impl Iterator<Item = DeliveryState>) -> f64 {
    route.filter(|delivery| !delivery.is_best_effort).map(|delivery| delivery.backend.taken_share).fold(0.0, f64::max)
}

/// The delivery's own backend is why it lags, rather than too little of the CPU or too much that is
/// sent to all. `best_taken_share` is that of its route: where all refuse alike, none is to blame.
pub fn is_sick(delivery: &DeliveryState, best_taken_share: f64) -> bool {
    let backend = delivery.backend;
    backend.in_outage || backend.stands_still || backend.is_outpaced || takes_much_less(delivery, best_taken_share)
}

pub(super) fn takes_much_less(delivery: &DeliveryState, best_taken_share: f64) -> bool {
    delivery.backend.taken_share < best_taken_share / 2.0
}

/// It is healthy and lags by little, seen from one that lags by `lag_bytes`.
fn keeps_up(other: &DeliveryState, lag_bytes: u64, best_taken_share: f64) -> bool {
    let lags_by_little = other.lag_bytes <= PACE_BYTES.min(other.limit_bytes / KEEPS_UP_PART)
        || other.lag_bytes <= lag_bytes / KEEPS_UP_PART;
    !other.is_best_effort && !is_sick(other, best_taken_share) && lags_by_little
}

/// What a delivery may shed, beside the others of its route (itself may be among them).
pub fn sheds(delivery: &DeliveryState, route: impl Iterator<Item = DeliveryState> + Clone) -> Sheds {
    match delivery.policy {
        Policy::DropOldest => Sheds::Everything,
        Policy::Backpressure => Sheds::Nothing,
        Policy::Isolate if is_isolated(delivery, route) => Sheds::Taken,
        Policy::Isolate => Sheds::Nothing,
    }
}

/// No sender waits for this delivery: its backend is sick, and another delivery of the route keeps up.
fn is_isolated(delivery: &DeliveryState, route: impl Iterator<Item = DeliveryState> + Clone) -> bool {
    let best = best_taken_share(route.clone());
    is_sick(delivery, best) && another_keeps_up(delivery, best, route)
}

/// A delivery that is sick itself does not keep up, so that it need not be told apart from the others.
pub(super) fn another_keeps_up(
    delivery: &DeliveryState,
    best_taken_share: f64,
    mut route: impl Iterator<Item = DeliveryState>,
) -> bool {
    route.any(|other| keeps_up(&other, delivery.lag_bytes, best_taken_share))
}
