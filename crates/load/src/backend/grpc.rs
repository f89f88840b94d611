//! OTLP over gRPC, as a backend understands and answers it.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use prost::Message as _;
use sluice_net::grpc::frame::{PREFIX_BYTES, Prefix};
use sluice_net::grpc::{Code, Status};
use sluice_otlp::{Encoding, Signal};

use super::judge::{Body, Form};
use super::serve::{Answer, Format, full, with_content_type};
use crate::export_response::ExportResponse;

pub(super) fn format(head: &Parts) -> Result<Format, Box<Answer>> {
    let unknown = |what| Box::new(refusal(&Status::new(Code::Unimplemented, what)));
    let signal = Signal::from_grpc_path(head.uri.path())
        .ok_or_else(|| unknown("unknown service or method"))?;
    let encoding = head.headers.get("grpc-encoding").map_or(Some("identity"), |v| v.to_str().ok());
    let encoding =
        encoding.and_then(Encoding::from_name).ok_or_else(|| unknown("unknown grpc-encoding"))?;
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

pub(super) fn taken(rejected: Option<(u64, String)>) -> Answer {
    let message = ExportResponse::of(rejected).encode_to_vec();
    let prefix = Prefix { compressed: false, len_bytes: message.len() }.encode();
    let frame = [&prefix.unwrap_or_default()[..], &message].concat();
    let mut trailers = HeaderMap::new();
    Status::ok().write_to(&mut trailers);
    let body = full(frame.into()).with_trailers(std::future::ready(Some(Ok(trailers))));
    with_content_type("application/grpc", Response::new(body.boxed_unsync()))
}

/// Without a body the head ends the stream: gRPC clients take a status in the head for the answer's
/// only then.
pub(super) fn refusal(status: &Status) -> Answer {
    let mut response = Response::new(full(Bytes::new()));
    status.write_to(response.headers_mut());
    with_content_type("application/grpc", response)
}
