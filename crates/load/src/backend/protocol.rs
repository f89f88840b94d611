//! A backend's requests and answers: OTLP over gRPC, protobuf and JSON over HTTP, log lines.

use std::future::ready;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use serde_json::json;
use sluice_net::grpc::frame::{PREFIX_BYTES, Prefix};
use sluice_net::grpc::{Code, Status};
use sluice_otlp::{Encoding, Signal};

const GRPC: &str = "application/grpc";
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// `Export…ServiceResponse`, the same for all signals.
#[derive(prost::Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

/// Items that were rejected for good, and why.
#[derive(prost::Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_items: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

type AnswerBody = UnsyncBoxBody<Bytes, &'static str>;
pub(super) type Answer = Response<AnswerBody>;

/// The format of a body, as the request's head has it.
#[derive(Clone, Copy)]
pub(super) struct Format {
    /// `Logs` for log lines.
    pub(super) signal: Signal,
    pub(super) encoding: Encoding,
    pub(super) form: Form,
}

/// The form of an inflated body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Protobuf, behind the prefix of a gRPC frame.
    Grpc,
    Protobuf,
    Json,
    /// Log lines in something that is not OTLP: JSON as Fluent Bit's `http` output posts it, or one
    /// object a line.
    Lines,
}

impl Format {
    /// A request over HTTP on a path that is not OTLP's has log lines.
    pub(super) fn of(head: &Parts) -> Result<Format, Box<Answer>> {
        let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let encoding = |name: &str| Encoding::from_name(text(name).unwrap_or("identity"));
        let media_type = text("content-type").and_then(|value| value.split(';').next());
        let (media_type, path) = (media_type.unwrap_or_default().trim(), head.uri.path());
        if media_type.starts_with(GRPC) {
            let unknown = |what| {
                let status = Status::new(Code::Unimplemented, what);
                Box::new(refusal(Form::Grpc, &status, false))
            };
            let signal = Signal::from_grpc_path(path);
            let signal = signal.ok_or_else(|| unknown("unknown service or method"))?;
            let encoding = encoding("grpc-encoding");
            let encoding = encoding.ok_or_else(|| unknown("unknown grpc-encoding"))?;
            return Ok(Format { signal, encoding, form: Form::Grpc });
        }
        let signal = Signal::ALL.into_iter().find(|signal| signal.http_path() == path);
        let form = match (media_type, signal) {
            (PROTOBUF, Some(_)) => Some(Form::Protobuf),
            (JSON, Some(_)) => Some(Form::Json),
            (JSON | "application/x-ndjson", None) => Some(Form::Lines),
            _ => None,
        };
        let signal = signal.unwrap_or(Signal::Logs);
        let format = form.zip(encoding("content-encoding"));
        format.map(|(form, encoding)| Format { signal, encoding, form }).ok_or_else(|| {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            Box::new(respond(status, "text/plain", Bytes::new()))
        })
    }

    /// Bytes before the message of a body.
    pub(super) fn prefix_bytes(&self) -> usize {
        if self.form == Form::Grpc { PREFIX_BYTES } else { 0 }
    }

    /// The message of a body; `None`: it is not one whole message. Over gRPC it may be plain
    /// although the head names an encoding.
    pub(super) fn unframe(&mut self, body: Bytes) -> Option<Bytes> {
        if self.form != Form::Grpc {
            return Some(body);
        }
        let prefix = Prefix::parse(*body.first_chunk()?).ok()?;
        if !prefix.compressed {
            self.encoding = Encoding::Identity;
        }
        let message = body.slice(PREFIX_BYTES..);
        (message.len() == prefix.len_bytes).then_some(message)
    }
}

pub(super) fn taken(form: Form, partial_success: Option<PartialSuccess>) -> Answer {
    let of_json = |partial: &PartialSuccess| {
        // The field has another name for each signal; a generic reader looks for the count only.
        json!({"partialSuccess": {
            "rejectedSpans": partial.rejected_items.to_string(),
            "errorMessage": partial.error_message,
        }})
    };
    let json = partial_success.as_ref().map_or_else(|| json!({}), of_json);
    let message = ExportResponse { partial_success }.encode_to_vec();
    match form {
        Form::Grpc => {
            let prefix = Prefix { compressed: false, len_bytes: message.len() }.encode();
            let frame = [&prefix.unwrap_or_default()[..], &message].concat();
            let mut trailers = HeaderMap::new();
            Status::ok().write_to(&mut trailers);
            respond(StatusCode::OK, GRPC, frame.into())
                .map(|body| body.with_trailers(ready(Some(Ok(trailers)))).boxed_unsync())
        }
        Form::Protobuf => respond(StatusCode::OK, PROTOBUF, message.into()),
        Form::Json | Form::Lines => respond(StatusCode::OK, JSON, json.to_string().into()),
    }
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
    let mut response = match form {
        Form::Grpc => {
            // gRPC clients read a status in the head only if that ends the stream: no body.
            let mut response = respond(StatusCode::OK, GRPC, Bytes::new());
            status.write_to(response.headers_mut());
            return response;
        }
        Form::Protobuf => {
            let without_delay = Status::new(status.code, &status.message);
            respond(http_status, PROTOBUF, without_delay.encode_details().into())
        }
        Form::Json | Form::Lines => {
            let body = json!({"code": status.code.number(), "message": status.message});
            respond(http_status, JSON, body.to_string().into())
        }
    };
    if let Some(delay) = status.retry_delay {
        let seconds = delay.as_secs_f64().ceil() as u64;
        response.headers_mut().insert("retry-after", HeaderValue::from(seconds));
    }
    response
}

fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let response = Response::builder().status(status).header("content-type", content_type);
    response.body(body).expect("constants")
}
