//! Requests of a job, as its options say: headers, credentials, connections.

use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_discovery::{Credentials, Escaping, HttpConfig, ScrapeConfig, ScrapeProtocol, Target};
use sluice_net::client::{HttpClient, HttpOptions, Origin};
use sluice_net::tls::ClientTls;
use tokio::sync::OnceCell;

use super::failure::{Failure, Reason};
use super::oauth2::Tokens;

const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// Headers, credentials and certificates of a job, which all of its targets share.
pub(super) struct JobClient {
    http: HttpConfig,
    /// Certificates are read once for all targets, and again when their files change.
    tls: OnceCell<ClientTls>,
    tokens: Option<Tokens>,
    headers: HeaderMap,
}

impl JobClient {
    pub(super) fn new(job: &ScrapeConfig, user_agent: &'static str) -> JobClient {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(user_agent));
        if let Ok(accept) = HeaderValue::from_str(&accept(&job.protocols, job.escaping)) {
            headers.insert(ACCEPT, accept);
        }
        let encodings = if job.enable_compression { "gzip,zstd;q=0.9" } else { "identity" };
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encodings));
        let tokens = match &job.http.credentials {
            Some(Credentials::OAuth2(oauth2)) => Some(Tokens::new((**oauth2).clone(), user_agent)),
            _ => None,
        };
        JobClient { http: job.http.clone(), tls: OnceCell::new(), tokens, headers }
    }

    pub(super) fn follows_redirects(&self) -> bool {
        self.http.follow_redirects
    }

    pub(super) async fn connect(&self, origin: &Origin) -> Result<HttpClient, Failure> {
        let unusable = |reason: String| Failure::new(Reason::Connection, reason);
        let tls = if origin.tls {
            let http = self.http.clone();
            let read = || async move {
                let read = tokio::task::spawn_blocking(move || http.client_tls()).await;
                read.map_err(|error| error.to_string()).flatten()
            };
            Some(self.tls.get_or_try_init(read).await.map_err(unusable)?.clone())
        } else {
            None
        };
        let options = HttpOptions {
            connect: self.http.connect(origin, tls).map_err(unusable)?,
            idle_connections: 1,
            http2: self.http.http2,
            ..HttpOptions::default()
        };
        Ok(HttpClient::new(origin.target.clone(), options))
    }

    /// Headers for any server: those without credentials.
    pub(super) fn plain_headers(&self, target: &Target) -> HeaderMap {
        let mut headers = self.headers.clone();
        let seconds = target.timeout.as_secs_f64().to_string();
        if let Ok(seconds) = HeaderValue::from_str(&seconds) {
            headers.insert(TIMEOUT_HEADER, seconds);
        }
        headers
    }

    /// Headers for the target.
    pub(super) async fn headers(&self, target: &Target) -> Result<HeaderMap, Failure> {
        let failed = |reason: String| Failure::new(Reason::Credentials, reason);
        let mut headers = self.plain_headers(target);
        self.http.add_headers(&mut headers).await.map_err(failed)?;
        if let Some(tokens) = &self.tokens {
            headers.insert(AUTHORIZATION, tokens.header().await.map_err(failed)?);
        }
        Ok(headers)
    }

    /// The target did not take the credentials in these headers.
    pub(super) async fn refused(&self, headers: &HeaderMap) {
        if let (Some(tokens), Some(header)) = (&self.tokens, headers.get(AUTHORIZATION)) {
            tokens.refused(header).await;
        }
    }
}

/// The header `Accept`, as Prometheus writes it.
fn accept(protocols: &[ScrapeProtocol], escaping: Escaping) -> String {
    let escaping = match escaping {
        Escaping::AllowUtf8 => "allow-utf-8",
        Escaping::Underscores => "underscores",
        Escaping::Dots => "dots",
        Escaping::Values => "values",
    };
    let mut all = String::new();
    let mut weight = 6;
    for protocol in protocols {
        let knows_escaping = matches!(
            protocol,
            ScrapeProtocol::PrometheusText1_0_0 | ScrapeProtocol::OpenMetricsText1_0_0
        );
        all.push_str(protocol.media_type());
        if knows_escaping {
            all.push_str(";escaping=");
            all.push_str(escaping);
        }
        all.push_str(&format!(";q=0.{weight},"));
        weight -= 1;
    }
    all + &format!("*/*;q=0.{weight}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_asked_for_in_order() {
        let protocols = [ScrapeProtocol::OpenMetricsText1_0_0, ScrapeProtocol::PrometheusText0_0_4];
        let expected = "application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.6,\
                        text/plain;version=0.0.4;q=0.5,*/*;q=0.4";
        assert_eq!(accept(&protocols, Escaping::Underscores), expected);
    }
}
