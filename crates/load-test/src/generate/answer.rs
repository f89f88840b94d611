//! The answer of a server to one request, whatever the protocol.

use std::fmt;
use std::time::Duration;

use prost::Message as _;

use crate::export_response::ExportResponse;
use crate::status::Code;

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
        matches!(self, Ending::Grpc(Code::OK) | Ending::Http(200..=299))
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
pub(crate) struct Answer {
    pub(crate) ending: Ending,
    /// Items that an accepted request's partial success names as rejected.
    pub(crate) rejected_items: u64,
    /// RetryInfo or Retry-After.
    pub(crate) retry_delay: Option<Duration>,
    pub(crate) message: String,
}

impl Answer {
    pub(crate) fn failure(ending: Ending, message: String) -> Self {
        Answer { ending, rejected_items: 0, retry_delay: None, message }
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.ending.is_ok()
    }

    /// Whether an OTLP client may send the request again.
    pub(crate) fn is_retryable(&self) -> bool {
        match self.ending {
            Ending::Grpc(code) => code.is_retryable(self.retry_delay.is_some()),
            Ending::Http(status) => matches!(status, 429 | 502 | 503 | 504),
            Ending::Transport | Ending::TimedOut => true,
        }
    }

    /// True where the server may have taken the request although no answer says so.
    pub(crate) fn fate_is_unknown(&self) -> bool {
        matches!(self.ending, Ending::Transport | Ending::TimedOut)
    }
}

/// Items that the encoded answer to an accepted request names as rejected. One that cannot be read names none.
pub(crate) fn rejected_items(response: &[u8]) -> u64 {
    ExportResponse::decode(response).map_or(0, |response| response.rejected_items())
}
