//! Unary OTLP calls over HTTP/2, without a gRPC library: the frame is sent as it was stamped.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use sluice_net::grpc::Status;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::answer::{Answer, Ending, rejected_items};
use super::template::PREFIX_LEN;
use crate::status::Code;

const WINDOW_BYTES: u32 = 1 << 20;
/// An export response is a few bytes; a server that sends more than this is not believed.
const RESPONSE_LIMIT_BYTES: usize = 1 << 20;

/// One HTTP/2 connection, made again when it breaks, that many workers share.
pub(crate) struct GrpcConnection {
    target: SocketAddr,
    sender: Mutex<Option<SendRequest<Bytes>>>,
}

impl GrpcConnection {
    pub(crate) fn to(target: SocketAddr) -> Self {
        GrpcConnection { target, sender: Mutex::new(None) }
    }

    /// A handle that may open a stream now; connects where there is no live connection.
    async fn ready(&self) -> Result<SendRequest<Bytes>, String> {
        let kept = self.sender.lock().await.clone();
        if let Some(sender) = kept
            && let Ok(sender) = sender.ready().await
        {
            return Ok(sender);
        }
        let mut kept = self.sender.lock().await;
        // Another worker may have connected meanwhile.
        if let Some(sender) = kept.clone()
            && let Ok(sender) = sender.ready().await
        {
            return Ok(sender);
        }
        let sender = kept.insert(connect(self.target).await?).clone();
        drop(kept);
        sender.ready().await.map_err(|error| error.to_string())
    }

    pub(crate) async fn call(&self, request: Request<()>, frame: Bytes) -> Answer {
        let sender = match self.ready().await {
            Ok(sender) => sender,
            Err(message) => return Answer::failure(Ending::Transport, message),
        };
        match exchange(sender, request, frame).await {
            Ok(answer) => answer,
            Err(error) => Answer::failure(Ending::Transport, error.to_string()),
        }
    }
}

async fn connect(target: SocketAddr) -> Result<SendRequest<Bytes>, String> {
    let stream = TcpStream::connect(target).await.map_err(|error| format!("connecting to {target}: {error}"))?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .enable_push(false)
        .handshake(stream)
        .await
        .map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        // How it ends shows at the streams, which count it.
        let _ = connection.await;
    });
    Ok(sender)
}

async fn exchange(mut sender: SendRequest<Bytes>, request: Request<()>, frame: Bytes) -> Result<Answer, h2::Error> {
    let (response, mut stream) = sender.send_request(request, false)?;
    stream.send_data(frame, true)?;
    let (head, mut body) = response.await?.into_parts();
    if head.status != http::StatusCode::OK {
        return Ok(Answer::failure(Ending::Http(head.status.as_u16()), String::new()));
    }
    if head.headers.contains_key("grpc-status") {
        return Ok(from_trailers(&head.headers, &[]));
    }
    let mut received = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        if received.len() + chunk.len() > RESPONSE_LIMIT_BYTES {
            return Ok(Answer::failure(Ending::Transport, "an export response of more than 1 MiB".to_owned()));
        }
        received.extend_from_slice(&chunk);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    Ok(from_trailers(&trailers, &received))
}

fn from_trailers(trailers: &HeaderMap, body: &[u8]) -> Answer {
    let Some(status) = Status::read_from(trailers) else {
        return Answer::failure(Ending::Grpc(Code::UNKNOWN), String::new());
    };
    let rejected_items = if status.is_ok() { rejected_items(body.get(PREFIX_LEN..).unwrap_or_default()) } else { 0 };
    Answer {
        ending: Ending::Grpc(Code(u32::from(status.code.number()))),
        rejected_items,
        retry_delay: status.retry_delay,
        message: status.message,
    }
}
