//! OTLP over HTTP as protobuf and JSON, and log lines, as a backend understands and answers them.

use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use serde_json::json;
use sluice_otlp::{Encoding, Signal};

use super::judge::{Form, Reply};
use super::serve::{Answer, Format};
use crate::export_response::ExportResponse;
use crate::status::Code;

/// On a path that is not OTLP's come log lines.
pub(super) fn format(head: &Parts) -> Result<Format, Box<Answer>> {
    let signal = Signal::ALL.into_iter().find(|signal| signal.http_path() == head.uri.path());
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let media_type = text("content-type").and_then(|value| value.split(';').next()).map(str::trim);
    let form = match (media_type, signal) {
        (Some("application/x-protobuf"), Some(_)) => Some(Form::Protobuf),
        (Some("application/json"), Some(_)) => Some(Form::Json),
        (Some("application/json" | "application/x-ndjson"), None) => Some(Form::Lines),
        _ => None,
    };
    let encoding = Encoding::from_name(text("content-encoding").unwrap_or("identity"));
    match (form, encoding) {
        (Some(form), Some(encoding)) => Ok(Format { signal, encoding, form }),
        _ => Err(Box::new(respond(StatusCode::UNSUPPORTED_MEDIA_TYPE, "text/plain", Bytes::new()))),
    }
}

pub(super) fn answer(form: Form, reply: Reply) -> Answer {
    match reply {
        Reply::Taken { rejected } => taken(form, rejected),
        Reply::Status { code, message, retry_delay } => refused(form, code.http_status(), code, &message, retry_delay),
        Reply::TooLarge { message } => refused(form, 413, Code::RESOURCE_EXHAUSTED, &message, None),
        Reply::Reset => refused(form, 500, Code::INTERNAL, "reset", None),
    }
}

fn taken(form: Form, rejected: Option<(u64, String)>) -> Answer {
    if form == Form::Protobuf {
        let message = ExportResponse::of(rejected).encode_to_vec();
        return respond(StatusCode::OK, "application/x-protobuf", message.into());
    }
    let body = match rejected {
        // The field has another name for each signal; a generic reader looks for the count only.
        Some((items, reason)) => {
            json!({"partialSuccess": {"rejectedSpans": items.to_string(), "errorMessage": reason}})
        }
        None => json!({}),
    };
    respond(StatusCode::OK, "application/json", body.to_string().into())
}

fn refused(form: Form, http_status: u16, code: Code, message: &str, retry_delay: Option<Duration>) -> Answer {
    let status = StatusCode::from_u16(http_status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match form {
        Form::Protobuf => respond(status, "application/x-protobuf", code.with(message, None).encode_details().into()),
        Form::Json | Form::Lines => {
            let body = json!({"code": code.0, "message": message}).to_string();
            respond(status, "application/json", body.into())
        }
    };
    if let Some(delay) = retry_delay {
        let seconds = delay.as_secs_f64().ceil() as u64;
        response.headers_mut().insert("retry-after", HeaderValue::from(seconds));
    }
    response
}

fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    response
}
