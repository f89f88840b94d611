//! Sends requests as they were stamped, over gRPC or over HTTP/1, and reads the answers. gRPC goes
//! by `h2` itself: hyper's client above it would make small requests dearer.

use std::error::Error;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::answer::Answer;
use super::template::PREFIX_LEN;

const WINDOW_BYTES: u32 = 1 << 20;
/// An export response is a few bytes; a server that sends more than this is not believed.
const RESPONSE_LIMIT_BYTES: usize = 1 << 20;

/// One connection, made again when it breaks.
pub(crate) enum Client {
    /// Many workers share it.
    Grpc(GrpcConnection),
    Http(HyperClient<HttpConnector, Full<Bytes>>),
}

pub(crate) struct GrpcConnection {
    target: SocketAddr,
    sender: Mutex<Option<SendRequest<Bytes>>>,
}

/// An answer that was read to its end.
pub(super) struct Response {
    pub(super) head: http::response::Parts,
    pub(super) trailers: Option<http::HeaderMap>,
    pub(super) body: Bytes,
}

impl Client {
    pub(crate) fn grpc(target: SocketAddr) -> Self {
        Client::Grpc(GrpcConnection { target, sender: Mutex::default() })
    }

    pub(crate) fn http() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client =
            HyperClient::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build(connector);
        Client::Http(client)
    }

    /// Sends a frame: a message behind its gRPC prefix, which HTTP leaves out.
    pub(crate) async fn call(&self, head: Request<()>, frame: &Bytes) -> Answer {
        let answered = match self {
            Client::Grpc(connection) => {
                connection.exchange(head, frame.clone()).await.map(Answer::from_grpc)
            }
            Client::Http(client) => {
                let request = head.map(|()| Full::new(frame.slice(PREFIX_LEN..)));
                exchange(client, request).await.map(Answer::from_http)
            }
        };
        answered.unwrap_or_else(Answer::broken)
    }
}

/// Clients wrap an error several times; the innermost says what happened.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    chain.last().map(ToString::to_string).unwrap_or_default()
}

async fn exchange(
    client: &HyperClient<HttpConnector, Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Response, String> {
    let response = client.request(request).await.map_err(|error| innermost(&error))?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, RESPONSE_LIMIT_BYTES).collect().await;
    let body = body.map_err(|error| innermost(&*error))?.to_bytes();
    Ok(Response { head, trailers: None, body })
}

impl GrpcConnection {
    async fn exchange(&self, head: Request<()>, frame: Bytes) -> Result<Response, String> {
        let sender = self.ready().await?;
        let answered = unary(sender, head, frame).await;
        let response = answered.map_err(|error| error.to_string())?;
        response.ok_or_else(|| "an export response of more than 1 MiB".to_owned())
    }

    /// A handle that may open a stream now; connects where there is no live connection.
    async fn ready(&self) -> Result<SendRequest<Bytes>, String> {
        let mut kept = self.sender.lock().await;
        if let Some(sender) = kept.clone()
            && let Ok(sender) = sender.ready().await
        {
            return Ok(sender);
        }
        let stream = TcpStream::connect(self.target)
            .await
            .map_err(|error| format!("connecting to {}: {error}", self.target))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (sender, connection) = h2::client::Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(|error| error.to_string())?;
        // How it ends shows at the streams, which count it.
        tokio::spawn(connection);
        *kept = Some(sender.clone());
        Ok(sender)
    }
}

/// `None`: the answer is too long.
async fn unary(
    sender: SendRequest<Bytes>,
    head: Request<()>,
    frame: Bytes,
) -> Result<Option<Response>, h2::Error> {
    let (response, mut stream) = sender.ready().await?.send_request(head, false)?;
    stream.send_data(frame, true)?;
    let (head, mut answer) = response.await?.into_parts();
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.data().await {
        let chunk = chunk?;
        answer.flow_control().release_capacity(chunk.len())?;
        if body.len() + chunk.len() > RESPONSE_LIMIT_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    let trailers = answer.trailers().await?;
    Ok(Some(Response { head, trailers, body: body.freeze() }))
}
