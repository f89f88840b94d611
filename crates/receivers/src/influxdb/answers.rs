//! Answers in InfluxDB's words.

use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::json;
use sluice_influx::{Fault, Faults};
use sluice_net::server::{ReplyBody, reply};

use super::dropped::Dropped;
use super::refused::{Reason, Refused};
use super::request::Api;
use super::write::Outcome;

/// The release whose APIs clients may take for granted: the last one of 1.x has that of 2.x, too.
pub(super) const VERSION: &str = "1.8.10";
const BUILD: HeaderValue = HeaderValue::from_static("OSS");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

const X_VERSION: HeaderName = HeaderName::from_static("x-influxdb-version");
const X_BUILD: HeaderName = HeaderName::from_static("x-influxdb-build");
const X_ERROR: HeaderName = HeaderName::from_static("x-influxdb-error");

/// Bytes of an error in a header, as in InfluxDB.
const HEADER_ERROR_BYTES: usize = 1024;

pub(super) fn json_reply(status: StatusCode, body: &serde_json::Value) -> Response<ReplyBody> {
    reply(status, JSON, format!("{body}\n"))
}

pub(super) fn no_content() -> Response<ReplyBody> {
    reply(StatusCode::NO_CONTENT, JSON, "")
}

/// Adds the headers by which clients know InfluxDB.
pub(super) fn with_version(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    let headers = response.headers_mut();
    headers.insert(X_VERSION, HeaderValue::from_static(VERSION));
    headers.insert(X_BUILD, BUILD);
    response
}

/// `/ping`, as a client asks for it.
pub(super) fn ping(verbose: &str) -> Response<ReplyBody> {
    match verbose {
        "" | "0" | "false" => no_content(),
        _ => json_reply(StatusCode::OK, &json!({ "version": VERSION })),
    }
}

pub(super) fn health() -> Response<ReplyBody> {
    let body = json!({
        "checks": [],
        "message": "ready for queries and writes",
        "name": "influxdb",
        "status": "pass",
        "version": VERSION,
    });
    json_reply(StatusCode::OK, &body)
}

pub(super) fn not_found() -> Response<ReplyBody> {
    reply(StatusCode::NOT_FOUND, TEXT, "404 page not found\n")
}

pub(super) fn wrong_method(allowed: &'static str) -> Response<ReplyBody> {
    let response = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Method Not Allowed\n");
    with_allowed(response, allowed)
}

/// InfluxDB answers 200 without a body, also to senders without credentials.
pub(super) fn options(allowed: &'static str) -> Response<ReplyBody> {
    with_allowed(reply(StatusCode::OK, TEXT, ""), allowed)
}

fn with_allowed(mut response: Response<ReplyBody>, allowed: &'static str) -> Response<ReplyBody> {
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// The code of InfluxDB 2.x.
fn code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "invalid",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::NOT_FOUND => "not found",
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported media type",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        _ => "internal error",
    }
}

/// An error in the form of the API.
pub(super) fn error(api: Api, status: StatusCode, message: &str) -> Response<ReplyBody> {
    match api {
        Api::V1 => {
            let mut response = json_reply(status, &json!({ "error": message }));
            if status != StatusCode::UNAUTHORIZED {
                let text = header_text(message);
                response.headers_mut().extend(text.map(|text| (X_ERROR, text)));
            }
            response
        }
        Api::V2 => json_reply(status, &json!({ "code": code(status), "message": message })),
        Api::V3 => json_reply(status, &json!({ "error": message })),
    }
}

/// A header has no line breaks.
fn header_text(message: &str) -> Option<HeaderValue> {
    let bytes = &message.as_bytes()[..message.len().min(HEADER_ERROR_BYTES)];
    let spaced: Vec<u8> =
        bytes.iter().map(|byte| if byte.is_ascii_control() { b' ' } else { *byte }).collect();
    HeaderValue::from_bytes(&spaced).ok()
}

