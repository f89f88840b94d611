//! OTLP over gRPC.

use std::future::ready;
use std::net::SocketAddr;

use futures_util::FutureExt;
use futures_util::future::Either;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use sluice_net::compress::Packing;
use sluice_net::grpc::frame::EMPTY_MESSAGE;
use sluice_net::grpc::status::GRPC_STATUS;
use sluice_net::grpc::{Code, Status};
use sluice_net::headers;
use sluice_net::server::{Handler, ReplyBody, RequestBody, reply};
use sluice_otlp::{Encoding, Signal};

use super::counters::Transport;
use super::ingest::{Form, Format, Incoming, Ingest, media_type};
use super::refusal::{Refused, RefusedReason};
use super::senders::Sender;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const OK: HeaderValue = HeaderValue::from_static("0");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const ACCEPTED_ENCODINGS: HeaderValue = HeaderValue::from_static("identity,gzip,zstd,snappy");

pub(super) struct GrpcHandler {
    pub(super) ingest: Ingest,
}

impl GrpcHandler {
    fn incoming<'a>(
        &self,
        sender: &'a Sender,
        request: Request<RequestBody>,
    ) -> Result<Incoming<'a>, Box<Response<ReplyBody>>> {
        if request.method() != Method::POST {
            self.ingest.refuse_unknown(sender, "its HTTP method is not POST");
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return Err(Box::new(response));
        }
        if !is_grpc(request.headers()) {
            self.ingest.refuse_unknown(sender, "its content-type is not application/grpc");
            return Err(Box::new(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE)));
        }
        let Some(signal) = Signal::from_grpc_path(request.uri().path()) else {
            let path: String = request.uri().path().chars().take(200).collect();
            let message = format!("there is no method {path}");
            self.ingest.refuse_unknown(sender, &message);
            return Err(Box::new(trailers_only(&Status::new(Code::Unimplemented, message))));
        };
        let (transport, form) = (Transport::Grpc, Form::Otlp(Format::Protobuf));
        Ok(Incoming { transport, signal, form, sender, request })
    }
}

impl Handler for GrpcHandler {
    type Connection = Sender;

    fn connected(&self, peer: Option<SocketAddr>) -> Sender {
        Sender::new(peer)
    }

    fn handle(
        &self,
        sender: &Sender,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<ReplyBody>> + Send {
        match self.incoming(sender, request) {
            Ok(incoming) => Either::Left(
                self.ingest.receive(incoming, message_packing).map(|told| answer(told.map(|_| ()))),
            ),
            Err(response) => Either::Right(ready(*response)),
        }
    }

    fn refuse_for_memory(&self, request: Request<RequestBody>) -> Response<ReplyBody> {
        let refused = Refused::without_memory();
        if let Some(signal) = Signal::from_grpc_path(request.uri().path()) {
            self.ingest.refuse(None, signal, Transport::Grpc, &refused, 0);
        }
        trailers_only(&refused.to_status())
    }
}

/// `application/grpc` and its subtype for protobuf, which is the only one here.
fn is_grpc(headers: &HeaderMap) -> bool {
    let known: [&[u8]; 2] = [b"application/grpc", b"application/grpc+proto"];
    media_type(headers).is_some_and(|it| known.iter().any(|known| it.eq_ignore_ascii_case(known)))
}

fn message_packing(headers: &HeaderMap) -> Result<Packing, Refused> {
    let differ = |_| Refused::invalid("there are several grpc-encoding headers that differ");
    let value = headers::sole(headers, &GRPC_ENCODING).map_err(differ)?;
    let Some(value) = value else { return Ok(Encoding::Identity.into()) };
    let name = String::from_utf8_lossy(value.as_bytes());
    Encoding::from_name(name.trim()).map(Packing::Known).ok_or_else(|| {
        let name: String = name.chars().take(40).collect();
        let there_are = "there are identity, gzip, zstd, snappy";
        let message = format!("grpc-encoding `{name}` is not supported; {there_are}");
        Refused::new(RefusedReason::UnsupportedEncoding, message)
    })
}

fn answer(received: Result<(), Refused>) -> Response<ReplyBody> {
    let Err(refused) = received else { return success() };
    let mut response = trailers_only(&refused.to_status());
    if refused.reason == RefusedReason::UnsupportedEncoding {
        response.headers_mut().insert(GRPC_ACCEPT_ENCODING, ACCEPTED_ENCODINGS);
    }
    response
}

/// The answer to every accepted request: an empty message, which says that nothing was rejected.
fn success() -> Response<ReplyBody> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, OK);
    let mut response = Response::new(ReplyBody::with_trailers(EMPTY_MESSAGE, trailers));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

fn trailers_only(status: &Status) -> Response<ReplyBody> {
    let mut response = reply(StatusCode::OK, GRPC, "");
    status.write_to(response.headers_mut());
    response
}

fn plain(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::default());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: a call that waits takes no more than 1.5 KiB of the 4 KiB that its stream is
    /// charged with; h2 and the connection need the rest. An `async fn` stores each argument twice,
    /// and so do its callers.
    #[test]
    fn a_call_that_waits_takes_little_memory() {
        type Handle<F> = fn(&'static GrpcHandler, &'static Sender, Request<RequestBody>) -> F;
        fn size_of_call<F>(_: Handle<F>) -> usize {
            size_of::<F>()
        }
        let size = size_of_call(|handler, sender, request| handler.handle(sender, request));
        assert!(size <= 1536, "{size} bytes");
    }
}
