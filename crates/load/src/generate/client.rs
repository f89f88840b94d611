//! Sends stamped requests over gRPC or HTTP/1 and reads the answers. gRPC uses `h2` directly:
//! hyper's client above it would make small requests dearer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use http::response::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message as _;
use sluice_net::grpc::frame::PREFIX_BYTES;
use sluice_net::grpc::{Code, Status};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::backend::protocol::ExportResponse;

const WINDOW_BYTES: u32 = 1 << 20;
/// Limit of an export response, which usually has a few bytes.
const RESPONSE_LIMIT_BYTES: usize = 1 << 20;

type HttpClient = HyperClient<HttpConnector, Full<Bytes>>;

/// One connection, made again when it breaks.
pub(super) enum Client {
    /// Many workers share it.
    Grpc(GrpcConnection),
    Http(HttpClient),
}

impl Client {
    pub(super) fn grpc(target: SocketAddr) -> Self {
        Client::Grpc(GrpcConnection { target, kept: Mutex::default() })
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
            Client::Grpc(connection) => {
                let send = || connection.unary(head.clone(), frame.clone());
                match send().await {
                    // As gRPC clients do: the server has not looked at the request.
                    Err(error) if is_unprocessed(&error) => send().await,
                    answered => answered,
                }
            }
            Client::Http(client) => {
                exchange(client, head.map(|()| Full::new(frame.slice(PREFIX_BYTES..)))).await
            }
        };
        // Clients wrap an error several times; the innermost says what happened.
        let broken =
            |error: anyhow::Error| Answer::new(Ending::Transport, error.root_cause().to_string());
        answered.unwrap_or_else(broken)
    }
}

fn is_unprocessed(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<h2::Error>();
    error.is_some_and(|error| error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

async fn exchange(client: &HttpClient, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
    let (head, body) = client.request(request).await?.into_parts();
    let body = Limited::new(body, RESPONSE_LIMIT_BYTES).collect().await;
    let body = body.map_err(|error| anyhow!(error))?.to_bytes();
    Ok(Answer::from_http(&head, &body))
}

pub(super) struct GrpcConnection {
    target: SocketAddr,
    kept: Mutex<Option<SendRequest<Bytes>>>,
}

impl GrpcConnection {
    /// A handle that may open a stream now; connects where there is no live connection.
    async fn ready(&self) -> anyhow::Result<SendRequest<Bytes>> {
        let mut kept = self.kept.lock().await;
        if let Some(sender) = kept.clone()
            && let Ok(sender) = sender.ready().await
        {
            return Ok(sender);
        }
        let stream = TcpStream::connect(self.target).await;
        let stream = stream.map_err(|error| anyhow!("connecting to {}: {error}", self.target))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = h2::client::Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .enable_push(false)
            .handshake(stream)
            .await?;
        // Its error shows at the streams, which count it.
        tokio::spawn(connection);
        *kept = Some(sender.clone());
        Ok(sender.ready().await?)
    }

    async fn unary(&self, head: Request<()>, frame: Bytes) -> anyhow::Result<Answer> {
        let (response, mut stream) = self.ready().await?.send_request(head, false)?;
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
        Ok(Answer::from_grpc(&head, answer.trailers().await?, &body))
    }
}

/// Bytes of an HTTP answer's body that go into a message.
const MESSAGE_LIMIT_BYTES: usize = 256;

/// The ending of one attempt, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    Grpc(Code),
    Http(u16),
    /// No connection, or it broke before an answer.
    Transport,
    /// No answer within the request's timeout.
    TimedOut,
}

impl Ending {
    pub fn is_ok(self) -> bool {
        matches!(self, Ending::Grpc(Code::Ok) | Ending::Http(200..=299))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) ending: Ending,
    /// Items that an accepted request's partial success names as rejected.
    pub(super) rejected_items: u64,
    /// RetryInfo or Retry-After.
    pub(super) retry_delay: Option<Duration>,
    pub(super) message: String,
}

/// Codes whose requests may be sent again. RESOURCE_EXHAUSTED is retryable with RetryInfo only.
const RETRYABLE: [Code; 6] = [
    Code::Cancelled,
    Code::DeadlineExceeded,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unavailable,
    Code::DataLoss,
];

impl Answer {
    /// Without rejected items and without a delay.
    pub(super) fn new(ending: Ending, message: String) -> Self {
        Answer { ending, rejected_items: 0, retry_delay: None, message }
    }

    fn from_grpc(head: &Parts, trailers: Option<HeaderMap>, body: &[u8]) -> Self {
        if head.status != StatusCode::OK {
            return Answer::new(Ending::Http(head.status.as_u16()), String::new());
        }
        // An answer without a message has its status in the head.
        let Some(status) = Status::read_from(trailers.as_ref().unwrap_or(&head.headers)) else {
            return Answer::new(Ending::Grpc(Code::Unknown), String::new());
        };
        let message = body.get(PREFIX_BYTES..).filter(|_| status.is_ok());
        Answer {
            ending: Ending::Grpc(status.code),
            rejected_items: message.map_or(0, rejected_items),
            retry_delay: status.retry_delay,
            message: status.message,
        }
    }

    fn from_http(head: &Parts, body: &[u8]) -> Self {
        let text = &body[..body.len().min(MESSAGE_LIMIT_BYTES)];
        Answer {
            ending: Ending::Http(head.status.as_u16()),
            rejected_items: if head.status == StatusCode::OK { rejected_items(body) } else { 0 },
            retry_delay: sluice_net::client::retry_after(&head.headers),
            message: String::from_utf8_lossy(text).into_owned(),
        }
    }

    /// Whether an OTLP client may send the request again (specification, "Failures").
    pub(super) fn is_retryable(&self) -> bool {
        match self.ending {
            Ending::Grpc(Code::ResourceExhausted) => self.retry_delay.is_some(),
            Ending::Grpc(code) => RETRYABLE.contains(&code),
            Ending::Http(status) => matches!(status, 429 | 502 | 503 | 504),
            Ending::Transport | Ending::TimedOut => true,
        }
    }

    /// True where the server may have taken the request although no answer says so.
    pub(super) fn fate_is_unknown(&self) -> bool {
        matches!(self.ending, Ending::Transport | Ending::TimedOut)
    }
}

/// Items that an encoded answer names as rejected. A malformed answer names none.
fn rejected_items(response: &[u8]) -> u64 {
    let partial = ExportResponse::decode(response).ok().and_then(|answer| answer.partial_success);
    partial.map_or(0, |partial| partial.rejected_items.max(0).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_is_retried_only_with_retry_info() {
        let answer = |code, retry_delay| Answer {
            retry_delay,
            ..Answer::new(Ending::Grpc(code), String::new())
        };
        let delay = Some(Duration::ZERO);
        assert!(!answer(Code::ResourceExhausted, None).is_retryable());
        assert!(answer(Code::ResourceExhausted, delay).is_retryable());
        assert!(answer(Code::Unavailable, None).is_retryable());
        assert!(!answer(Code::InvalidArgument, delay).is_retryable());
    }
}
