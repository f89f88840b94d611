//! OTLP over gRPC, as a backend understands and answers it.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response};
use hyper::body::Frame;
use prost::Message as _;
use sluice_net::grpc::Status;
use sluice_net::grpc::frame::{PREFIX_BYTES, Prefix};
use sluice_otlp::{Encoding, Signal};

use super::judge::{Body, Form, Reply};
use super::serve::{Answer, Format, frames};
use crate::export_response::ExportResponse;
use crate::status::Code;

pub(super) fn format(head: &Parts) -> Result<Format, Box<Answer>> {
    let unknown = |what: &str| Box::new(refused(&Code::UNIMPLEMENTED.with(what, None)));
    let signal = Signal::from_grpc_path(head.uri.path()).ok_or_else(|| unknown("unknown service or method"))?;
    let encoding = head.headers.get("grpc-encoding").and_then(|value| value.to_str().ok()).unwrap_or("identity");
    let encoding = Encoding::from_name(encoding).ok_or_else(|| unknown("unknown grpc-encoding"))?;
    Ok(Format { signal: Some(signal), encoding, form: Form::Protobuf })
}

/// The one message of a body, and whether it is encoded as the head says.
pub(super) fn unframe(body: Body, encoding: Encoding) -> (Body, Encoding) {
    let Body::Whole(frame) = body else { return (body, encoding) };
    let prefix = frame.first_chunk::<PREFIX_BYTES>().and_then(|prefix| Prefix::parse(*prefix).ok());
    match prefix {
        Some(prefix) if prefix.len_bytes == frame.len() - PREFIX_BYTES => {
            let encoding = if prefix.compressed { encoding } else { Encoding::Identity };
            (Body::Whole(frame.slice(PREFIX_BYTES..)), encoding)
        }
        _ => (Body::Malformed, encoding),
    }
}

pub(super) fn answer(reply: Reply) -> Answer {
    match reply {
        Reply::Taken { rejected } => {
            let message = ExportResponse::of(rejected).encode_to_vec();
            let prefix = Prefix { compressed: false, len_bytes: message.len() }.encode().unwrap_or_default();
            let mut trailers = HeaderMap::new();
            Status::ok().write_to(&mut trailers);
            let frame = Bytes::from([&prefix[..], &message].concat());
            with_content_type(frames([Frame::data(frame), Frame::trailers(trailers)]))
        }
        Reply::Status { code, message, retry_delay } => refused(&code.with(message, retry_delay)),
        Reply::TooLarge { message } => refused(&Code::RESOURCE_EXHAUSTED.with(message, None)),
        Reply::Reset => refused(&Code::INTERNAL.with("reset", None)),
    }
}

fn refused(status: &Status) -> Answer {
    let mut answer = with_content_type(frames([]));
    status.write_to(answer.headers_mut());
    answer
}

fn with_content_type<T>(body: T) -> Response<T> {
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}
