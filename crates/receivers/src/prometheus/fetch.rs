//! Gets the page of a target, as it is sent.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, LOCATION};
use http::{HeaderMap, StatusCode, Uri};
use sluice_discovery::{ScrapeConfig, ScrapeProtocol, Target};
use sluice_net::client::{Answer, HttpClient, Origin, Secrets};
use sluice_net::compress::Packing;
use sluice_otlp::Encoding;
use sluice_scrape::Format;

use super::client::JobClient;
use super::failure::{Failure, Reason, Trouble};
use crate::scraping::{Admission, Admitted, Refused};

/// As in Go.
const REDIRECTS_LIMIT: usize = 10;

/// A page as it came, and the memory for it.
pub(super) struct Fetched {
    pub(super) body: Bytes,
    pub(super) packing: Packing,
    pub(super) format: Format,
    pub(super) admitted: Admitted,
}

/// The client of one target. It keeps a connection from one scrape to the next.
pub(super) struct Fetcher {
    job: Arc<JobClient>,
    target: Arc<Target>,
    fallback: Format,
    client: Option<HttpClient>,
}

impl Fetcher {
    pub(super) fn new(job: Arc<JobClient>, config: &ScrapeConfig, target: Arc<Target>) -> Fetcher {
        let fallback = match config.fallback_protocol {
            ScrapeProtocol::PrometheusProto => Format::Protobuf,
            ScrapeProtocol::OpenMetricsText0_0_1 | ScrapeProtocol::OpenMetricsText1_0_0 => {
                Format::OpenMetrics
            }
            ScrapeProtocol::PrometheusText0_0_4 | ScrapeProtocol::PrometheusText1_0_0 => {
                Format::Text
            }
        };
        Fetcher { job, target, fallback, client: None }
    }

    /// Gets the page within the target's timeout. Without memory for it, it is not read.
    pub(super) async fn fetch(&mut self, mut admission: Admission) -> Result<Fetched, Trouble> {
        let timeout = self.target.timeout;
        let answer = tokio::time::timeout(timeout, self.get(&mut admission)).await;
        let answer = answer.unwrap_or_else(|_| match admission.is_waiting() {
            true => Err(Trouble::Refused(Refused::overloaded("no memory within the timeout"))),
            false => {
                Err(Failure::new(Reason::Timeout, format!("no page within {timeout:?}")).into())
            }
        })?;
        let admitted = admission.admitted().ok_or_else(Refused::unrouted);
        let admitted = admitted.map_err(Trouble::Refused)?;
        let packing = packing(&answer.headers)?;
        let format = text(&answer.headers, &CONTENT_TYPE).and_then(Format::of);
        let format = format.unwrap_or(self.fallback);
        Ok(Fetched { body: answer.body, packing, format, admitted })
    }

    async fn get(&mut self, admission: &mut Admission) -> Result<Answer, Trouble> {
        let headers = self.job.headers(&self.target).await?;
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(self.job.connect(&self.target.origin).await?).clone(),
        };
        let (own, mut origin) = (self.target.clone(), self.target.origin.clone());
        for _ in 0..=REDIRECTS_LIMIT {
            let is_own = (&origin.target, origin.tls) == (&own.origin.target, own.origin.tls);
            let answer = if is_own {
                get(&client, &origin.uri, &headers, admission).await?
            } else {
                // Another server does not get the target's credentials.
                let client = self.job.connect(&origin).await?;
                get(&client, &origin.uri, &self.job.plain_headers(&own), admission).await?
            };
            if answer.status == StatusCode::OK {
                return Ok(answer);
            }
            let follows = self.job.follows_redirects() && is_redirect(answer.status);
            match text(&answer.headers, &LOCATION).filter(|_| follows) {
                Some(location) => origin = redirected(&origin.uri, location)?,
                None => {
                    if is_own && answer.status == StatusCode::UNAUTHORIZED {
                        self.job.refused(&headers).await;
                    }
                    let message = format!("it answers with the status {}", answer.status);
                    return Err(Failure::new(Reason::Status, message).into());
                }
            }
        }
        let message = format!("it redirects more than {REDIRECTS_LIMIT} times");
        Err(Failure::new(Reason::Status, message).into())
    }
}

async fn get(
    client: &HttpClient,
    uri: &Uri,
    headers: &HeaderMap,
    admission: &mut Admission,
) -> Result<Answer, Trouble> {
    client.get_into(uri, headers, admission).await.map_err(|error| {
        admission.unread().map(Trouble::from).unwrap_or_else(|| {
            let secrets = Secrets::of(headers).and_query(uri.query());
            let secrets = secrets.and_proxy(client.clear_proxy());
            let message = secrets.peer_text(&error.to_string());
            Failure::new(Reason::Connection, message).into()
        })
    })
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The URL to which a URL redirects.
fn redirected(from: &Uri, location: &str) -> Result<Origin, Failure> {
    let (scheme, path) = (from.scheme_str().unwrap_or("http"), from.path());
    let authority = from.authority().map_or("", |authority| authority.as_str());
    let location = location.split('#').next().unwrap_or_default();
    let is_absolute = location.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    let url = match location.as_bytes() {
        _ if is_absolute => location.to_owned(),
        [b'/', b'/', ..] => format!("{scheme}:{location}"),
        [b'/', ..] => format!("{scheme}://{authority}{location}"),
        [b'?', ..] => format!("{scheme}://{authority}{path}{location}"),
        _ => {
            let folder = path.rfind('/').map_or("/", |slash| &path[..=slash]);
            format!("{scheme}://{authority}{folder}{location}")
        }
    };
    Origin::of(&url).map_err(|error| {
        Failure::new(Reason::Status, format!("it redirects to a URL that cannot be used: {error}"))
    })
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn packing(headers: &HeaderMap) -> Result<Packing, Failure> {
    let name = text(headers, &CONTENT_ENCODING).unwrap_or_default().trim().to_ascii_lowercase();
    match name.as_str() {
        "" | "identity" => Ok(Encoding::Identity.into()),
        "gzip" | "x-gzip" => Ok(Encoding::Gzip.into()),
        "zstd" => Ok(Encoding::Zstd.into()),
        "deflate" => Ok(Packing::Zlib),
        _ => {
            let shown = Secrets::default().peer_text(&name);
            let message = format!("its answer has the encoding `{shown}`, which is not known");
            Err(Failure::new(Reason::Encoding, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: each form of a redirect leads where RFC 9110 says, and none to a scheme that is
    /// not HTTP.
    #[test]
    fn redirects_lead_to_urls() {
        let from = Uri::from_static("https://a:8443/x/metrics?q=1");
        for (location, expected) in [
            ("http://b/y", Some("http://b/y")),
            ("//b:1/y", Some("https://b:1/y")),
            ("/y?z=/1#part", Some("https://a:8443/y?z=/1")),
            ("?z", Some("https://a:8443/x/metrics?z")),
            ("y", Some("https://a:8443/x/y")),
            ("y?to=http://b", Some("https://a:8443/x/y?to=http://b")),
            ("ftp://b/y", None),
            ("http://", None),
        ] {
            let found = redirected(&from, location).ok().map(|origin| origin.uri.to_string());
            assert_eq!(found.as_deref(), expected, "{location}");
        }
    }
}
