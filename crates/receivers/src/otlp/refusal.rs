//! Why a request is not accepted, and the answer over each transport.
//!
//! | | gRPC | HTTP | the client |
//! |---|---|---|---|
//! | no or wrong credentials | UNAUTHENTICATED | 401 | gives up |
//! | no pipeline takes the signal, unknown method or path | UNIMPLEMENTED | 404 | gives up |
//! | overload | UNAVAILABLE + RetryInfo | 503 + Retry-After | comes back |
//! | too large, as sent or inflated, or for the memory there is | RESOURCE_EXHAUSTED without RetryInfo | 413 | gives up |
//! | not valid OTLP | INVALID_ARGUMENT | 400 | gives up |
//! | refused for good by the sole backend | INVALID_ARGUMENT | 400 | gives up |
//! | unknown compression | UNIMPLEMENTED + grpc-accept-encoding | 415 + Accept-Encoding | gives up or sends it otherwise |
//! | body too slow | DEADLINE_EXCEEDED | 503 | comes back |
//!
//! Over HTTP a body that is too slow is answered 503 and not 408: OTLP has clients come back after 429, 502, 503 and 504 only.

use std::time::Duration;

use ::http::StatusCode;
use sluice_flow::Refusal;
use sluice_net::compress::DecompressError;
use sluice_net::grpc::{Code, FrameError, Status};
use sluice_net::server::BodyError;

/// A refusal in the form in which it is counted: see [`Refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedReason {
    Unauthenticated,
    Unrouted,
    Overloaded,
    TooLarge,
    Invalid,
    Rejected,
    UnsupportedEncoding,
    UnsupportedMediaType,
    TooSlow,
    BrokenOff,
}

impl RefusedReason {
    pub const ALL: [RefusedReason; 10] = [
        RefusedReason::Unauthenticated,
        RefusedReason::Unrouted,
        RefusedReason::Overloaded,
        RefusedReason::TooLarge,
        RefusedReason::Invalid,
        RefusedReason::Rejected,
        RefusedReason::UnsupportedEncoding,
        RefusedReason::UnsupportedMediaType,
        RefusedReason::TooSlow,
        RefusedReason::BrokenOff,
    ];

    /// As a metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            RefusedReason::Unauthenticated => "unauthenticated",
            RefusedReason::Unrouted => "unrouted",
            RefusedReason::Overloaded => "overloaded",
            RefusedReason::TooLarge => "too_large",
            RefusedReason::Invalid => "invalid",
            RefusedReason::Rejected => "rejected",
            RefusedReason::UnsupportedEncoding => "unsupported_encoding",
            RefusedReason::UnsupportedMediaType => "unsupported_media_type",
            RefusedReason::TooSlow => "too_slow",
            RefusedReason::BrokenOff => "broken_off",
        }
    }
}

/// Why a request was not accepted, with what the client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub reason: RefusedReason,
    pub message: String,
    /// When to come back, for `Overloaded`.
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
        Refused::new(RefusedReason::TooLarge, format!("the request is larger than the limit of {limit_bytes} bytes"))
    }

    /// The answer over gRPC.
    pub fn to_status(&self) -> Status {
        let code = match self.reason {
            RefusedReason::Unauthenticated => Code::Unauthenticated,
            RefusedReason::Unrouted | RefusedReason::UnsupportedEncoding => Code::Unimplemented,
            RefusedReason::Overloaded => Code::Unavailable,
            RefusedReason::TooLarge => Code::ResourceExhausted,
            RefusedReason::Invalid | RefusedReason::Rejected | RefusedReason::UnsupportedMediaType => {
                Code::InvalidArgument
            }
            RefusedReason::TooSlow => Code::DeadlineExceeded,
            RefusedReason::BrokenOff => Code::Cancelled,
        };
        Status { code, message: self.message.clone(), retry_delay: self.retry_delay }
    }

    /// The answer over HTTP.
    pub fn http_status(&self) -> StatusCode {
        match self.reason {
            RefusedReason::Unauthenticated => StatusCode::UNAUTHORIZED,
            RefusedReason::Unrouted => StatusCode::NOT_FOUND,
            RefusedReason::Overloaded | RefusedReason::TooSlow => StatusCode::SERVICE_UNAVAILABLE,
            RefusedReason::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            RefusedReason::Invalid | RefusedReason::Rejected | RefusedReason::BrokenOff => StatusCode::BAD_REQUEST,
            RefusedReason::UnsupportedEncoding | RefusedReason::UnsupportedMediaType => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
        }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Retry { delay, reason } => {
                Refused { reason: RefusedReason::Overloaded, message: reason, retry_delay: Some(delay) }
            }
            Refusal::TooLarge { reason } => Refused::new(RefusedReason::TooLarge, reason),
            Refusal::Invalid { reason } => Refused::invalid(reason),
            Refusal::Rejected { reason } => Refused::new(RefusedReason::Rejected, reason),
            Refusal::Unrouted => Refused::new(RefusedReason::Unrouted, "no pipeline takes this signal"),
        }
    }
}

impl From<DecompressError> for Refused {
    fn from(error: DecompressError) -> Self {
        match error {
            DecompressError::TooLarge { limit_bytes } => Refused::new(
                RefusedReason::TooLarge,
                format!("the request is larger than the limit of {limit_bytes} bytes after decompression"),
            ),
            DecompressError::Corrupt { .. } | DecompressError::CorruptLz4 { .. } => Refused::invalid(error.to_string()),
            DecompressError::Unsupported { .. } => Refused::new(RefusedReason::UnsupportedEncoding, error.to_string()),
        }
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
            BodyError::TooSlow(_) => RefusedReason::TooSlow,
            BodyError::BrokenOff(_) => RefusedReason::BrokenOff,
        };
        Refused::new(reason, error.to_string())
    }
}
