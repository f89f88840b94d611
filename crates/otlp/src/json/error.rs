//! Errors in a JSON body, with their places.

use std::fmt::Display;

use crate::Malformed;

/// Why a body is not the OTLP/JSON of an export request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid OTLP/JSON at line {line}, column {column}{}: {reason}", place(.path))]
pub struct JsonError {
    /// The member at fault: `resourceSpans[0].scopeSpans[0].spans[3].traceId`. Empty: the body.
    pub path: String,
    /// In bytes from the start of the body.
    pub offset: usize,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in bytes.
    pub column: usize,
    pub reason: JsonReason,
}

impl JsonError {
    /// The request is not wrong but exceeds the limit.
    pub fn is_too_large(&self) -> bool {
        matches!(self.reason, JsonReason::TooLarge { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonReason {
    #[error("the body ends too early")]
    UnexpectedEnd,
    #[error("expected {0}")]
    Expected(&'static str),
    #[error("there is more after the request's object")]
    TrailingData,
    #[error("a control character in a string must be escaped")]
    ControlCharacter,
    #[error("invalid escape in a string")]
    InvalidEscape,
    #[error("the number is outside the range of {0}")]
    OutOfRange(&'static str),
    #[error("the enum has no value of this name")]
    UnknownEnumName,
    #[error("the id must have {expected} hexadecimal digits, not {actual}")]
    IdLength { expected: usize, actual: usize },
    #[error("the id is not hexadecimal")]
    InvalidHex,
    #[error("the value is not base64")]
    InvalidBase64,
    #[error("values nest more than {limit} levels deep")]
    TooDeep { limit: usize },
    #[error("the request takes more than {limit_bytes} bytes as protobuf")]
    TooLarge { limit_bytes: usize },
}

/// Why a request could not be written as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToJsonError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the request takes more than {limit_bytes} bytes as JSON")]
    TooLarge { limit_bytes: usize },
}

/// An error on its way up: the path grows while the readers of the enclosing values return.
#[derive(Debug)]
pub(super) struct Failure {
    offset: usize,
    reason: JsonReason,
    path: String,
}

impl Failure {
    pub(super) fn new(offset: usize, reason: JsonReason) -> Self {
        Failure { offset, reason, path: String::new() }
    }

    /// `place` is a member's name, or the index of an element in brackets.
    pub(super) fn within(mut self, place: impl Display) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{place}{dot}{}", self.path);
        self
    }

    pub(super) fn into_error(self, json: &[u8]) -> JsonError {
        let before = &json[..self.offset.min(json.len())];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        JsonError {
            path: self.path,
            offset: self.offset,
            line: 1 + memchr::memchr_iter(b'\n', before).count(),
            column: 1 + before.len() - line_start,
            reason: self.reason,
        }
    }
}

fn place(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" ({path})") }
}