/// The answer to a request that was refused as a whole, or broke off.
pub(super) fn refused(
    api: Api,
    refused: &Refused,
    challenge: Option<&HeaderValue>,
) -> Response<ReplyBody> {
    let status = refused.http_status();
    let message = match (refused.reason, api) {
        (Reason::Unauthenticated, Api::V1) if refused.message == MISSING => {
            "unable to parse authentication credentials"
        }
        (Reason::Unauthenticated, Api::V1) => "authorization failed",
        (Reason::Unauthenticated, Api::V2) => "unauthorized access",
        (Reason::Unauthenticated, Api::V3) => "the request was not authenticated",
        _ => refused.message.as_str(),
    };
    let mut response = error(api, status, message);
    let headers = response.headers_mut();
    if let Some(delay) = refused.delay {
        // The header has whole seconds: rounded up, so that no client comes too early.
        let seconds = delay.as_millis().div_ceil(1000).max(1) as u64;
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.extend(challenge.map(|challenge| (WWW_AUTHENTICATE, challenge.clone())));
    }
    response
}

/// The message of a refusal for want of any credentials.
pub(super) const MISSING: &str = "no credentials were provided";

/// The answer to a body that was read to its end.
pub(super) fn written(api: Api, outcome: &Outcome) -> Response<ReplyBody> {
    let Outcome { faults, refused, dropped, .. } = outcome;
    match (faults.count, refused) {
        (0, None) => no_content(),
        (1.., _) if outcome.is_whole => whole_v3(faults),
        (_, None) if api == Api::V3 => partial_v3(faults),
        (0, Some(refused)) => partial(api, outcome, refused.http_status(), &said(refused, dropped)),
        (_, None) => partial(api, outcome, StatusCode::BAD_REQUEST, &faults.to_string()),
        (_, Some(refused)) => {
            let message = format!("{}\n{faults}", said(refused, dropped));
            partial(api, outcome, refused.http_status(), &message)
        }
    }
}

/// Why lines are dropped, and which: their neighbours in a request go with a line at fault.
fn said(refused: &Refused, dropped: &Dropped) -> String {
    format!("{}: {dropped}", refused.message)
}

/// InfluxDB says whether some of the lines were taken.
fn partial(api: Api, outcome: &Outcome, status: StatusCode, reason: &str) -> Response<ReplyBody> {
    if outcome.lines == 0 {
        return error(api, status, reason);
    }
    let message = format!("partial write: {reason} dropped={}", outcome.dropped.points);
    error(api, status, &message)
}

fn fault_v3(fault: &Fault) -> serde_json::Value {
    json!({
        "original_line": fault.excerpt,
        "line_number": fault.line,
        "error_message": fault.reason,
    })
}

/// Nothing was taken. InfluxDB names the first line at fault.
fn whole_v3(faults: &Faults) -> Response<ReplyBody> {
    let error = "parsing failed for write_lp endpoint";
    let data = faults.first.first().map(fault_v3);
    json_reply(StatusCode::BAD_REQUEST, &json!({ "error": error, "data": data }))
}

fn partial_v3(faults: &Faults) -> Response<ReplyBody> {
    let error = "partial write of line protocol occurred";
    let data: Vec<_> = faults.first.iter().map(fault_v3).collect();
    json_reply(StatusCode::BAD_REQUEST, &json!({ "error": error, "data": data }))
}

#[cfg(test)]
mod tests {
    use sluice_net::auth::server::AuthError;

    use super::*;

    #[test]
    fn a_lack_of_credentials_is_known_by_its_message() {
        assert_eq!(AuthError::Missing.to_string(), MISSING);
    }

    #[test]
    fn errors_stand_in_a_header_without_line_breaks() {
        let message = format!("a\nb\u{e4}{}", "x".repeat(2000));
        let text = header_text(&message).expect("a value");
        assert!(text.as_bytes().starts_with("a b\u{e4}x".as_bytes()) && text.len() == 1024);
    }
}
