//! Why log lines are not accepted. The protocols have no answer for that.

use std::time::Duration;

use sluice_otlp::Signal;

use crate::refused::{FAILED, REJECTED, Remedies};
pub(super) use crate::refused::{Reason, Refused};

/// The reasons of these receivers.
pub(crate) const REMEDIES: &Remedies = {
    use Reason::*;
    &[
        (Unrouted, "add the receiver to a pipeline of logs"),
        (
            Overloaded,
            "senders over TCP wait, datagrams are lost; if it lasts, mend the backend or raise \
             the limit that is named",
        ),
        (
            TooLarge,
            "raise `max_log_size`, or let the senders send shorter messages: their connections \
             are closed",
        ),
        (NeverFits, "lower `max_log_size`, or raise the memory limit"),
        (
            Invalid,
            "mend the senders, or switch `enable_octet_counting` off: their messages do not \
             begin with a length, and their connections are closed",
        ),
        REJECTED,
        FAILED,
        (TooSlow, "the network or the senders are slow: the rest of a message did not come"),
        (CutOff, "the receiver ended while the engine made it wait: records that it held are lost"),
    ]
};

pub(super) fn unrouted() -> Refused {
    Refused { delay: Some(Duration::from_secs(1)), ..Refused::unrouted(Signal::Logs) }
}

/// A refusal by the engine. What it finds invalid, a processor has refused: it is none of the ways
/// in which the senders separate their messages.
pub(super) fn by_engine(refusal: sluice_flow::Refusal) -> Refused {
    let refused = Refused::from(refusal);
    match refused.reason {
        Reason::Invalid => Refused { reason: Reason::Rejected, ..refused },
        _ => refused,
    }
}
