//! Asks a server over HTTP, as `HttpConfig` says.

use std::time::Duration;

use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use sluice_net::client::{Answer, HttpClient, HttpOptions, Origin};

use crate::http_config::HttpConfig;

/// Larger answers are not read.
pub(crate) const ANSWER_LIMIT_BYTES: usize = 16 << 20;

const AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

/// A client of one server.
pub(crate) struct Fetcher {
    origin: Origin,
    http: HttpConfig,
    client: Option<HttpClient>,
}

impl Fetcher {
    /// # Errors
    /// The URL cannot be used.
    pub(crate) fn new(url: &str, http: HttpConfig) -> Result<Fetcher, String> {
        let origin = Origin::of(url).map_err(|error| format!("the URL cannot be used: {error}"))?;
        Ok(Fetcher { origin, http, client: None })
    }

    /// Gets the URL within `timeout`; a good answer has the status 200. `accept`: the media type.
    ///
    /// # Errors
    /// The reason, without secrets.
    pub(crate) async fn get(
        &mut self,
        accept: &'static str,
        more: HeaderMap,
        timeout: Duration,
    ) -> Result<Answer, String> {
        let asking = async {
            let mut headers = more;
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
            self.http.add_headers(&mut headers).await?;
            let uri = self.origin.uri.clone();
            let client = self.client().await?;
            client.get(&uri, &headers).await.map_err(|error| error.to_string())
        };
        let answer = tokio::time::timeout(timeout, asking).await;
        let answer = answer.map_err(|_| format!("there is no answer within {timeout:?}"))??;
        match answer.status.as_u16() {
            200 => Ok(answer),
            300..=399 => Err(format!(
                "the answer has the status {}: redirects are not followed",
                answer.status
            )),
            _ => Err(format!("the answer has the status {}", answer.status)),
        }
    }

    async fn client(&mut self) -> Result<HttpClient, String> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let (origin, http) = (self.origin.clone(), self.http.clone());
        // Reads the files of certificates.
        let made = tokio::task::spawn_blocking(move || make(origin, &http)).await;
        let client = made.map_err(|error| error.to_string())??;
        Ok(self.client.insert(client).clone())
    }
}

fn make(origin: Origin, http: &HttpConfig) -> Result<HttpClient, String> {
    let tls = if origin.tls { Some(http.client_tls()?) } else { None };
    let options = HttpOptions {
        connect: http.connect(&origin, tls)?,
        idle_connections: 1,
        http2: http.http2,
        answer_limit_bytes: ANSWER_LIMIT_BYTES,
        ..HttpOptions::default()
    };
    Ok(HttpClient::new(origin.target, options))
}
