//! Requests to an HTTP server, InfluxDB or Sluice.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use http::{HeaderMap, Uri};
use sluice_net::client::{Answer, ConnectOptions, HttpClient, HttpOptions, Origin};
use sluice_net::tls::ClientTlsOptions;

/// Connecting, and an answer, may take this long.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(120);
const ANSWER_LIMIT_BYTES: usize = 64 << 20;

pub(super) struct Server {
    client: HttpClient,
    /// Its URL without a slash at its end.
    base: String,
}

impl Server {
    /// # Errors
    /// The URL cannot be used; `option` is its option.
    pub(super) fn new(option: &str, url: &str) -> Result<Server> {
        if url.contains('@') {
            bail!("{option}: a URL with a user is not taken: see --user and --password-env");
        }
        let origin = Origin::of(url).map_err(|error| anyhow!("{option}: {error}"))?;
        if origin.uri.query().is_some() {
            bail!("{option}: the URL has a query: give it without");
        }
        let connect = ConnectOptions::to(&origin, &ClientTlsOptions::default(), CONNECT);
        let connect = connect.map_err(|error| anyhow!("{option}: {error}"))?;
        let options = HttpOptions {
            connect,
            answer_limit_bytes: ANSWER_LIMIT_BYTES,
            ..HttpOptions::default()
        };
        let base = url.trim_end_matches('/').to_owned();
        Ok(Server { client: HttpClient::new(origin.target, options), base })
    }

    fn uri(&self, path: &str) -> Result<Uri> {
        let uri = format!("{}{path}", self.base);
        uri.parse().with_context(|| format!("{uri} is not a URL"))
    }

    pub(super) async fn get(&self, path: &str) -> Result<Answer> {
        let (uri, headers) = (self.uri(path)?, HeaderMap::new());
        self.answered(self.client.get(&uri, &headers)).await
    }

    pub(super) async fn post(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Answer> {
        let (uri, body) = (self.uri(path)?, Arc::from([body]));
        self.answered(self.client.post(&uri, headers, &body)).await
    }

    async fn answered<E: std::error::Error + Send + Sync + 'static>(
        &self,
        answer: impl Future<Output = Result<Answer, E>>,
    ) -> Result<Answer> {
        let base = &self.base;
        let answer = tokio::time::timeout(ANSWER, answer).await;
        let answer = answer.map_err(|_| anyhow!("{base}: no answer within {ANSWER:?}"))?;
        answer.with_context(|| format!("{base} cannot be asked"))
    }
}
