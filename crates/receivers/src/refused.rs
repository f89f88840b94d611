//! Why receivers do not accept what they are sent: the reasons, as they are counted and told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_flow::Refusal;
use sluice_flow::hop::OVERLAP;
use sluice_otlp::Signal;

use crate::untold::Untold;

/// A refusal in the form in which it is counted: see [`Refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    Unauthenticated,
    Unrouted,
    Overloaded,
    TooLarge,
    NeverFits,
    Overlaps,
    Invalid,
    Rejected,
    Failed,
    UnsupportedEncoding,
    UnsupportedMediaType,
    TooSlow,
    BrokenOff,
    CutOff,
}

const NAMES: [(Reason, &str); 14] = {
    use Reason::*;
    [
        (Unauthenticated, "unauthenticated"),
        (Unrouted, "unrouted"),
        (Overloaded, "overloaded"),
        (TooLarge, "too_large"),
        (NeverFits, "never_fits"),
        (Overlaps, "overlaps"),
        (Invalid, "invalid"),
        (Rejected, "rejected"),
        (Failed, "failed"),
        (UnsupportedEncoding, "unsupported_encoding"),
        (UnsupportedMediaType, "unsupported_media_type"),
        (TooSlow, "too_slow"),
        (BrokenOff, "broken_off"),
        (CutOff, "cut_off"),
    ]
};

impl Reason {
    /// All reasons. No receiver has all of them.
    pub const ALL: [Reason; NAMES.len()] = {
        let mut all = [Reason::Unauthenticated; NAMES.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = NAMES[index].0;
            assert!(all[index] as usize == index, "the table is in order");
            index += 1;
        }
        all
    };

    /// As a metric's label.
    pub const fn as_str(self) -> &'static str {
        NAMES[self as usize].1
    }
}

/// The reasons of a receiver, each with the remedy that the log names.
pub(crate) type Remedies = [(Reason, &'static str)];

/// The remedy for refusals that mean the same to all receivers.
pub(crate) const REJECTED: (Reason, &str) =
    (Reason::Rejected, "the backend refuses this data for good: mend the senders");
/// See [`REJECTED`].
pub(crate) const FAILED: (Reason, &str) =
    (Reason::Failed, "the backend failed over this data: look at its log");

pub(crate) fn remedy(remedies: &Remedies, reason: Reason) -> &'static str {
    // No receiver has a reason that it does not list.
    const UNLISTED: &str = "the text beside tells why";
    remedies.iter().find(|(its, _)| *its == reason).map_or(UNLISTED, |(_, remedy)| remedy)
}

/// Why something was not accepted, and the text for the sender or the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub reason: Reason,
    pub message: String,
    /// It may be accepted after this time.
    pub delay: Option<Duration>,
    /// Items that are lost with it, if they had been counted.
    pub items: u32,
}

impl Refused {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Refused { reason, message: message.into(), delay: None, items: 0 }
    }

    pub(crate) fn unrouted(signal: Signal) -> Self {
        let message = format!("no pipeline takes {signal} from this receiver");
        Refused::new(Reason::Unrouted, message)
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Refused::new(Reason::Invalid, message)
    }

    /// Less at a time may be accepted.
    pub(crate) fn is_for_want_of_room(&self) -> bool {
        self.delay.is_some() || matches!(self.reason, Reason::TooLarge | Reason::NeverFits)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let (reason, message, delay) = match refusal {
            Refusal::Retry { delay, reason } | Refusal::Unconfirmed { delay, reason } => {
                (Reason::Overloaded, reason, Some(delay))
            }
            Refusal::TooLarge { reason } => (Reason::NeverFits, reason, None),
            Refusal::Overlaps => (Reason::Overlaps, OVERLAP.to_owned(), None),
            Refusal::Invalid { reason } => (Reason::Invalid, reason, None),
            Refusal::Rejected { reason } => (Reason::Rejected, reason, None),
            Refusal::Failed { reason } => (Reason::Failed, reason, None),
        };
        Refused { reason, message, delay, items: 0 }
    }
}

/// The refusals of a receiver. They only grow.
#[derive(Default)]
pub(crate) struct Refusals {
    requests: [AtomicU64; Reason::ALL.len()],
    pub items: AtomicU64,
    untold: [Untold; Reason::ALL.len()],
}

impl Refusals {
    /// Counts a refusal. Returns the number of those for its reason since the last line in the log
    /// about them, if it is time for one.
    pub(crate) fn count(&self, refused: &Refused) -> Option<u64> {
        let reason = refused.reason as usize;
        self.requests[reason].fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(u64::from(refused.items), Ordering::Relaxed);
        self.untold[reason].count(Instant::now())
    }

    pub(crate) fn requests(&self, reason: Reason) -> &AtomicU64 {
        &self.requests[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fluentforward, influxdb, netlog, otlp, prometheusremotewrite};

    /// Guarantee: each reason has a remedy, but for those that a receiver never has.
    #[test]
    fn reasons_have_remedies() {
        use Reason::*;
        let tables: [(&str, &Remedies, &[Reason]); 5] = [
            ("otlp", otlp::refusal::REMEDIES, &[CutOff]),
            // It takes no ranges, and has an answer for what it gives up.
            ("remote write", prometheusremotewrite::REMEDIES, &[Overlaps, CutOff]),
            // The protocols have neither credentials nor encodings nor media types.
            (
                "logs over the network",
                netlog::refused::REMEDIES,
                &[Unauthenticated, Overlaps, UnsupportedEncoding, UnsupportedMediaType, BrokenOff],
            ),
            (
                "forward",
                fluentforward::refused::REMEDIES,
                &[Overlaps, UnsupportedEncoding, UnsupportedMediaType],
            ),
            ("influxdb", influxdb::refused::REMEDIES, &[Overlaps, UnsupportedMediaType, CutOff]),
        ];
        for (receiver, remedies, never) in tables {
            for reason in Reason::ALL {
                let listed = remedies.iter().filter(|(its, _)| *its == reason).count();
                let expected = usize::from(!never.contains(&reason));
                assert_eq!(listed, expected, "{receiver} {reason:?}");
                assert!(!remedy(remedies, reason).is_empty(), "{receiver} {reason:?}");
            }
            let refusals = [
                Refusal::overloaded("busy"),
                Refusal::unconfirmed("on a disk in trouble"),
                Refusal::TooLarge { reason: String::new() },
                Refusal::Invalid { reason: String::new() },
                Refusal::Rejected { reason: String::new() },
                Refusal::Failed { reason: String::new() },
            ];
            for refused in refusals.map(Refused::from) {
                assert!(!never.contains(&refused.reason), "{receiver} {refused:?}");
            }
        }
    }
}
