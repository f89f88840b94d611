//! Outcomes of answers, by the OTLP specification. Where it leaves room, the one that loses least.

use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_TYPE, LOCATION};
use sluice_config::shown_url;
use sluice_flow::Outcome;
use sluice_flow::hop::OVERLAP;
use sluice_net::auth::client::CredentialsError;
use sluice_net::client::{Answer, Secrets, TransportError, retry_after};
use sluice_net::grpc::client::Reply;
use sluice_net::grpc::{Code, Status};

use crate::partial;

/// The least pause after 429 without a delay: limits of a rate are for seconds at least, and
/// attempts count against them.
const RATE_PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn of_transport_error(error: &TransportError, secrets: &Secrets<'_>) -> Outcome {
    let reason = secrets.peer_text(&error.to_string());
    match error {
        TransportError::RequestTooLarge { .. } => Outcome::TooLarge { reason },
        error if error.is_configuration() => Outcome::Misconfigured { reason },
        _ => Outcome::RetryAfter { delay: None, reason },
    }
}

pub(crate) fn of_auth_error(error: CredentialsError) -> Outcome {
    let CredentialsError { reason, is_temporary } = error;
    match is_temporary {
        true => Outcome::RetryAfter { delay: None, reason },
        false => Outcome::Misconfigured { reason },
    }
}

/// gRPC.
///
/// RESOURCE_EXHAUSTED without RetryInfo must not simply be sent again. Servers say it of oversized
/// messages (then splitting helps; some say OUT_OF_RANGE) and of spent quotas (to be raised, or
/// waited for): the delivery is held and probed, and nothing is thrown away.
pub(crate) fn of_grpc(reply: &Reply, secrets: &Secrets<'_>) -> Outcome {
    let status = &reply.status;
    if status.is_ok() {
        return partial::from_proto(&reply.message, secrets);
    }
    let reason = secrets.peer_text(&status.to_string());
    if let Some(http) = reply.http_status {
        return of_http_in_place_of_grpc(http, status, reason);
    }
    match status.code {
        Code::ResourceExhausted if status.retry_delay.is_some() => retry(status, reason),
        Code::ResourceExhausted | Code::OutOfRange if speaks_of_size(&status.message) => {
            Outcome::TooLarge { reason }
        }
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => retry(status, reason),
        Code::ResourceExhausted => {
            let reason = format!("{reason} (without a delay: a quota may be spent)");
            Outcome::Misconfigured { reason }
        }
        Code::Unimplemented | Code::Unauthenticated | Code::PermissionDenied | Code::NotFound => {
            Outcome::Misconfigured { reason }
        }
        Code::AlreadyExists if status.message.contains(OVERLAP) => Outcome::Overlaps { reason },
        Code::Unknown | Code::Internal => Outcome::Failed { reason },
        _ => Outcome::Rejected { reason },
    }
}

fn retry(status: &Status, reason: String) -> Outcome {
    Outcome::RetryAfter { delay: status.retry_delay, reason }
}

/// A proxy, or something else that is no gRPC server, answered: the request may never have reached
/// the backend, so that nothing can be said against the data.
fn of_http_in_place_of_grpc(http: StatusCode, status: &Status, reason: String) -> Outcome {
    match http.as_u16() {
        413 => Outcome::TooLarge { reason },
        429 => Outcome::RetryAfter { delay: status.retry_delay.or(Some(RATE_PAUSE)), reason },
        500..=599 => retry(status, reason),
        _ => Outcome::Misconfigured { reason },
    }
}

/// Whether a refusal is about the size of a message. grpc-go: "received message larger than max",
/// grpc-java: "gRPC message exceeds maximum size", tonic: "decoded message length too large".
fn speaks_of_size(message: &str) -> bool {
    const SIZE: &[&str] = &["size", "bytes", "length", "message", "payload"];
    const EXCESS: &[&str] =
        &["larger than", "too large", "too big", "exceed", "maximum", "greater than", "> max"];
    const QUOTA: &[&str] = &["quota", "rate limit", "per second", "per minute"];
    let message = message.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    has(SIZE) && has(EXCESS) && !has(QUOTA)
}

/// HTTP. Four statuses are retried; those that accuse settings are not the data's fault.
pub(crate) fn of_http(answer: &Answer, secrets: &Secrets<'_>) -> Outcome {
    let code = answer.status.as_u16();
    if answer.status.is_success() {
        return match content_type(answer) {
            kind if kind.contains("json") => partial::from_json(&answer.body, secrets),
            kind if is_web_page(answer) => Outcome::Misconfigured {
                reason: secrets.peer_text(&format!(
                    "HTTP status {} with a web page (content-type {kind}), not an answer of an \
                     OTLP backend: check the URL, proxies and credentials",
                    answer.status
                )),
            },
            kind if kind.contains("html") => Outcome::Delivered,
            _ => partial::from_proto(&answer.body, secrets),
        };
    }
    let reason = http_reason(answer, secrets);
    match code {
        429 => {
            let delay = retry_after(&answer.headers).or(Some(RATE_PAUSE));
            Outcome::RetryAfter { delay, reason }
        }
        502..=504 => Outcome::RetryAfter { delay: retry_after(&answer.headers), reason },
        413 => Outcome::TooLarge { reason },
        409 if reason.contains(OVERLAP) => Outcome::Overlaps { reason },
        300..=399 | 401 | 403 | 404 | 405 | 406 | 407 | 415 | 426 => {
            Outcome::Misconfigured { reason }
        }
        500..=599 => Outcome::Failed { reason },
        _ => Outcome::Rejected { reason },
    }
}

