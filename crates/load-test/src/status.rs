//! gRPC status codes, their HTTP counterparts, and RetryInfo, as senders and backends exchange them.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::wire::{Fields, Value, put_bytes, put_unsigned};

const RETRY_INFO_TYPE: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u32);

impl Code {
    pub const OK: Code = Code(0);
    pub const CANCELLED: Code = Code(1);
    pub const UNKNOWN: Code = Code(2);
    pub const INVALID_ARGUMENT: Code = Code(3);
    pub const DEADLINE_EXCEEDED: Code = Code(4);
    pub const NOT_FOUND: Code = Code(5);
    pub const PERMISSION_DENIED: Code = Code(7);
    pub const RESOURCE_EXHAUSTED: Code = Code(8);
    pub const ABORTED: Code = Code(10);
    pub const OUT_OF_RANGE: Code = Code(11);
    pub const UNIMPLEMENTED: Code = Code(12);
    pub const INTERNAL: Code = Code(13);
    pub const UNAVAILABLE: Code = Code(14);
    pub const DATA_LOSS: Code = Code(15);
    pub const UNAUTHENTICATED: Code = Code(16);

    /// The HTTP status that OTLP over HTTP uses for the same case.
    pub fn http_status(self) -> u16 {
        match self {
            Code::OK => 200,
            Code::INVALID_ARGUMENT | Code::OUT_OF_RANGE => 400,
            Code::UNAUTHENTICATED => 401,
            Code::PERMISSION_DENIED => 403,
            Code::NOT_FOUND | Code::UNIMPLEMENTED => 404,
            Code::RESOURCE_EXHAUSTED => 429,
            Code::UNAVAILABLE => 503,
            Code::DEADLINE_EXCEEDED => 504,
            _ => 500,
        }
    }

    /// Whether an OTLP client may send the request again (specification, "Failures"). RESOURCE_EXHAUSTED only where the
    /// server sent RetryInfo.
    pub fn is_retryable(self, has_retry_info: bool) -> bool {
        match self {
            Code::RESOURCE_EXHAUSTED => has_retry_info,
            Code::CANCELLED
            | Code::DEADLINE_EXCEEDED
            | Code::ABORTED
            | Code::OUT_OF_RANGE
            | Code::UNAVAILABLE
            | Code::DATA_LOSS => true,
            _ => false,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 17] = [
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "code {}", self.0),
        }
    }
}

/// Encodes a `google.rpc.Status`, with a RetryInfo detail where a delay is given.
pub(crate) fn encode_status(code: Code, message: &str, retry_delay: Option<Duration>) -> Vec<u8> {
    let mut status = Vec::new();
    put_unsigned(&mut status, 1, u64::from(code.0));
    put_bytes(&mut status, 2, message.as_bytes());
    if let Some(delay) = retry_delay {
        let mut duration = Vec::new();
        put_unsigned(&mut duration, 1, delay.as_secs());
        put_unsigned(&mut duration, 2, u64::from(delay.subsec_nanos()));
        let mut info = Vec::new();
        put_bytes(&mut info, 1, &duration);
        let mut any = Vec::new();
        put_bytes(&mut any, 1, RETRY_INFO_TYPE.as_bytes());
        put_bytes(&mut any, 2, &info);
        put_bytes(&mut status, 3, &any);
    }
    status
}

/// The value of `grpc-status-details-bin` for a status with RetryInfo.
pub(crate) fn retry_details(code: Code, message: &str, delay: Duration) -> String {
    STANDARD_NO_PAD.encode(encode_status(code, message, Some(delay)))
}

/// Reads the delay of a RetryInfo out of `grpc-status-details-bin`, padded or not.
pub(crate) fn retry_delay(details: &[u8]) -> Option<Duration> {
    let status = STANDARD_NO_PAD.decode(details).or_else(|_| STANDARD.decode(details)).ok()?;
    Fields::of(&status).flatten().find_map(|field| match field {
        (3, Value::Bytes(any)) => retry_info(any),
        _ => None,
    })
}

fn retry_info(any: &[u8]) -> Option<Duration> {
    if bytes_field(any, 1)? != RETRY_INFO_TYPE.as_bytes() {
        return None;
    }
    let info = bytes_field(any, 2)?;
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields::of(bytes_field(info, 1).unwrap_or_default()) {
        match field.ok()? {
            (1, Value::Varint(value)) => seconds = value,
            (2, Value::Varint(value)) => nanos = u32::try_from(value).ok()?,
            _ => {}
        }
    }
    Duration::from_secs(seconds).checked_add(Duration::from_nanos(u64::from(nanos)))
}

fn bytes_field(message: &[u8], number: u32) -> Option<&[u8]> {
    Fields::of(message).flatten().find_map(|field| match field {
        (found, Value::Bytes(bytes)) if found == number => Some(bytes),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_delay_survives_the_header() {
        let delay = Duration::from_millis(1250);
        let details = retry_details(Code::UNAVAILABLE, "busy", delay);
        assert_eq!(retry_delay(details.as_bytes()), Some(delay));
        assert_eq!(retry_delay(b"not base64!"), None);
        let without = STANDARD_NO_PAD.encode(encode_status(Code::UNAVAILABLE, "busy", None));
        assert_eq!(retry_delay(without.as_bytes()), None);
    }

    #[test]
    fn exhausted_is_retried_only_with_retry_info() {
        assert!(!Code::RESOURCE_EXHAUSTED.is_retryable(false));
        assert!(Code::RESOURCE_EXHAUSTED.is_retryable(true));
        assert!(Code::UNAVAILABLE.is_retryable(false));
        assert!(!Code::INVALID_ARGUMENT.is_retryable(true));
    }
}
