//! Why a request is not accepted, and the answer over each transport.
//!
//! Over HTTP a body that is too slow is answered 503 and not 408: OTLP has clients come back after
//! 429, 502, 503 and 504 only.

use std::time::Duration;

use ::http::StatusCode;
use sluice_flow::Refusal;
use sluice_flow::hop::OVERLAP;
use sluice_net::auth::server::AuthError;
use sluice_net::compress::DecompressError;
use sluice_net::grpc::{Code, FrameError, Status};
use sluice_net::server::BodyError;

/// The delay for a client while the passwords of other senders are being checked.
const BUSY_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A refusal in the form in which it is counted: see [`Refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedReason {
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
}

/// Each reason as a metric's label, and its answer over gRPC and HTTP.
const ANSWERS: [(RefusedReason, &str, Code, StatusCode); 13] = {
    use RefusedReason::*;
    const UNSUPPORTED: StatusCode = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    [
        (Unauthenticated, "unauthenticated", Code::Unauthenticated, StatusCode::UNAUTHORIZED),
        (Unrouted, "unrouted", Code::Unimplemented, StatusCode::NOT_FOUND),
        (Overloaded, "overloaded", Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
        (TooLarge, "too_large", Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE),
        (NeverFits, "never_fits", Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE),
        (Overlaps, "overlaps", Code::AlreadyExists, StatusCode::CONFLICT),
        (Invalid, "invalid", Code::InvalidArgument, StatusCode::BAD_REQUEST),
        (Rejected, "rejected", Code::InvalidArgument, StatusCode::BAD_REQUEST),
        (Failed, "failed", Code::Unknown, StatusCode::INTERNAL_SERVER_ERROR),
        (UnsupportedEncoding, "unsupported_encoding", Code::Unimplemented, UNSUPPORTED),
        (UnsupportedMediaType, "unsupported_media_type", Code::InvalidArgument, UNSUPPORTED),
        (TooSlow, "too_slow", Code::DeadlineExceeded, StatusCode::SERVICE_UNAVAILABLE),
        (BrokenOff, "broken_off", Code::Cancelled, StatusCode::BAD_REQUEST),
    ]
};

impl RefusedReason {
    pub const ALL: [RefusedReason; ANSWERS.len()] = {
        let mut all = [RefusedReason::Unauthenticated; ANSWERS.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = ANSWERS[index].0;
            assert!(all[index] as usize == index, "the table is in order");
            index += 1;
        }
        all
    };

    /// As a metric's label.
    pub const fn as_str(self) -> &'static str {
        ANSWERS[self as usize].1
    }

    /// For the log: whose fault it is, and the remedy.
    pub(super) const fn remedy(self) -> &'static str {
        match self {
            RefusedReason::Unauthenticated => {
                "give the senders credentials that `auth.authenticator` of the receiver accepts"
            }
            RefusedReason::Unrouted => {
                "add the receiver to a pipeline of this signal, or do not send it here"
            }
            RefusedReason::Overloaded => {
                "senders come back; if it lasts, mend the backend or raise the limit that is named"
            }
            RefusedReason::TooLarge => {
                "send smaller requests, or raise `max_recv_msg_size_mib` (gRPC) or \
                 `max_request_body_size` (HTTP)"
            }
            RefusedReason::NeverFits => {
                "send smaller requests, or raise the memory limit: these can never be taken"
            }
            RefusedReason::Overlaps => {
                "after a crash the sending Sluice sends anew: it cuts the request by itself"
            }
            RefusedReason::Invalid => "mend the senders: what they send is no valid OTLP",
            RefusedReason::Rejected => "the backend refuses this data for good: mend the senders",
            RefusedReason::Failed => "the backend failed over this data: look at its log",
            RefusedReason::UnsupportedEncoding => {
                "choose a compression for the senders that the receiver takes"
            }
            RefusedReason::UnsupportedMediaType => {
                "let the senders send `application/x-protobuf` or `application/json`"
            }
            RefusedReason::TooSlow => {
                "the network or the senders are slow; if they have to be, raise `read_timeout`"
            }
            RefusedReason::BrokenOff => {
                "the senders ended the request: their time limit may be too short"
            }
        }
    }
}

/// Why a request was not accepted, and the text for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub reason: RefusedReason,
    pub message: String,
    /// The delay that the client is asked for, for `Overloaded`.
    pub retry_delay: Option<Duration>,
}

impl Refused {
    pub fn new(reason: RefusedReason, message: impl Into<String>) -> Self {
        Refused { reason, message: message.into(), retry_delay: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Refused::new(RefusedReason::Invalid, message)
    }

    pub fn too_large(limit_bytes: usize) -> Self {
        let message = format!("the request is larger than the limit of {limit_bytes} bytes");
        Refused::new(RefusedReason::TooLarge, message)
    }

    /// Connections have no memory left for the request's headers.
    pub fn without_memory() -> Self {
        Refusal::overloaded("the memory for connections is spent").into()
    }

    /// The answer over gRPC.
    pub fn to_status(&self) -> Status {
        let code = ANSWERS[self.reason as usize].2;
        Status { code, message: self.message.clone(), retry_delay: self.retry_delay }
    }

    /// The answer over HTTP.
    pub fn http_status(&self) -> StatusCode {
        ANSWERS[self.reason as usize].3
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let (reason, message, retry_delay) = match refusal {
            Refusal::Retry { delay, reason } => (RefusedReason::Overloaded, reason, Some(delay)),
            Refusal::TooLarge { reason } => (RefusedReason::NeverFits, reason, None),
            Refusal::Overlaps => (RefusedReason::Overlaps, OVERLAP.to_owned(), None),
            Refusal::Invalid { reason } => (RefusedReason::Invalid, reason, None),
            Refusal::Rejected { reason } => (RefusedReason::Rejected, reason, None),
            Refusal::Failed { reason } => (RefusedReason::Failed, reason, None),
        };
        Refused { reason, message, retry_delay }
    }
}

impl From<AuthError> for Refused {
    fn from(error: AuthError) -> Self {
        let (reason, retry_delay) = match error {
            // The credentials may be right.
            AuthError::Busy => (RefusedReason::Overloaded, Some(BUSY_RETRY_DELAY)),
            _ => (RefusedReason::Unauthenticated, None),
        };
        Refused { reason, message: error.to_string(), retry_delay }
    }
}

impl From<DecompressError> for Refused {
    fn from(error: DecompressError) -> Self {
        let reason = match error {
            DecompressError::TooLarge { limit_bytes } => {
                let mut refused = Refused::too_large(limit_bytes);
                refused.message.push_str(" after decompression");
                return refused;
            }
            DecompressError::Corrupt { .. } => RefusedReason::Invalid,
            DecompressError::Unsupported { .. } => RefusedReason::UnsupportedEncoding,
        };
        Refused::new(reason, error.to_string())
    }
}

impl From<FrameError> for Refused {
    fn from(error: FrameError) -> Self {
        let reason = match error {
            FrameError::TooLarge { .. } => RefusedReason::TooLarge,
            _ => RefusedReason::Invalid,
        };
        Refused::new(reason, error.to_string())
    }
}

impl From<BodyError> for Refused {
    fn from(error: BodyError) -> Self {
        let reason = match error {
            BodyError::Stalled => return Refused::without_memory(),
            BodyError::TooSlow(_) => RefusedReason::TooSlow,
            BodyError::BrokenOff(_) => RefusedReason::BrokenOff,
        };
        Refused::new(reason, error.to_string())
    }
}
