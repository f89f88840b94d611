//! Why log lines are not accepted. The protocols have no answer for that.

use std::time::Duration;

use sluice_flow::Refusal;

/// A refusal in the form in which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Unrouted,
    Overloaded,
    TooLarge,
    NeverFits,
    Invalid,
    Rejected,
    Failed,
    TooSlow,
    CutOff,
}

impl Reason {
    /// Each as a metric's label, and the remedy.
    pub(super) const ALL: [(Reason, &'static str, &'static str); 9] = {
        use Reason::*;
        [
            (Unrouted, "unrouted", "add the receiver to a pipeline of logs"),
            (
                Overloaded,
                "overloaded",
                "senders over TCP wait, datagrams are lost; if it lasts, mend the backend or raise \
                 the limit that is named",
            ),
            (
                TooLarge,
                "too_large",
                "raise `max_log_size`, or let the senders send shorter messages: their connections \
                 are closed",
            ),
            (NeverFits, "never_fits", "lower `max_log_size`, or raise the memory limit"),
            (
                Invalid,
                "invalid",
                "mend the senders, or switch `enable_octet_counting` off: their messages do not \
                 begin with a length, and their connections are closed",
            ),
            (Rejected, "rejected", "the backend refuses this data for good: mend the senders"),
            (Failed, "failed", "the backend failed over this data: look at its log"),
            (
                TooSlow,
                "too_slow",
                "the network or the senders are slow: the rest of a message did not come",
            ),
            (
                CutOff,
                "cut_off",
                "the receiver ended while the engine made it wait: records that it held are lost",
            ),
        ]
    };

    pub(super) const fn as_str(self) -> &'static str {
        Reason::ALL[self as usize].1
    }

    pub(super) const fn remedy(self) -> &'static str {
        Reason::ALL[self as usize].2
    }
}

/// Why log lines were not accepted, and the text for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub reason: Reason,
    pub message: String,
    /// They may be accepted after this time.
    pub delay: Option<Duration>,
    /// Records that are lost.
    pub items: u32,
}

impl Refused {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Refused { reason, message: message.into(), delay: None, items: 0 }
    }

    pub(super) fn unrouted() -> Self {
        let message = "no pipeline takes logs from this receiver";
        Refused { delay: Some(Duration::from_secs(1)), ..Refused::new(Reason::Unrouted, message) }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let (reason, message, delay) = match refusal {
            Refusal::Retry { delay, reason } => (Reason::Overloaded, reason, Some(delay)),
            Refusal::TooLarge { reason } => (Reason::NeverFits, reason, None),
            Refusal::Invalid { reason } | Refusal::Rejected { reason } => {
                (Reason::Rejected, reason, None)
            }
            Refusal::Failed { reason } => (Reason::Failed, reason, None),
            // Only requests with ranges overlap, and these have none.
            Refusal::Overlaps => (Reason::Failed, "it overlaps another request".to_owned(), None),
        };
        Refused { reason, message, delay, items: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        for (index, (reason, ..)) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
