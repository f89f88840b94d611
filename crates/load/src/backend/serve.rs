//! The network side of a backend: one HTTP server for OTLP over gRPC and over HTTP, and for log
//! lines as other shippers post them. `grpc` and `http` say how each of the two reads a head and
//! writes an answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming as HyperBody;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use sluice_net::grpc::frame::PREFIX_BYTES;
use sluice_otlp::{Encoding, Signal};
use thiserror::Error;
use tokio::net::TcpStream;

use super::judge::{Body, Form, Incoming, Reply, judge};
use super::{Shared, grpc, http as otlp_http};

const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAMS_LIMIT: u32 = 1024;
const HEADERS_LIMIT_BYTES: u32 = 1 << 20;
/// A reset overtakes what has not been written yet, so it waits until the head of the answer has
/// gone out.
const RESET_AFTER: Duration = Duration::from_millis(1);

/// The stream is to break, or has broken. Over HTTP/1 that is the connection.
#[derive(Debug, Error)]
#[error("reset by an injected fault")]
pub(super) struct Broken;

pub(super) type Answer = Response<UnsyncBoxBody<Bytes, Broken>>;

/// The format of a body, as the request's head has it. `signal` is none for log lines, which come
/// on any other path.
pub(super) struct Format {
    pub(super) signal: Option<Signal>,
    pub(super) encoding: Encoding,
    pub(super) form: Form,
}

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

async fn answer(shared: &Shared, request: Request<HyperBody>) -> Answer {
    let (head, body) = request.into_parts();
    let is_grpc = is_grpc(&head);
    let understood = if is_grpc { grpc::format(&head) } else { otlp_http::format(&head) };
    let Format { signal, mut encoding, form } = match understood {
        Ok(format) => format,
        Err(refusal) => return *refusal,
    };
    let prefix_bytes = if is_grpc { PREFIX_BYTES } else { 0 };
    let Ok(mut body) = read(shared, body, prefix_bytes).await else { return broken() };
    if is_grpc {
        (body, encoding) = grpc::unframe(body, encoding);
    }
    let signal = signal.unwrap_or(Signal::Logs);
    let reply =
        judge(shared, Incoming { signal, encoding, form, headers: head.headers, body }).await;
    match reply {
        Reply::Reset => broken(),
        Reply::Taken { rejected } if is_grpc => grpc::taken(rejected),
        Reply::Taken { rejected } => otlp_http::taken(form, rejected),
        Reply::Refused { status, .. } if is_grpc => grpc::refusal(&status),
        Reply::Refused { status, is_too_large } => otlp_http::refusal(form, &status, is_too_large),
    }
}

fn is_grpc(head: &Parts) -> bool {
    let content_type = head.headers.get("content-type").map_or(&b""[..], |value| value.as_bytes());
    content_type.starts_with(b"application/grpc")
}

/// Reads a body to its end. One that is too large is not kept, but read all the same: most clients
/// read no answer before they have sent everything.
async fn read(shared: &Shared, mut body: HyperBody, prefix_bytes: usize) -> Result<Body, Broken> {
    let limit_bytes = shared.options.message_limit_bytes + prefix_bytes;
    let (mut chunks, mut bytes) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.map_err(|_| Broken)?.into_data() else { continue };
        bytes += chunk.len();
        if let Some(rate) = shared.faults.current().read_bytes_per_s {
            tokio::time::sleep(Duration::from_secs_f64(chunk.len() as f64 / rate.max(1) as f64))
                .await;
        }
        if bytes <= limit_bytes {
            chunks.push(chunk);
        } else {
            chunks.clear();
        }
    }
    Ok(match &chunks[..] {
        _ if bytes > limit_bytes => Body::TooLarge { bytes: bytes - prefix_bytes },
        [whole] => Body::Whole(whole.clone()),
        chunks => Body::Whole(chunks.concat().into()),
    })
}

/// An answer whose head goes out and whose end never comes.
fn broken() -> Answer {
    let end = async {
        tokio::time::sleep(RESET_AFTER).await;
        Err(Broken)
    };
    Response::new(StreamBody::new(stream::once(end)).boxed_unsync())
}

pub(super) fn full(body: Bytes) -> UnsyncBoxBody<Bytes, Broken> {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn with_content_type<T>(value: &'static str, mut response: Response<T>) -> Response<T> {
    response.headers_mut().insert("content-type", HeaderValue::from_static(value));
    response
}
