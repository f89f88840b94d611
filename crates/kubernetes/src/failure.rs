//! The reasons for which a request has no answer that can be used.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

/// Longer waits than this are not asked for by API servers that mean well.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(300);
/// The same for answers that are no throttling: the API server, or a proxy, is soon there again.
const UNAVAILABLE_LIMIT: Duration = Duration::from_secs(60);
/// Messages of API servers are cut there.
const MESSAGE_LIMIT_BYTES: usize = 500;

/// The reason for which a request has no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The API server no longer has the version that was asked for: list again.
    Gone,
    /// We lack a permission. The API server's message says which.
    Forbidden(String),
    /// There is no such object.
    NotFound(String),
    /// The API server does not know us.
    Unauthorized(String),
    /// The API server has no time. It may have said how long to wait.
    Busy { reason: String, wait: Option<Duration> },
    /// A page or an event is larger than it may be.
    TooLarge,
    /// The API server cannot be reached, or fails itself: the same request may succeed later.
    Unavailable(String),
    /// Any other answer, or none.
    Other(String),
}

/// The answer of an API server to a request that failed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) message: String,
    pub(crate) code: u16,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

impl Failure {
    /// Of an answer with a status other than 200.
    pub(crate) fn of_answer(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
        let after = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.and_then(|text| text.trim().parse().ok());
        let mut said: Status = serde_json::from_slice(body).unwrap_or_default();
        if said.message.is_empty() {
            said.message = String::from_utf8_lossy(body).trim().to_owned();
        }
        said.code = status.as_u16();
        Failure::of_status(said, after)
    }

    /// `after`: the seconds that a header says.
    pub(crate) fn of_status(status: Status, after: Option<u64>) -> Failure {
        let Status { mut message, code, details } = status;
        let fits = |end: &usize| message.is_char_boundary(*end);
        let end = (0..=MESSAGE_LIMIT_BYTES.min(message.len())).rev().find(fits).unwrap_or(0);
        message.truncate(end);
        // It goes to logs.
        message = message.replace(char::is_control, " ");
        if message.is_empty() {
            message = "it does not say why".to_owned();
        }
        let after = after.or(Some(details.retry_after_seconds).filter(|seconds| *seconds > 0));
        let limit = if code == 429 { RETRY_AFTER_LIMIT } else { UNAVAILABLE_LIMIT };
        let wait = after.map(|seconds| Duration::from_secs(seconds).min(limit));
        match code {
            410 => Failure::Gone,
            401 => Failure::Unauthorized(message),
            404 => Failure::NotFound(message),
            403 => Failure::Forbidden(message),
            429 => Failure::Busy { reason: message, wait },
            500..=599 if wait.is_some() => Failure::Busy { reason: message, wait },
            500..=599 => Failure::Unavailable(format!("the API server answers {code}: {message}")),
            _ => Failure::Other(format!("the API server answers {code}: {message}")),
        }
    }

    /// The time that the API server wants us to wait.
    pub(crate) fn wait(&self) -> Option<Duration> {
        if let Failure::Busy { wait, .. } = self { *wait } else { None }
    }

    /// Whether the API server has said that it does not give us the objects.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Failure::Forbidden(_) | Failure::NotFound(_))
    }

    /// Whether a new connection, with credentials that are read again, may help.
    pub(crate) fn is_of_connection(&self) -> bool {
        matches!(self, Failure::Unauthorized(_) | Failure::Unavailable(_) | Failure::Other(_))
    }

    /// Whether the same request may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Failure::Busy { .. } | Failure::Unavailable(_))
    }

    /// The failure with another text.
    pub(crate) fn map_text(mut self, map: impl FnOnce(&str) -> String) -> Failure {
        match &mut self {
            Failure::Forbidden(text)
            | Failure::NotFound(text)
            | Failure::Unauthorized(text)
            | Failure::Busy { reason: text, .. }
            | Failure::Unavailable(text)
            | Failure::Other(text) => *text = map(text),
            Failure::Gone | Failure::TooLarge => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, after: Option<&'static str>, body: &str) -> Failure {
        let mut headers = HeaderMap::new();
        if let Some(after) = after {
            headers.insert(header::RETRY_AFTER, http::HeaderValue::from_static(after));
        }
        Failure::of_answer(StatusCode::from_u16(status).expect("valid"), &headers, body.as_bytes())
    }

    /// Scenario: answers as API servers give them, and as proxies before them do. Guarantee: each
    /// means what it says, and no server makes us wait for longer than five minutes, or for longer
    /// than one if it does not throttle.
    #[test]
    fn answers_that_are_no_success_are_understood() {
        let busy = |reason: &str, seconds: Option<u64>| Failure::Busy {
            reason: reason.to_owned(),
            wait: seconds.map(Duration::from_secs),
        };
        let forbidden =
            r#"{"kind":"Status","message":"pods is forbidden: User \"x\" cannot list","code":403}"#;
        let throttled = r#"{"message":"slow down","details":{"retryAfterSeconds":7},"code":429}"#;
        for (found, expected) in [
            (
                failure(403, None, forbidden),
                Failure::Forbidden("pods is forbidden: User \"x\" cannot list".to_owned()),
            ),
            (failure(410, None, ""), Failure::Gone),
            (failure(404, None, "pods \"a\""), Failure::NotFound("pods \"a\"".to_owned())),
            (failure(429, Some("3"), "Too many requests"), busy("Too many requests", Some(3))),
            (failure(429, None, throttled), busy("slow down", Some(7))),
            (failure(429, Some("99999"), ""), busy("it does not say why", Some(300))),
            (failure(503, Some("1"), "starting"), busy("starting", Some(1))),
            (failure(503, Some("300"), "starting"), busy("starting", Some(60))),
            (
                failure(502, None, "<html>"),
                Failure::Unavailable("the API server answers 502: <html>".to_owned()),
            ),
            (failure(400, None, "no"), Failure::Other("the API server answers 400: no".to_owned())),
        ] {
            assert_eq!(found, expected);
        }
        let long = failure(403, None, &"é".repeat(5000));
        assert_eq!(long, Failure::Forbidden("é".repeat(250)));
    }
}
