//! Log lines that say what becomes of data. They promise only what the delivery's policy and limits
//! keep.

use sluice_flow::dispatch::{Cause, State};
use sluice_flow::overload::Policy;
use sluice_flow::{Outcome, Refusal};

use super::dead_letters::DeadLetter;
use super::{Delivery, DeliveryId};

/// A request that was sent.
pub(super) struct Attempt {
    pub items: u64,
    /// It consists of parts that can be sent alone.
    pub can_be_cut: bool,
    /// Its senders, which still wait, get the refusal.
    pub is_returned: bool,
}

/// The consequence of a spent budget while the backend takes nothing.
fn when_spent(policy: Policy) -> &'static str {
    match policy {
        Policy::Backpressure => "once its budget is spent, senders are refused",
        Policy::DropOldest => "once its budget is spent, the oldest is dropped",
        Policy::Isolate => {
            "once its budget is spent, the oldest that another delivery has taken is dropped, or \
             senders are refused"
        }
    }
}

pub(super) fn log_outcome(delivery: &Delivery, outcome: &Outcome, attempt: &Attempt) {
    let &Attempt { items, can_be_cut, is_returned } = attempt;
    let (reason, what) = match outcome {
        Outcome::RetryAfter { reason, .. } => (
            reason,
            "the backend takes no request now; `retry_on_failure` says if it is sent again"
                .to_owned(),
        ),
        Outcome::TooLarge { reason } if can_be_cut => {
            (reason, "a request was too large for the backend; it is cut and sent again".to_owned())
        }
        Outcome::TooLarge { reason } if items > 1 => {
            (reason, "a request was too large for the backend".to_owned())
        }
        Outcome::TooLarge { reason } => (reason, "an item is too large for the backend".to_owned()),
        Outcome::Rejected { reason } | Outcome::Failed { reason } if can_be_cut => {
            (reason, "the backend refused a request; it is cut to find the culprit".to_owned())
        }
        Outcome::Rejected { reason } | Outcome::Failed { reason } if items > 1 => {
            (reason, "the backend refused a request".to_owned())
        }
        Outcome::Rejected { reason } | Outcome::Failed { reason } => {
            (reason, "the backend refused an item".to_owned())
        }
        Outcome::Misconfigured { reason } => {
            let then = match is_returned {
                true => "its senders get the refusal",
                false => &format!(
                    "it is sent again now and then; {}",
                    when_spent(delivery.bounds().policy)
                ),
            };
            let refused = "the backend refuses requests as it is configured, or for a spent quota";
            (reason, format!("{refused}; {then}"))
        }
        // After a crash of one end: nothing is wrong.
        Outcome::Overlaps { .. } | Outcome::Delivered | Outcome::PartlyRejected { .. } => return,
    };
    let DeliveryId { pipeline, exporter } = &delivery.id;
    tracing::warn!(%pipeline, %exporter, items, reason, "{what}");
}

/// The first time that requests of the configured size are late too often.
pub(super) fn log_smaller(delivery: &Delivery, items: u64, most_items: usize) {
    let DeliveryId { pipeline, exporter } = &delivery.id;
    tracing::warn!(
        %pipeline, %exporter, items, most_items,
        "the backend did not answer requests within the exporter's timeout: they get smaller until \
         it does; if it is only slow, raise `timeout`"
    );
}

/// The answer to a sender that waits.
pub(super) fn refusal(cause: Cause, reason: String) -> Refusal {
    match cause {
        Cause::Rejected | Cause::TooLarge => Refusal::Rejected { reason },
        Cause::Failed => Refusal::Failed { reason },
        // The backend may take it yet: the sender decides whether it is tried again.
        Cause::NotRetried { asked: Some(delay) } => Refusal::Retry { delay, reason },
        Cause::GivenUp | Cause::NotRetried { asked: None } => Refusal::overloaded(reason),
    }
}

/// Why items are dead letters together: cutting them would not help.
pub(super) fn of_long_header(reason: &str, items: u32, header_bytes: usize) -> String {
    format!(
        "{reason}; its {items} items share a resource, scope or metric of {header_bytes} bytes, \
         which is nearly all of it"
    )
}

/// Says when the delivery is held, in outage or open again, and takes note of it. `returns`:
/// senders wait, and get refusals.
pub(super) fn note_state(delivery: &Delivery, state: &State, returns: bool) {
    let mut known = delivery.stats.state.lock();
    if *known == *state {
        return;
    }
    let DeliveryId { pipeline, exporter } = &delivery.id;
    match (&*known, state) {
        (_, State::Open) => {
            tracing::info!(%pipeline, %exporter, "the backend takes data again")
        }
        (State::Open, State::Held(reason)) => log_held(delivery, reason, returns),
        (State::Open, State::Outage(reason)) => {
            tracing::error!(%pipeline, %exporter, reason, "the backend is down");
        }
        _ => {}
    }
    delivery.health.note_outage(*state != State::Open);
    known.clone_from(state);
}

/// The backend takes nothing as it is configured.
fn log_held(delivery: &Delivery, reason: &str, returns: bool) {
    let DeliveryId { pipeline, exporter } = &delivery.id;
    let then = match returns {
        true => "senders that wait for it get refusals",
        false => when_spent(delivery.bounds().policy),
    };
    tracing::error!(
        %pipeline, %exporter, reason,
        "delivery held: its data waits until the backend takes data again; {then}"
    );
}

pub(super) fn log_dead(delivery: &Delivery, letter: &DeadLetter) {
    let DeliveryId { pipeline, exporter } = &delivery.id;
    let (items, reason) = (letter.items, &letter.refusal.reason);
    if delivery.dead_letters.takes(letter) {
        tracing::error!(
            %pipeline, %exporter, items, reason,
            "items cannot be delivered and become dead letters"
        );
    } else {
        tracing::error!(
            %pipeline, %exporter, items, reason, limit_bytes = delivery.dead_letters.limit_bytes(),
            "items cannot be delivered and are dropped: they are larger than all dead letters of \
             a delivery may be; raise `buffer.dead_letters.limit_mib` or the memory limit"
        );
    }
}
