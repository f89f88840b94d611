//! The outcome of a call: code, message, and how long to wait before the next try.
//!
//! Details travel in `grpc-status-details-bin` as a `google.rpc.Status` (google/rpc/status.proto),
//! in which `google.rpc.RetryInfo` (google/rpc/error_details.proto) has the delay. Both are written
//! and read by hand here: they have three fields each.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

use crate::text::cut;

pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const RETRY_INFO_TYPE: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The canonical codes (google/rpc/code.proto).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

const CODES: [(Code, &str); 17] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "CANCELLED"),
    (Code::Unknown, "UNKNOWN"),
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    (Code::NotFound, "NOT_FOUND"),
    (Code::AlreadyExists, "ALREADY_EXISTS"),
    (Code::PermissionDenied, "PERMISSION_DENIED"),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
    (Code::FailedPrecondition, "FAILED_PRECONDITION"),
    (Code::Aborted, "ABORTED"),
    (Code::OutOfRange, "OUT_OF_RANGE"),
    (Code::Unimplemented, "UNIMPLEMENTED"),
    (Code::Internal, "INTERNAL"),
    (Code::Unavailable, "UNAVAILABLE"),
    (Code::DataLoss, "DATA_LOSS"),
    (Code::Unauthenticated, "UNAUTHENTICATED"),
];

impl Code {
    /// Unknown codes count as UNKNOWN, as the specification asks.
    pub fn from_number(number: u64) -> Code {
        usize::try_from(number)
            .ok()
            .and_then(|index| CODES.get(index))
            .map_or(Code::Unknown, |(code, _)| *code)
    }

    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The canonical name: `UNAVAILABLE`.
    pub const fn as_str(self) -> &'static str {
        CODES[self as usize].1
    }

    /// The code for an HTTP status of a proxy that answered in a server's place (grpc/grpc,
    /// doc/http-grpc-status-mapping.md).
    pub fn from_http_status(status: http::StatusCode) -> Code {
        match status.as_u16() {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Status {
    pub code: Code,
    pub message: String,
    /// `RetryInfo`: the delay that the server asks for. `Some` of zero means "at once".
    pub retry_delay: Option<Duration>,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Status { code, message: message.into(), retry_delay: None }
    }

    pub fn ok() -> Self {
        Status::new(Code::Ok, "")
    }

    pub fn is_ok(&self) -> bool {
        self.code == Code::Ok
    }

    /// Writes the status into trailers, or into the headers of an answer that has only trailers.
    pub fn write_to(&self, headers: &mut HeaderMap) {
        headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(self.code.number())));
        if !self.message.is_empty()
            && let Ok(message) =
                HeaderValue::try_from(utf8_percent_encode(cut(&self.message), PLAIN).to_string())
        {
            headers.insert(GRPC_MESSAGE, message);
        }
        if self.retry_delay.is_some()
            && let Ok(details) =
                HeaderValue::try_from(STANDARD_NO_PAD.encode(self.encode_details()))
        {
            headers.insert(GRPC_STATUS_DETAILS, details);
        }
    }

    /// Reads the status out of trailers or headers. `None` without a `grpc-status`.
    pub fn read_from(headers: &HeaderMap) -> Option<Status> {
        let number = std::str::from_utf8(headers.get(GRPC_STATUS)?.as_bytes()).ok()?;
        let code = number.trim().parse().map_or(Code::Unknown, Code::from_number);
        let message = headers
            .get(GRPC_MESSAGE)
            .map(|value| percent_decode(value.as_bytes()).decode_utf8_lossy())
            .unwrap_or_default();
        let retry_delay = headers
            .get(GRPC_STATUS_DETAILS)
            .and_then(|value| decode_base64(value.as_bytes()))
            .and_then(|details| Status::decode_details(&details)?.retry_delay);
        Some(Status { code, message: cut(&message).to_owned(), retry_delay })
    }
}

/// Peers pad or do not pad: both are to be accepted.
fn decode_base64(value: &[u8]) -> Option<Vec<u8>> {
    let unpadded = value.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    STANDARD_NO_PAD.decode(&value[..unpadded]).or_else(|_| STANDARD.decode(value)).ok()
}

/// Characters that must be escaped: the specification lets space to tilde stand, but for `%`.
const PLAIN: &AsciiSet = &CONTROLS.add(b'%');

mod details;

#[cfg(test)]
mod tests;
