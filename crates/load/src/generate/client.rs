//! Sends requests as they were stamped, over gRPC or over HTTP/1, and reads the answers. gRPC goes
//! by `h2` itself: hyper's client above it would make small requests dearer.

use std::net::SocketAddr;

use anyhow::{anyhow, ensure};
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use sluice_net::grpc::frame::PREFIX_BYTES;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::answer::{Answer, Ending};

const WINDOW_BYTES: u32 = 1 << 20;
/// An export response is a few bytes; a server that sends more than this is not believed.
const RESPONSE_LIMIT_BYTES: usize = 1 << 20;

/// One connection, made again when it breaks.
pub(super) enum Client {
    /// Many workers share it.
    Grpc {
        target: SocketAddr,
        sender: Mutex<Option<SendRequest<Bytes>>>,
    },
    Http(HyperClient<HttpConnector, Full<Bytes>>),
}

/// An answer that was read to its end.
pub(super) struct Response {
    pub(super) head: http::response::Parts,
    pub(super) trailers: Option<http::HeaderMap>,
    pub(super) body: Bytes,
}

impl Client {
    pub(super) fn grpc(target: SocketAddr) -> Self {
        Client::Grpc { target, sender: Mutex::default() }
    }

    pub(super) fn http() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let mut builder = HyperClient::builder(TokioExecutor::new());
        Client::Http(builder.pool_max_idle_per_host(1).build(connector))
    }

    /// Sends a frame: a message behind its gRPC prefix, which HTTP leaves out.
    pub(super) async fn call(&self, head: Request<()>, frame: &Bytes) -> Answer {
        let answered = match self {
            Client::Grpc { target, sender } => {
                unary(*target, sender, head, frame.clone()).await.map(Answer::from_grpc)
            }
            Client::Http(client) => {
                let request = head.map(|()| Full::new(frame.slice(PREFIX_BYTES..)));
                exchange(client, request).await.map(Answer::from_http)
            }
        };
        // Clients wrap an error several times; the innermost says what happened.
        let broken =
            |error: anyhow::Error| Answer::new(Ending::Transport, error.root_cause().to_string());
        answered.unwrap_or_else(broken)
    }
}

async fn exchange(
    client: &HyperClient<HttpConnector, Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<Response> {
    let (head, body) = client.request(request).await?.into_parts();
    let body = Limited::new(body, RESPONSE_LIMIT_BYTES).collect().await;
    let body = body.map_err(|error| anyhow!(error))?.to_bytes();
    Ok(Response { head, trailers: None, body })
}

/// A handle that may open a stream now; connects where there is no live connection.
async fn ready(
    target: SocketAddr,
    kept: &Mutex<Option<SendRequest<Bytes>>>,
) -> anyhow::Result<SendRequest<Bytes>> {
    let mut kept = kept.lock().await;
    if let Some(sender) = kept.clone()
        && let Ok(sender) = sender.ready().await
    {
        return Ok(sender);
    }
    let stream = TcpStream::connect(target).await;
    let stream = stream.map_err(|error| anyhow!("connecting to {target}: {error}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .enable_push(false)
        .handshake(stream)
        .await?;
    // How it ends shows at the streams, which count it.
    tokio::spawn(connection);
    *kept = Some(sender.clone());
    Ok(sender.ready().await?)
}

async fn unary(
    target: SocketAddr,
    kept: &Mutex<Option<SendRequest<Bytes>>>,
    head: Request<()>,
    frame: Bytes,
) -> anyhow::Result<Response> {
    let mut sender = ready(target, kept).await?;
    let (response, mut stream) = sender.send_request(head, false)?;
    stream.send_data(frame, true)?;
    let (head, mut answer) = response.await?.into_parts();
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.data().await {
        let chunk = chunk?;
        answer.flow_control().release_capacity(chunk.len())?;
        let is_small = body.len() + chunk.len() <= RESPONSE_LIMIT_BYTES;
        ensure!(is_small, "an export response of more than 1 MiB");
        body.extend_from_slice(&chunk);
    }
    let trailers = answer.trailers().await?;
    Ok(Response { head, trailers, body: body.freeze() })
}
