//! OTLP over HTTP/1.1: one connection a worker, kept alive.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::answer::{Answer, Ending, rejected_items};

const RESPONSE_LIMIT_BYTES: usize = 1 << 20;

pub(crate) struct HttpConnection {
    target: SocketAddr,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl HttpConnection {
    pub(crate) fn to(target: SocketAddr) -> Self {
        HttpConnection { target, sender: None }
    }

    async fn ready(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, String> {
        let alive = match self.sender.as_mut() {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !alive {
            let stream = TcpStream::connect(self.target)
                .await
                .map_err(|error| format!("connecting to {}: {error}", self.target))?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let (sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
            tokio::spawn(async move {
                // How it ends shows at the request, which counts it.
                let _ = connection.await;
            });
            self.sender = Some(sender);
        }
        self.sender.as_mut().ok_or_else(|| "not connected".to_owned())
    }

    pub(crate) async fn call(&mut self, request: Request<()>, body: Bytes) -> Answer {
        let outcome = async {
            let sender = self.ready().await?;
            let response =
                sender.send_request(request.map(|()| Full::new(body))).await.map_err(|error| error.to_string())?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, RESPONSE_LIMIT_BYTES).collect().await.map_err(|error| error.to_string())?;
            Ok::<_, String>((head, body.to_bytes()))
        };
        match outcome.await {
            Ok((head, body)) => {
                let status = head.status.as_u16();
                let retry_after = head.headers.get("retry-after").and_then(|value| value.to_str().ok());
                Answer {
                    ending: Ending::Http(status),
                    rejected_items: if status == 200 { rejected_items(&body) } else { 0 },
                    retry_delay: retry_after.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs),
                    message: String::from_utf8_lossy(&body[..body.len().min(256)]).into_owned(),
                }
            }
            Err(message) => {
                self.sender = None;
                Answer::failure(Ending::Transport, message)
            }
        }
    }
}
