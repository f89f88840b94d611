//! Why a request is not accepted, and the answer over each transport.
//!
//! Over HTTP a body that is too slow is answered 503 and not 408: OTLP has clients come back after
//! 429, 502, 503 and 504 only.

use std::time::Duration;

use ::http::StatusCode;
use sluice_flow::Refusal;
use sluice_net::auth::server::AuthError;
use sluice_net::compress::DecompressError;
use sluice_net::grpc::{Code, FrameError, Status};
use sluice_net::server::BodyError;

use crate::refused::{FAILED, REJECTED, Remedies};
pub use crate::refused::{Reason as RefusedReason, Refused};

/// The delay for a client while the passwords of other senders are being checked.
const BUSY_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The reasons of this receiver: whose fault it is, and the remedy.
pub(crate) const REMEDIES: &Remedies = {
    use RefusedReason::*;
    &[
        (
            Unauthenticated,
            "give the senders credentials that `auth.authenticator` of the receiver accepts",
        ),
        (Unrouted, "add the receiver to a pipeline of this signal, or do not send it here"),
        (
            Overloaded,
            "senders come back; if it lasts, mend the backend or raise the limit that is named",
        ),
        (
            TooLarge,
            "send smaller requests, or raise `max_recv_msg_size_mib` (gRPC) or \
             `max_request_body_size` (HTTP)",
        ),
        (NeverFits, "send smaller requests, or raise the memory limit: these can never be taken"),
        (Overlaps, "after a crash the sending Sluice sends anew: it cuts the request by itself"),
        (Invalid, "mend the senders: what they send is no valid OTLP"),
        REJECTED,
        FAILED,
        (UnsupportedEncoding, "choose a compression for the senders that the receiver takes"),
        (
            UnsupportedMediaType,
            "let the senders send `application/x-protobuf` or `application/json`",
        ),
        (TooSlow, "the network or the senders are slow; if they have to be, raise `read_timeout`"),
        (BrokenOff, "the senders ended the request: their time limit may be too short"),
    ]
};

/// The answers for a reason over gRPC and HTTP.
const fn answers(reason: RefusedReason) -> (Code, StatusCode) {
    use RefusedReason::*;
    const UNSUPPORTED: StatusCode = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    match reason {
        Unauthenticated => (Code::Unauthenticated, StatusCode::UNAUTHORIZED),
        Unrouted => (Code::Unimplemented, StatusCode::NOT_FOUND),
        // Nothing is cut off without an answer here.
        Overloaded | CutOff => (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
        TooLarge | NeverFits => (Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE),
        Overlaps => (Code::AlreadyExists, StatusCode::CONFLICT),
        Invalid | Rejected => (Code::InvalidArgument, StatusCode::BAD_REQUEST),
        Failed => (Code::Unknown, StatusCode::INTERNAL_SERVER_ERROR),
        UnsupportedEncoding => (Code::Unimplemented, UNSUPPORTED),
        UnsupportedMediaType => (Code::InvalidArgument, UNSUPPORTED),
        TooSlow => (Code::DeadlineExceeded, StatusCode::SERVICE_UNAVAILABLE),
        BrokenOff => (Code::Cancelled, StatusCode::BAD_REQUEST),
    }
}

impl Refused {
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
        let code = answers(self.reason).0;
        Status { code, message: self.message.clone(), retry_delay: self.delay }
    }

    /// The answer over HTTP.
    pub fn http_status(&self) -> StatusCode {
        answers(self.reason).1
    }
}

impl From<AuthError> for Refused {
    fn from(error: AuthError) -> Self {
        let (reason, delay) = match error {
            // The credentials may be right.
            AuthError::Busy => (RefusedReason::Overloaded, Some(BUSY_RETRY_DELAY)),
            _ => (RefusedReason::Unauthenticated, None),
        };
        Refused { delay, ..Refused::new(reason, error.to_string()) }
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
