//! OTLP over HTTP/1.1: one connection a worker, kept alive.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::response::Parts;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::answer::{Answer, Ending, rejected_items};
use crate::http_get::innermost;

const RESPONSE_LIMIT_BYTES: usize = 1 << 20;
/// Of an answer's body, in messages.
const MESSAGE_LIMIT_BYTES: usize = 256;

pub(crate) struct HttpConnection {
    client: Client<HttpConnector, Full<Bytes>>,
}

impl HttpConnection {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        HttpConnection { client: Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build(connector) }
    }

    pub(crate) async fn call(&self, request: Request<()>, body: Bytes) -> Answer {
        match self.exchange(request, body).await {
            Ok((head, body)) => read(&head, &body),
            Err(message) => Answer::failure(Ending::Transport, message),
        }
    }

    async fn exchange(&self, request: Request<()>, body: Bytes) -> Result<(Parts, Bytes), String> {
        let response =
            self.client.request(request.map(|()| Full::new(body))).await.map_err(|error| innermost(&error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_LIMIT_BYTES).collect().await.map_err(|error| innermost(&*error))?;
        Ok((head, body.to_bytes()))
    }
}

fn read(head: &Parts, body: &[u8]) -> Answer {
    let status = head.status.as_u16();
    let retry_after = head.headers.get("retry-after").and_then(|value| value.to_str().ok());
    Answer {
        ending: Ending::Http(status),
        rejected_items: if status == 200 { rejected_items(body) } else { 0 },
        retry_delay: retry_after.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs),
        message: String::from_utf8_lossy(&body[..body.len().min(MESSAGE_LIMIT_BYTES)]).into_owned(),
    }
}
