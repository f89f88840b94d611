//! GET over HTTP/1.1 without TLS: pages of metrics, readiness, Prometheus.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use thiserror::Error;
use tokio::time::timeout;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum GetError {
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("{0}")]
    Failed(String),
}

/// Clients wrap an error several times; the innermost says what happened.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// The status and the body, which is at most `limit_bytes` long. The connection is closed afterwards.
pub(crate) async fn get(uri: Uri, limit_bytes: usize, within: Duration) -> Result<(StatusCode, Bytes), GetError> {
    let exchange = async {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let response = client.get(uri).await.map_err(|error| GetError::Failed(innermost(&error)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), limit_bytes).collect().await;
        Ok((status, body.map_err(|error| GetError::Failed(innermost(&*error)))?.to_bytes()))
    };
    timeout(within, exchange).await.unwrap_or(Err(GetError::TimedOut(within)))
}
