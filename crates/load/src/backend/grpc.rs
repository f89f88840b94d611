//! OTLP over gRPC, as a backend understands and answers it.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use prost::Message as _;
use sluice_net::grpc::frame::{PREFIX_BYTES, Prefix};
use sluice_net::grpc::{Code, Status};
use sluice_otlp::{Encoding, Signal};

use super::judge::{Body, Form, Format};
use super::serve::{Answer, full, respond};
use crate::export_response::{ExportResponse, PartialSuccess};

const GRPC: &str = "application/grpc";

pub(super) fn format(head: &Parts) -> Result<Format, Box<Answer>> {
    let unknown = |what| Box::new(refusal(&Status::new(Code::Unimplemented, what)));
    let signal = Signal::from_grpc_path(head.uri.path())
        .ok_or_else(|| unknown("unknown service or method"))?;
    let encoding = head.headers.get("grpc-encoding").map_or(Some("identity"), |v| v.to_str().ok());
    let encoding =
        encoding.and_then(Encoding::from_name).ok_or_else(|| unknown("unknown grpc-encoding"))?;
    Ok(Format { signal, encoding, form: Form::Protobuf })
}

/// The one message of a body. It may be plain although the head names an encoding.
pub(super) fn unframe(body: Body, encoding: &mut Encoding) -> Body {
    let Body::Whole(frame) = body else { return body };
    let prefix = frame.first_chunk::<PREFIX_BYTES>().and_then(|prefix| Prefix::parse(*prefix).ok());
    match prefix {
        Some(prefix) if prefix.len_bytes == frame.len() - PREFIX_BYTES => {
            if !prefix.compressed {
                *encoding = Encoding::Identity;
            }
            Body::Whole(frame.slice(PREFIX_BYTES..))
        }
        _ => Body::Malformed,
    }
}

pub(super) fn taken(partial_success: Option<PartialSuccess>) -> Answer {
    let message = ExportResponse { partial_success }.encode_to_vec();
    let prefix = Prefix { compressed: false, len_bytes: message.len() }.encode();
    let frame = [&prefix.unwrap_or_default()[..], &message].concat();
    let mut trailers = HeaderMap::new();
    Status::ok().write_to(&mut trailers);
    let body = full(frame.into()).with_trailers(std::future::ready(Some(Ok(trailers))));
    respond(StatusCode::OK, GRPC, body.boxed_unsync())
}

/// Without a body the head ends the stream: gRPC clients take a status in the head for the answer's
/// only then.
pub(super) fn refusal(status: &Status) -> Answer {
    let mut response = respond(StatusCode::OK, GRPC, full(Bytes::new()));
    status.write_to(response.headers_mut());
    response
}
