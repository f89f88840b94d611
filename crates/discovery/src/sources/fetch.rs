//! Asks a server over HTTP, as `HttpConfig` says.

use std::time::Duration;

use http::header::{ACCEPT, LOCATION, USER_AGENT};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};
use sluice_net::client::{Answer, HttpClient, HttpOptions, Origin};

use crate::http_config::HttpConfig;

/// Larger answers are not read.
pub(crate) const ANSWER_LIMIT_BYTES: usize = 16 << 20;

/// As many as Go's client follows.
const REDIRECTS_LIMIT: usize = 10;

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
        let mut headers = more;
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let answer = tokio::time::timeout(timeout, self.follow(&headers)).await;
        let answer = answer.map_err(|_| format!("there is no answer within {timeout:?}"))??;
        match answer.status.as_u16() {
            200 => Ok(answer),
            300..=399 if !self.http.follow_redirects => Err(format!(
                "the answer has the status {}: `follow_redirects` is false",
                answer.status
            )),
            _ => Err(format!("the answer has the status {}", answer.status)),
        }
    }

    /// The first answer that leads nowhere else.
    async fn follow(&mut self, headers: &HeaderMap) -> Result<Answer, String> {
        let mut answer = self.ask(headers).await?;
        let mut at: Option<Fetcher> = None;
        for _ in 0..REDIRECTS_LIMIT {
            let here = at.as_ref().unwrap_or(self);
            let Some(next) = here.redirected(&answer)? else { return Ok(answer) };
            answer = at.insert(next).ask(headers).await?;
        }
        match at.as_ref().unwrap_or(self).redirected(&answer)? {
            None => Ok(answer),
            Some(_) => Err(format!("there are more than {REDIRECTS_LIMIT} redirects")),
        }
    }

    async fn ask(&mut self, headers: &HeaderMap) -> Result<Answer, String> {
        let mut headers = headers.clone();
        self.http.add_headers(&mut headers).await?;
        let uri = self.origin.uri.clone();
        let client = self.client().await?;
        client.get(&uri, &headers).await.map_err(|error| error.to_string())
    }

    /// The server and URL that an answer names instead of itself. Another server is not told our
    /// credentials, nor the headers of the options.
    fn redirected(&self, answer: &Answer) -> Result<Option<Fetcher>, String> {
        let is_redirect = matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308);
        if !is_redirect || !self.http.follow_redirects {
            return Ok(None);
        }
        let Some(location) = answer.headers.get(LOCATION) else { return Ok(None) };
        let location = location.to_str().map_err(|_| "a redirect is not text".to_owned())?;
        let url = resolved(&self.origin.uri, location.split('#').next().unwrap_or_default());
        let refused = |reason| format!("a redirect cannot be followed: {reason}");
        let mut next = Fetcher::new(&url, self.http.clone()).map_err(refused)?;
        let server = |origin: &Origin| (origin.tls, origin.uri.authority().cloned());
        if server(&next.origin) != server(&self.origin) {
            (next.http.credentials, next.http.headers) = (None, Vec::new());
        }
        Ok(Some(next))
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

/// The URL that `reference` means on a page at `base`.
fn resolved(base: &Uri, reference: &str) -> String {
    let scheme = base.scheme_str().unwrap_or("http");
    let authority = base.authority().map_or("", Authority::as_str);
    let directory = base.path().rsplit_once('/').map_or("", |(directory, _)| directory);
    match reference.as_bytes() {
        _ if reference.contains("://") && !reference.starts_with(['/', '?', '.']) => {
            reference.to_owned()
        }
        [b'/', b'/', ..] => format!("{scheme}:{reference}"),
        [b'/', ..] => format!("{scheme}://{authority}{reference}"),
        [] | [b'?', ..] => format!("{scheme}://{authority}{}{reference}", base.path()),
        _ => format!("{scheme}://{authority}{directory}/{reference}"),
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
