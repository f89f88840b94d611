//! GET over HTTP/1.1 without TLS: pages of metrics, readiness, Prometheus.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

/// Clients wrap an error several times; the innermost says what happened.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// The status and the body, which is at most `limit_bytes` long, or the reason why there is none.
/// The connection is closed afterwards.
pub(crate) async fn get(
    url: &str,
    limit_bytes: usize,
    within: Duration,
) -> Result<(StatusCode, Bytes), String> {
    let exchange = async {
        let url = url.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let response = client.get(url).await.map_err(|error| innermost(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), limit_bytes).collect().await;
        Ok((status, body.map_err(|error| innermost(&*error))?.to_bytes()))
    };
    let answer = timeout(within, exchange).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", within.as_secs())))
}
