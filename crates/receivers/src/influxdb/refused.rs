//! Why requests are not accepted.

use crate::refused::{FAILED, REJECTED, Remedies};
pub(super) use crate::refused::{Reason, Refused};

/// The reasons of this receiver.
pub(crate) const REMEDIES: &Remedies = {
    use Reason::*;
    &[
        (
            Unauthenticated,
            "give the senders credentials that `auth.authenticator` of the receiver accepts",
        ),
        (Unrouted, "add the receiver to a pipeline of metrics, or do not send it here"),
        (
            Overloaded,
            "senders come back; if it lasts, mend the backend or raise the limit that is named",
        ),
        (TooLarge, "send smaller bodies, or raise `max_request_body_size`"),
        (NeverFits, "raise the memory limit, or send lines with fewer tags and fields"),
        (Invalid, "mend the senders: the answer names lines or parameters that are at fault"),
        REJECTED,
        FAILED,
        (UnsupportedEncoding, "let the senders use gzip, or no compression"),
        (TooSlow, "the network or the senders are slow; if they have to be, raise `read_timeout`"),
        (BrokenOff, "the senders ended the request: their time limit may be too short"),
    ]
};
