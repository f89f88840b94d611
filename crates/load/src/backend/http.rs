//! OTLP over HTTP as protobuf and JSON, and log lines, as a backend understands and answers them.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use prost::Message as _;
use serde_json::json;
use sluice_net::grpc::{Code, Status};
use sluice_otlp::{Encoding, Signal};

use super::judge::{Form, Format};
use super::serve::{Answer, full, respond};
use crate::export_response::{ExportResponse, PartialSuccess};

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// On a path that is not OTLP's come log lines.
pub(super) fn format(head: &Parts) -> Result<Format, Box<Answer>> {
    let signal = Signal::ALL.into_iter().find(|signal| signal.http_path() == head.uri.path());
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let media_type = text("content-type").and_then(|value| value.split(';').next()).map(str::trim);
    let form = match (media_type, signal) {
        (Some(PROTOBUF), Some(_)) => Some(Form::Protobuf),
        (Some(JSON), Some(_)) => Some(Form::Json),
        (Some(JSON | "application/x-ndjson"), None) => Some(Form::Lines),
        _ => None,
    };
    let encoding = Encoding::from_name(text("content-encoding").unwrap_or("identity"));
    match (form, encoding) {
        (Some(form), Some(encoding)) => {
            Ok(Format { signal: signal.unwrap_or(Signal::Logs), encoding, form })
        }
        _ => {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            Err(Box::new(respond(status, "text/plain", full(Bytes::new()))))
        }
    }
}

pub(super) fn taken(form: Form, partial_success: Option<PartialSuccess>) -> Answer {
    if form == Form::Protobuf {
        let message = ExportResponse { partial_success }.encode_to_vec();
        return respond(StatusCode::OK, PROTOBUF, full(message.into()));
    }
    let body = match partial_success {
        // The field has another name for each signal; a generic reader looks for the count only.
        Some(PartialSuccess { rejected_items, error_message }) => json!({"partialSuccess": {
            "rejectedSpans": rejected_items.to_string(), "errorMessage": error_message,
        }}),
        None => json!({}),
    };
    respond(StatusCode::OK, JSON, full(body.to_string().into()))
}

pub(super) fn refusal(form: Form, status: &Status, is_too_large: bool) -> Answer {
    let http_status = match status.code {
        _ if is_too_large => StatusCode::PAYLOAD_TOO_LARGE,
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound | Code::Unimplemented => StatusCode::NOT_FOUND,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = if form == Form::Protobuf {
        let without_delay = Status::new(status.code, &status.message);
        respond(http_status, PROTOBUF, full(without_delay.encode_details().into()))
    } else {
        let body = json!({"code": status.code.number(), "message": status.message});
        respond(http_status, JSON, full(body.to_string().into()))
    };
    if let Some(delay) = status.retry_delay {
        let seconds = delay.as_secs_f64().ceil() as u64;
        response.headers_mut().insert("retry-after", HeaderValue::from(seconds));
    }
    response
}
