//! Why messages are not accepted. The protocol has no answer for that: the chunk is not
//! acknowledged.

use std::time::Duration;

use sluice_flow::Refusal;
use sluice_net::compress::{DecompressError, InflateError};
use sluice_net::forward::message::MessageError;
use sluice_net::forward::msgpack::Malformed;

/// A refusal in the form in which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Unauthenticated,
    Unrouted,
    Overloaded,
    TooLarge,
    NeverFits,
    Invalid,
    Rejected,
    Failed,
    TooSlow,
    BrokenOff,
}

impl Reason {
    /// Each as a metric's label, and the remedy.
    pub(super) const ALL: [(Reason, &'static str, &'static str); 10] = {
        use Reason::*;
        [
            (
                Unauthenticated,
                "unauthenticated",
                "give the senders the shared key, user and password of `security`",
            ),
            (Unrouted, "unrouted", "add the receiver to a pipeline of logs"),
            (
                Overloaded,
                "overloaded",
                "senders come back; if it lasts, mend the backend or raise the limit that is named",
            ),
            (
                TooLarge,
                "too_large",
                "let the senders send smaller chunks, or raise \
              `max_message_size`: they send them again and again",
            ),
            (
                NeverFits,
                "never_fits",
                "let the senders send smaller chunks, or raise the memory limit",
            ),
            (
                Invalid,
                "invalid",
                "mend the senders: what they send is not the forward protocol. With TLS or a \
                 shared key on one side only, nothing can be read either",
            ),
            (Rejected, "rejected", "the backend refuses this data for good: mend the senders"),
            (Failed, "failed", "the backend failed over this data: look at its log"),
            (TooSlow, "too_slow", "the network or the senders are slow"),
            (BrokenOff, "broken_off", "the senders ended the connection within a message"),
        ]
    };

    pub(super) const fn as_str(self) -> &'static str {
        Reason::ALL[self as usize].1
    }

    pub(super) const fn remedy(self) -> &'static str {
        Reason::ALL[self as usize].2
    }
}

/// Why messages were not accepted, and the text for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub reason: Reason,
    pub message: String,
    /// It may be accepted after this time.
    pub delay: Option<Duration>,
    /// Records, if they had been counted.
    pub items: u32,
}

impl Refused {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Refused { reason, message: message.into(), delay: None, items: 0 }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Refused::new(Reason::Invalid, message)
    }

    pub(super) fn too_large(limit_bytes: usize) -> Self {
        let message = format!(
            "larger than the limit of {limit_bytes} bytes, as it is sent, after \
                               decompression or as OTLP"
        );
        Refused::new(Reason::TooLarge, message)
    }

    /// Less at a time may be accepted.
    pub(super) fn is_for_want_of_room(&self) -> bool {
        self.delay.is_some() || matches!(self.reason, Reason::TooLarge | Reason::NeverFits)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let (reason, message, delay) = match refusal {
            Refusal::Retry { delay, reason } => (Reason::Overloaded, reason, Some(delay)),
            Refusal::TooLarge { reason } => (Reason::NeverFits, reason, None),
            Refusal::Invalid { reason } => (Reason::Invalid, reason, None),
            Refusal::Rejected { reason } => (Reason::Rejected, reason, None),
            Refusal::Failed { reason } => (Reason::Failed, reason, None),
            // Only requests with ranges overlap, and these have none.
            Refusal::Overlaps => (Reason::Failed, "it overlaps another request".to_owned(), None),
        };
        Refused { reason, message, delay, items: 0 }
    }
}

impl From<MessageError> for Refused {
    fn from(error: MessageError) -> Self {
        Refused::invalid(error.to_string())
    }
}

impl From<Malformed> for Refused {
    fn from(error: Malformed) -> Self {
        MessageError::from(error).into()
    }
}

impl From<InflateError<Refusal>> for Refused {
    fn from(error: InflateError<Refusal>) -> Self {
        match error {
            InflateError::Refused(refusal) => refusal.into(),
            InflateError::Failed(DecompressError::TooLarge { limit_bytes }) => {
                Refused::too_large(limit_bytes)
            }
            InflateError::Failed(error) => Refused::invalid(error.to_string()),
        }
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
