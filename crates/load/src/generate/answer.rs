//! The answer of a server to one request, whatever the protocol.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use prost::Message as _;
use sluice_net::grpc::frame::PREFIX_BYTES;
use sluice_net::grpc::{Code, Status};

use super::client::Response;
use crate::export_response::ExportResponse;

/// Of an HTTP answer's body, in messages.
const MESSAGE_LIMIT_BYTES: usize = 256;

/// How one attempt ended, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    Grpc(Code),
    Http(u16),
    /// No connection, or it broke before an answer.
    Transport,
    /// No answer within the request's timeout.
    TimedOut,
}

impl Ending {
    pub fn is_ok(self) -> bool {
        matches!(self, Ending::Grpc(Code::Ok) | Ending::Http(200..=299))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Grpc(code) => write!(formatter, "{code}"),
            Ending::Http(status) => write!(formatter, "HTTP {status}"),
            Ending::Transport => formatter.write_str("connection failed"),
            Ending::TimedOut => formatter.write_str("timed out"),
        }
    }
}

/// The answer to one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) ending: Ending,
    /// Items that an accepted request's partial success names as rejected.
    pub(super) rejected_items: u64,
    /// RetryInfo or Retry-After.
    pub(super) retry_delay: Option<Duration>,
    pub(super) message: String,
}

/// Codes whose requests may be sent again. RESOURCE_EXHAUSTED is one with RetryInfo only.
const RETRYABLE: [Code; 6] = [
    Code::Cancelled,
    Code::DeadlineExceeded,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unavailable,
    Code::DataLoss,
];

impl Answer {
    /// Without rejected items and without a delay.
    pub(super) fn new(ending: Ending, message: String) -> Self {
        Answer { ending, rejected_items: 0, retry_delay: None, message }
    }

    pub(super) fn from_grpc(response: Response) -> Self {
        let Response { head, trailers, body } = response;
        if head.status != StatusCode::OK {
            return Answer::new(Ending::Http(head.status.as_u16()), String::new());
        }
        // An answer without a message has its status in the head.
        let Some(status) = Status::read_from(trailers.as_ref().unwrap_or(&head.headers)) else {
            return Answer::new(Ending::Grpc(Code::Unknown), String::new());
        };
        let message = body.get(PREFIX_BYTES..).filter(|_| status.is_ok());
        Answer {
            ending: Ending::Grpc(status.code),
            rejected_items: message.map_or(0, rejected_items),
            retry_delay: status.retry_delay,
            message: status.message,
        }
    }

    pub(super) fn from_http(response: Response) -> Self {
        let Response { head, body, .. } = response;
        let text = &body[..body.len().min(MESSAGE_LIMIT_BYTES)];
        Answer {
            ending: Ending::Http(head.status.as_u16()),
            rejected_items: if head.status == StatusCode::OK { rejected_items(&body) } else { 0 },
            retry_delay: sluice_net::client::retry_after(&head.headers),
            message: String::from_utf8_lossy(text).into_owned(),
        }
    }

    /// Whether an OTLP client may send the request again (specification, "Failures").
    pub(super) fn is_retryable(&self) -> bool {
        match self.ending {
            Ending::Grpc(Code::ResourceExhausted) => self.retry_delay.is_some(),
            Ending::Grpc(code) => RETRYABLE.contains(&code),
            Ending::Http(status) => matches!(status, 429 | 502 | 503 | 504),
            Ending::Transport | Ending::TimedOut => true,
        }
    }

    /// True where the server may have taken the request although no answer says so.
    pub(super) fn fate_is_unknown(&self) -> bool {
        matches!(self.ending, Ending::Transport | Ending::TimedOut)
    }
}

/// Items that the encoded answer to an accepted request names as rejected. One that cannot be read
/// names none.
fn rejected_items(response: &[u8]) -> u64 {
    let partial = ExportResponse::decode(response).ok().and_then(|answer| answer.partial_success);
    partial.map_or(0, |partial| partial.rejected_items.max(0).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_is_retried_only_with_retry_info() {
        let answer = |code, retry_delay| Answer {
            retry_delay,
            ..Answer::new(Ending::Grpc(code), String::new())
        };
        let delay = Some(Duration::ZERO);
        assert!(!answer(Code::ResourceExhausted, None).is_retryable());
        assert!(answer(Code::ResourceExhausted, delay).is_retryable());
        assert!(answer(Code::Unavailable, None).is_retryable());
        assert!(!answer(Code::InvalidArgument, delay).is_retryable());
    }
}