/// Whether a success may be a login page, or a proxy's: nothing says that a backend took the
/// request. Some backends call an empty body or a word HTML, which is none.
pub(crate) fn is_web_page(answer: &Answer) -> bool {
    let body = answer.body.trim_ascii_start();
    let begins_with = |tag: &[u8]| {
        body.get(..tag.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(tag))
    };
    let is_page = begins_with(b"<!doctype html") || begins_with(b"<html");
    is_page && content_type(answer).contains("html")
}

/// Empty if there is none.
pub(crate) fn content_type(answer: &Answer) -> &str {
    answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The status, and the text of the body: a `google.rpc.Status` in protobuf or JSON, or plain text.
pub(crate) fn http_reason(answer: &Answer, secrets: &Secrets<'_>) -> String {
    let body = &answer.body[..answer.body.len().min(64 * 1024)];
    let plain = || String::from_utf8_lossy(body).into_owned();
    let text = match content_type(answer) {
        kind if kind.contains("protobuf") => {
            Status::decode_details(body).map(|status| status.message).unwrap_or_default()
        }
        kind if kind.contains("json") => {
            let parsed: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
            parsed["message"].as_str().map_or_else(plain, str::to_owned)
        }
        kind if kind.contains("html") => String::new(),
        _ => plain(),
    };
    let location = answer.headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let location = location.map(|location| {
        let location = shown_url(location);
        format!(" to {location}: only redirects 307 and 308 within the same origin are followed")
    });
    let location = location.unwrap_or_default();
    let separator = if text.trim().is_empty() { "" } else { ": " };
    secrets.peer_text(&format!("HTTP status {}{location}{separator}{}", answer.status, text.trim()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::tests::kind;

    fn grpc_reply(reply: &Reply) -> Outcome {
        of_grpc(reply, &Secrets::default())
    }

    fn grpc(code: Code, message: &str) -> Outcome {
        let status = Status::new(code, message);
        grpc_reply(&Reply { status, message: Bytes::new(), http_status: None })
    }

    /// Scenario: every gRPC code. Guarantee: the specification's table of what is retried, and no
    /// data blamed for settings.
    #[test]
    fn grpc_codes() {
        for (number, expected) in [
            (0, "delivered"),
            (1, "retry"),
            (2, "failed"),
            (3, "rejected"),
            (4, "retry"),
            (5, "misconfigured"),
            (6, "rejected"),
            (7, "misconfigured"),
            (8, "misconfigured"),
            (9, "rejected"),
            (10, "retry"),
            (11, "retry"),
            (12, "misconfigured"),
            (13, "failed"),
            (14, "retry"),
            (15, "retry"),
            (16, "misconfigured"),
        ] {
            let code = Code::from_number(number);
            assert_eq!(kind(&grpc(code, "no")), expected, "{code}");
        }
    }

    /// Scenario: the size refusals of the gRPC libraries, and a spent quota. Guarantee: only the
    /// former are split.
    #[test]
    fn size_refusals_are_known_by_their_words() {
        for message in [
            "grpc: received message larger than max (5242895 vs. 4194304)",
            "grpc: received message after decompression larger than max (5242895 vs. 4194304)",
            "gRPC message exceeds maximum size 4194304: 5242895",
            "Received message larger than max (5242895 vs. 4194304)",
            "Error, decoded message length too large: found 5242895 bytes, the limit is: 4194304",
            "the message is larger than 4194304 bytes after decompression",
        ] {
            assert_eq!(kind(&grpc(Code::ResourceExhausted, message)), "large", "{message}");
            assert_eq!(kind(&grpc(Code::OutOfRange, message)), "large", "{message}");
        }
        for message in [
            "quota exceeded",
            "max series limit exceeded",
            "ingestion rate limit of 5000 spans per second exceeded",
            "",
        ] {
            assert_eq!(kind(&grpc(Code::ResourceExhausted, message)), "misconfigured", "{message}");
        }
        let status = Status {
            retry_delay: Some(Duration::from_secs(2)),
            ..Status::new(Code::ResourceExhausted, "message larger than max")
        };
        let outcome = grpc_reply(&Reply { status, message: Bytes::new(), http_status: None });
        let Outcome::RetryAfter { delay, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(delay, Some(Duration::from_secs(2)));
    }

    fn http(code: u16, headers: &[(&'static str, &'static str)], body: &[u8]) -> Outcome {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                (http::HeaderName::from_static(name), HeaderValue::from_static(value))
            })
            .collect();
        let status = StatusCode::from_u16(code).expect("a status");
        let body = Bytes::copy_from_slice(body);
        of_http(&Answer { status, headers, body, trailers: None }, &Secrets::default())
    }

    /// Scenario: every HTTP status from 200 to 599. Guarantee: only the specification's four are
    /// retried, and those that accuse settings are misconfigured.
    #[test]
    fn http_statuses() {
        for code in 200..600 {
            let expected = match code {
                200..=299 => "delivered",
                300..=399 | 401 | 403 | 404 | 405 | 406 | 407 | 415 | 426 => "misconfigured",
                413 => "large",
                429 | 502 | 503 | 504 => "retry",
                500..=599 => "failed",
                _ => "rejected",
            };
            assert_eq!(kind(&http(code, &[], b"")), expected, "{code}");
        }
    }

    /// Scenario: successes that are called HTML: login pages, and what backends send that have
    /// taken the request. Guarantee: only a page is none, and nothing else is sent again.
    #[test]
    fn only_a_web_page_is_no_answer_of_a_backend() {
        let html = [("content-type", "text/html; charset=utf-8")];
        for page in ["<!doctype html><p>", "\r\n <!DOCTYPE HTML>", "<html>", "\n<HTML lang=en>"] {
            assert_eq!(kind(&http(200, &html, page.as_bytes())), "misconfigured", "{page}");
        }
        for code in [200, 202, 204] {
            for body in ["", " \n", "OK", "<p>accepted</p>", "\n\x02\x08\x01"] {
                assert_eq!(kind(&http(code, &html, body.as_bytes())), "delivered", "{body:?}");
            }
        }
        let plain = [("content-type", "text/plain")];
        assert_eq!(kind(&http(200, &plain, b"<html>")), "delivered");
    }

    /// Guarantee: after 429 a request pauses for a second at least, or for as long as the backend
    /// says; other retryable statuses leave the pause to the delivery.
    #[test]
    fn a_limit_of_a_rate_is_not_tried_at_once() {
        let delay = |code, headers: &[(&'static str, &'static str)]| match http(code, headers, b"")
        {
            Outcome::RetryAfter { delay, .. } => delay.map(|delay| delay.as_secs()),
            other => panic!("{other:?}"),
        };
        assert_eq!(delay(429, &[]), Some(1));
        assert_eq!(delay(429, &[("retry-after", "7")]), Some(7));
        assert_eq!(delay(503, &[]), None);
        let reply = Reply {
            status: Status::new(Code::Unavailable, ""),
            message: Bytes::new(),
            http_status: Some(StatusCode::TOO_MANY_REQUESTS),
        };
        let Outcome::RetryAfter { delay, .. } = grpc_reply(&reply) else { panic!("is sent again") };
        assert_eq!(delay, Some(RATE_PAUSE));
    }

    /// Guarantee: only the words of another Sluice make a conflict a request that is known in part.
    #[test]
    fn a_conflict_is_an_overlap_by_its_words() {
        let status = Status::new(Code::AlreadyExists, OVERLAP).encode_details();
        let outcome = http(409, &[("content-type", "application/x-protobuf")], &status);
        assert_eq!(kind(&outcome), "overlaps");
        let body = format!("{{\"code\": 6, \"message\": \"{OVERLAP}\"}}");
        let outcome = http(409, &[("content-type", "application/json")], body.as_bytes());
        assert_eq!(kind(&outcome), "overlaps");
    }

    /// Scenario: details that backends send beside the status. Guarantee: the delay and the text
    /// arrive, bounded.
    #[test]
    fn http_details() {
        let outcome = http(
            503,
            &[("retry-after", "3"), ("content-type", "text/plain")],
            &b"busy ".repeat(10_000),
        );
        let Outcome::RetryAfter { delay: Some(delay), reason } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(delay, Duration::from_secs(3));
        assert!(reason.contains("busy") && reason.len() <= 1024);
        let status = Status::new(Code::InvalidArgument, "no such tenant").encode_details();
        let outcome = http(400, &[("content-type", "application/x-protobuf")], &status);
        let Outcome::Rejected { reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.ends_with(": no such tenant"), "{reason}");
        let outcome = http(
            400,
            &[("content-type", "application/json")],
            br#"{"code":3,"message":"no such tenant"}"#,
        );
        let Outcome::Rejected { reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.ends_with(": no such tenant"), "{reason}");
        let outcome = http(200, &[("content-type", "text/html; charset=utf-8")], b"<html>Log in");
        let Outcome::Misconfigured { reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains("web page"), "{reason}");
        let location = ("location", "https://me:hunter2@login.example/a?token=hunter2");
        let outcome = http(302, &[location], b"");
        let Outcome::Misconfigured { reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains(" to https://login.example/a?…: only redirects"), "{reason}");
    }
}
