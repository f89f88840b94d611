//! Asks a server over HTTP, as `HttpConfig` says.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use sluice_net::client::{Answer, ConnectOptions, HttpClient, HttpOptions, Origin, Proxy};
use sluice_net::reload::read_bounded;

use crate::http_config::{Credentials, HttpConfig, ProxyConfig, SecretSource};

/// Larger answers are not read.
pub(crate) const ANSWER_LIMIT_BYTES: usize = 16 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
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
            self.add_headers(&mut headers).await?;
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

    async fn add_headers(&self, headers: &mut HeaderMap) -> Result<(), String> {
        for (name, source) in &self.http.headers {
            headers.append(name, header(&source.text().await?)?);
        }
        let authorization = match &self.http.credentials {
            None => return Ok(()),
            Some(Credentials::Basic { user, password }) => {
                let plain = format!("{}:{}", user.text().await?, password.text().await?);
                format!("Basic {}", BASE64_STANDARD.encode(plain))
            }
            Some(Credentials::Header { scheme, credentials }) => {
                format!("{scheme} {}", credentials.text().await?)
            }
            Some(Credentials::OAuth2(_)) => {
                return Err("OAuth 2.0 is not in this build of Sluice here".to_owned());
            }
        };
        headers.insert(AUTHORIZATION, header(&authorization)?);
        Ok(())
    }
}

/// A value that is not shown.
fn header(text: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(text);
    let mut value =
        value.map_err(|_| "a header has characters that no header may have".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

impl SecretSource {
    /// The text; that of a file is without white space at both ends.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn text(&self) -> Result<String, String> {
        let path = match self {
            SecretSource::Inline(secret) => return Ok(secret.expose().to_owned()),
            SecretSource::File(path) => path.clone(),
        };
        let read = move || secret_in(&path);
        tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?
    }
}

fn secret_in(path: &Path) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    let bytes = read_bounded(path).map_err(|error| failed(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| failed(&"it is not UTF-8 text"))?;
    Ok(text.trim().to_owned())
}

fn make(origin: Origin, http: &HttpConfig) -> Result<HttpClient, String> {
    let mut connect =
        ConnectOptions { connect_timeout: CONNECT_TIMEOUT, ..ConnectOptions::default() };
    let proxy = match &http.proxy {
        ProxyConfig::None => Ok(None),
        ProxyConfig::Environment => Proxy::from_environment(&origin.target, origin.tls),
        ProxyConfig::Url(proxy) => Ok(Some(proxy.clone())),
    };
    connect.secure(origin.tls.then_some(&http.tls), proxy)?;
    let options = HttpOptions {
        connect,
        idle_connections: 1,
        http2: http.http2,
        answer_limit_bytes: ANSWER_LIMIT_BYTES,
        ..HttpOptions::default()
    };
    Ok(HttpClient::new(origin.target, options))
}
