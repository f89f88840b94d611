//! The network side of a backend: one HTTP server for everything that `protocol` understands.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;

use super::Shared;
use super::judge::{Refusal, judge};
use super::protocol::{Answer, Format, refusal, taken};

const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAMS_LIMIT: u32 = 1024;
const HEADERS_LIMIT_BYTES: u32 = 1 << 20;
/// A reset overtakes unwritten data, so it waits until the answer's head has gone out.
const RESET_AFTER: Duration = Duration::from_millis(1);

/// The error of a body that breaks its stream, over HTTP/1 its connection.
const BROKEN: &str = "reset by an injected fault";

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
    let format = match Format::of(&head) {
        Ok(format) => format,
        Err(refusal) => return *refusal,
    };
    let prefix_bytes = format.prefix_bytes();
    let limit_bytes = shared.options.message_limit_bytes + prefix_bytes;
    let Some(body) = read(body, limit_bytes).await else { return broken() };
    let body = body.map_err(|bytes| bytes - prefix_bytes);
    match judge(shared, format, head.headers, body).await {
        Ok(rejected) => taken(format.form, rejected),
        Err(Refusal::Status(status)) => refusal(format.form, &status, false),
        Err(Refusal::TooLarge(status)) => refusal(format.form, &status, true),
        Err(Refusal::Reset) => broken(),
        Err(Refusal::Died) => std::future::pending().await,
    }
}

/// Reads a body to its end; `None`: it broke off. Of a body that is too large only the length is
/// kept, but it is read: most clients read no answer before they have sent everything.
async fn read(mut body: Incoming, limit_bytes: usize) -> Option<Result<Bytes, usize>> {
    let (mut chunks, mut bytes) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.ok()?.into_data() else { continue };
        bytes += chunk.len();
        if bytes <= limit_bytes {
            chunks.push(chunk);
        } else {
            chunks.clear();
        }
    }
    Some(match &chunks[..] {
        _ if bytes > limit_bytes => Err(bytes),
        [whole] => Ok(whole.clone()),
        chunks => Ok(chunks.concat().into()),
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
