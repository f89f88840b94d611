//! Why messages are not accepted. The protocol has no answer for that: the chunk is not
//! acknowledged.

use sluice_flow::Refusal;
use sluice_net::compress::{DecompressError, InflateError};
use sluice_net::forward::message::MessageError;
use sluice_net::forward::msgpack::Malformed;

use crate::refused::{FAILED, REJECTED, Remedies};
pub(super) use crate::refused::{Reason, Refused};

/// The reasons of this receiver.
pub(crate) const REMEDIES: &Remedies = {
    use Reason::*;
    &[
        (Unauthenticated, "give the senders the shared key, user and password of `security`"),
        (Unrouted, "add the receiver to a pipeline of logs"),
        (
            Overloaded,
            "senders come back; if it lasts, mend the backend or raise the limit that is named",
        ),
        (
            TooLarge,
            "let the senders send smaller chunks, or raise `max_message_size`: they send them \
             again and again",
        ),
        (NeverFits, "let the senders send smaller chunks, or raise the memory limit"),
        (
            Invalid,
            "mend the senders: what they send is not the forward protocol. With TLS or a shared \
             key on one side only, nothing can be read either",
        ),
        REJECTED,
        FAILED,
        (TooSlow, "the network or the senders are slow"),
        (BrokenOff, "the senders ended the connection within a message"),
        (
            CutOff,
            "the receiver ended while the engine made them wait: they are lost, unless their \
             senders asked for acknowledgements",
        ),
    ]
};

pub(super) fn too_large(limit_bytes: usize) -> Refused {
    let message = format!(
        "larger than the limit of {limit_bytes} bytes, as it is sent, after decompression or as \
         OTLP"
    );
    Refused::new(Reason::TooLarge, message)
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
                too_large(limit_bytes)
            }
            InflateError::Failed(error) => Refused::invalid(error.to_string()),
        }
    }
}
