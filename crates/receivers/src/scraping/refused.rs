//! Why the engine does not take a scrape.

use sluice_flow::Refusal;

/// Why the engine does not take a scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Its place in [`Refused::ALL`].
    pub(crate) kind: usize,
    pub(crate) message: String,
}

impl Refused {
    /// Metrics' labels and remedies.
    pub(crate) const ALL: [(&str, &str); 6] = [
        ("overloaded", "if it lasts, mend the backend or raise the limit that is named"),
        ("unrouted", "add the receiver to a pipeline of metrics"),
        ("never_fits", "let the target show less, or raise the memory limit"),
        ("invalid", "this data is refused for good"),
        ("rejected", "the backend refuses this data for good"),
        ("failed", "the backend failed over this data: look at its log"),
    ];

    pub(crate) fn overloaded(message: impl Into<String>) -> Refused {
        Refused { kind: 0, message: message.into() }
    }

    pub(crate) fn unrouted() -> Refused {
        Refused { kind: 1, message: "no pipeline takes metrics from this receiver".to_owned() }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        let (kind, message) = match refusal {
            Refusal::Retry { reason, .. } | Refusal::Unconfirmed { reason, .. } => (0, reason),
            Refusal::TooLarge { reason } => (2, reason),
            Refusal::Invalid { reason } => (3, reason),
            Refusal::Rejected { reason } => (4, reason),
            Refusal::Failed { reason } => (5, reason),
            // Only requests with ranges overlap, and these have none.
            Refusal::Overlaps => (5, "it overlaps another request".to_owned()),
        };
        Refused { kind, message }
    }
}
