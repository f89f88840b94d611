//! The network side of a backend: one HTTP server for OTLP over gRPC and over HTTP, and for log
//! lines as other shippers post them. `grpc` and `http` say how each of the two reads a head and
//! writes an answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use sluice_net::grpc::frame::PREFIX_BYTES;
use tokio::net::TcpStream;

use super::judge::{Body, ReadRequest, Refusal, judge};
use super::{Shared, grpc, http as otlp_http};

const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAMS_LIMIT: u32 = 1024;
const HEADERS_LIMIT_BYTES: u32 = 1 << 20;
/// A reset overtakes what has not been written yet, so it waits until the head of the answer has
/// gone out.
const RESET_AFTER: Duration = Duration::from_millis(1);

/// The error of a body whose stream is to break. Over HTTP/1 that is the connection.
const BROKEN: &str = "reset by an injected fault";

type AnswerBody = UnsyncBoxBody<Bytes, &'static str>;
pub(super) type Answer = Response<AnswerBody>;

/// Serves one connection until it ends; its streams end with it.
pub(super) async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http2()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_LIMIT)
        .max_header_list_size(HEADERS_LIMIT_BYTES);
    // How a connection ends is the client's affair.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    let content_type = head.headers.get("content-type").map_or(&b""[..], HeaderValue::as_bytes);
    let is_grpc = content_type.starts_with(b"application/grpc");
    let understood = if is_grpc { grpc::format(&head) } else { otlp_http::format(&head) };
    let mut format = match understood {
        Ok(format) => format,
        Err(refusal) => return *refusal,
    };
    let prefix_bytes = if is_grpc { PREFIX_BYTES } else { 0 };
    let Some(mut body) = read(body, shared.options.message_limit_bytes, prefix_bytes).await else {
        return broken();
    };
    if is_grpc {
        body = grpc::unframe(body, &mut format.encoding);
    }
    let form = format.form;
    match judge(shared, ReadRequest { format, headers: head.headers, body }).await {
        Err(Refusal::Reset) => broken(),
        Ok(rejected) if is_grpc => grpc::taken(rejected),
        Ok(rejected) => otlp_http::taken(form, rejected),
        Err(Refusal::Status { status, .. }) if is_grpc => grpc::refusal(&status),
        Err(Refusal::Status { status, is_too_large }) => {
            otlp_http::refusal(form, &status, is_too_large)
        }
    }
}

/// Reads a body to its end; `None` where it breaks off. One that is too large is not kept, but read
/// all the same: most clients read no answer before they have sent everything.
async fn read(mut body: Incoming, limit_bytes: usize, prefix_bytes: usize) -> Option<Body> {
    let (mut chunks, mut bytes) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.ok()?.into_data() else { continue };
        bytes += chunk.len();
        if bytes <= limit_bytes + prefix_bytes {
            chunks.push(chunk);
        } else {
            chunks.clear();
        }
    }
    Some(match &chunks[..] {
        _ if bytes > limit_bytes + prefix_bytes => Body::TooLarge(bytes - prefix_bytes),
        [whole] => Body::Whole(whole.clone()),
        chunks => Body::Whole(chunks.concat().into()),
    })
}

/// An answer whose head goes out and whose end never comes.
fn broken() -> Answer {
    let end = async {
        tokio::time::sleep(RESET_AFTER).await;
        Err(BROKEN)
    };
    Response::new(StreamBody::new(stream::once(end)).boxed_unsync())
}

pub(super) fn full(body: Bytes) -> AnswerBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn respond(status: StatusCode, content_type: &'static str, body: AnswerBody) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    response
}
