//! Connections of exporters over HTTP: their options, and the redirects that they follow.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Uri};
use sluice_config::{Fields, Secret};
use sluice_net::client::{
    Answer, HttpClient, HttpOptions, Keepalive, Origin, Proxy, Target, TransportError,
};

use crate::client_options::{ClientOptions, check_proxy};
use crate::exporter::BuildError;

/// As in Go's client.
const REDIRECTS_MAX: usize = 10;

#[derive(Clone, Default)]
pub(crate) struct Connections {
    pub(crate) proxy_url: Option<Secret>,
    /// Without settings that depend on the URL.
    pub(crate) http: HttpOptions,
}

impl Connections {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Connections {
        let doc = "Proxy: `http://[user:password@]host:port`. Unset: `HTTP_PROXY`, `HTTPS_PROXY` \
                   and `NO_PROXY` of the environment decide.";
        let proxy_url = fields.secret("proxy_url", doc).filter(|url| !url.expose().is_empty());
        if let Some(Err(error)) = proxy_url.as_ref().map(|url| Proxy::parse(url.expose())) {
            fields.error_at("proxy_url", &format!("cannot be used: {error}"));
        }
        Connections { proxy_url, http: http_options(fields) }
    }

    /// Reports a proxy on the way to the URL of this option that cannot be used.
    pub(crate) fn check(&self, fields: &mut Fields<'_>, key: &str, url: &str) {
        if let (None, Ok(origin)) = (&self.proxy_url, Origin::of(url)) {
            check_proxy(fields, key, &origin.target, origin.tls);
        }
    }

    /// Makes a client. Connects to nothing yet.
    pub(crate) fn client(
        &self,
        client: &ClientOptions,
        target: Target,
        tls: bool,
    ) -> Result<HttpClient, BuildError> {
        let proxy = match &self.proxy_url {
            Some(url) => Proxy::parse(url.expose()).map(Some),
            None => Proxy::from_environment(&target, tls),
        };
        let mut options = self.http.clone();
        client.set_connect(&mut options.connect, tls, proxy)?;
        Ok(HttpClient::new(target, options))
    }
}

/// A URL that requests are posted to.
pub(crate) struct Destination {
    pub(crate) uri: Uri,
    /// Destinations of the same origin may share it.
    pub(crate) client: HttpClient,
}

impl Destination {
    /// Posts a request, and follows redirects within the origin.
    pub(crate) async fn post(
        &self,
        headers: &HeaderMap,
        body: &Arc<[Bytes]>,
    ) -> Result<Answer, TransportError> {
        let mut uri = Cow::Borrowed(&self.uri);
        let mut redirects = 0;
        loop {
            let answer = self.client.post(&uri, headers, body).await?;
            match redirect_target(&uri, &answer) {
                Some(target) if redirects < REDIRECTS_MAX => uri = Cow::Owned(target),
                _ => return Ok(answer),
            }
            redirects += 1;
        }
    }
}

/// The URI to send the request to instead, after a redirect that keeps method and body (307, 308)
/// within the configured origin. No request goes to a host that an answer names.
fn redirect_target(uri: &Uri, answer: &Answer) -> Option<Uri> {
    if !matches!(answer.status.as_u16(), 307 | 308) {
        return None;
    }
    let location = Uri::try_from(answer.headers.get(LOCATION)?.as_bytes()).ok()?;
    match location.authority() {
        Some(authority) => {
            let is_same = Some(authority) == uri.authority() && location.scheme() == uri.scheme();
            is_same.then_some(location)
        }
        None => {
            let mut parts = uri.clone().into_parts();
            parts.path_and_query = location.into_parts().path_and_query;
            Uri::from_parts(parts).ok()
        }
    }
}

fn http_options(fields: &mut Fields<'_>) -> HttpOptions {
    let ((idle_connections, idle_timeout), keep_alive) = keep_alive(fields);
    let doc = "Maximum number of connections; further requests wait for one. 0 or unset: no limit.";
    let connections = fields.optional_integer("max_conns_per_host", 0..=100_000, doc);
    let doc = "Offer HTTP/2 in the TLS handshake.";
    let http2 = fields.boolean("force_attempt_http2", true, doc);
    let doc = "Time between two HTTP/2 pings. 0: no pings.";
    let time = fields.duration("http2_read_idle_timeout", Duration::ZERO, doc);
    let doc = "Time limit for the answer to an HTTP/2 ping.";
    let timeout = fields.duration("http2_ping_timeout", Duration::from_secs(15), doc);
    let pings = Keepalive { time, timeout, permit_without_stream: true };
    HttpOptions {
        connections: connections.filter(|limit| *limit > 0),
        idle_connections,
        idle_timeout,
        keep_alive,
        http2,
        http2_keepalive: Some(pings).filter(|pings| !pings.time.is_zero()),
        ..HttpOptions::default()
    }
}

/// The settings of [`idle_connections`], and whether connections carry several requests.
fn keep_alive(fields: &mut Fields<'_>) -> ((usize, Duration), bool) {
    const FLAT: [&str; 4] =
        ["idle_conn_timeout", "max_idle_conns", "max_idle_conns_per_host", "disable_keep_alives"];
    let idle = idle_connections(fields);
    let doc = "Use a new connection for each request.";
    let keep_alive = !fields.boolean(FLAT[3], false, doc);
    let flat = FLAT.into_iter().find(|key| fields.is_given(key));
    let doc =
        "The four options about unused connections, as the Collector spells them since 0.160.";
    let section = fields.section_unless_empty("keepalive", doc, |fields| {
        if let Some(flat) = flat {
            fields.error(&format!("cannot stand beside `{flat}`"));
        }
        let idle = idle_connections(fields);
        (idle, fields.boolean("enabled", true, "Let connections carry several requests."))
    });
    section.unwrap_or((idle, keep_alive))
}

/// The number of unused connections that are kept, and the time for it. There is one host, so the
/// smaller of both limits applies. 0 means "no limit" for the first, "default" for the second.
fn idle_connections(fields: &mut Fields<'_>) -> (usize, Duration) {
    let doc = "Maximum number of unused connections that are kept. 0: no limit.";
    let all: usize = fields.integer("max_idle_conns", 100, 0..=100_000, doc);
    let doc = "As `max_idle_conns`, whose limit applies too: there is one host. 0 or unset: only \
               `max_idle_conns`.";
    let host = fields.optional_integer("max_idle_conns_per_host", 0..=100_000, doc);
    let all = if all == 0 { usize::MAX } else { all };
    let limit = host.filter(|limit| *limit > 0).map_or(all, |host| all.min(host));
    let doc = "An unused connection is closed after this time. 0: never.";
    (limit, fields.duration("idle_conn_timeout", Duration::from_secs(90), doc))
}
