//! gRPC status codes, their HTTP counterparts, and what they tell an OTLP client.

use std::fmt;
use std::time::Duration;

use sluice_net::grpc::{self, Status};

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

    /// A status with this code, with RetryInfo where a delay is given.
    pub(crate) fn with(self, message: impl Into<String>, retry_delay: Option<Duration>) -> Status {
        Status { retry_delay, ..Status::new(grpc::Code::from_number(u64::from(self.0)), message) }
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
        match grpc::Code::from_number(u64::from(self.0)) {
            grpc::Code::Unknown if *self != Code::UNKNOWN => write!(formatter, "code {}", self.0),
            known => formatter.write_str(known.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_names_and_unknown_ones_their_number() {
        assert_eq!([Code::OK, Code::UNKNOWN, Code(99)].map(|code| code.to_string()), ["OK", "UNKNOWN", "code 99"]);
    }

    #[test]
    fn exhausted_is_retried_only_with_retry_info() {
        assert!(!Code::RESOURCE_EXHAUSTED.is_retryable(false));
        assert!(Code::RESOURCE_EXHAUSTED.is_retryable(true));
        assert!(Code::UNAVAILABLE.is_retryable(false));
        assert!(!Code::INVALID_ARGUMENT.is_retryable(true));
    }
}
