//! Requests to a kubelet: at its own port, or through the API server.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use sluice_discovery::HttpConfig;
use sluice_flow::source::Ingress;
use sluice_kubernetes as kubernetes;
use sluice_net::client::{HttpClient, HttpOptions, Origin, Secrets};
use tokio::time::{Instant, timeout_at};

use super::failure::{Failure, Reason, Trouble};
use crate::scraping::{Admission, Admitted, Refused, admit, body_memory};

/// The longest answer. That of a node with hundreds of pods has some MiB.
const ANSWER_LIMIT_BYTES: usize = 32 << 20;
const JSON: &str = "application/json";

pub(super) enum Kubelet {
    Direct(Box<Direct>),
    Proxied(Proxied),
}

/// A kubelet's own port.
pub(super) struct Direct {
    http: HttpConfig,
    client: HttpClient,
    /// URL of the kubelet, without a slash at its end.
    base: String,
    headers: HeaderMap,
}

/// A kubelet behind the API server, which knows us.
pub(super) struct Proxied {
    client: kubernetes::Client,
    /// Before the kubelet's own paths.
    base: String,
}

/// An answer, and the memory for it.
pub(super) struct Fetched {
    pub(super) body: Bytes,
    pub(super) admitted: Admitted,
}

/// The circumstances of a request.
pub(super) struct Asking<'a> {
    pub(super) ingress: &'a Arc<dyn Ingress>,
    /// Memory that the last answer took.
    pub(super) expected_bytes: usize,
    pub(super) until: Instant,
}

impl Kubelet {
    pub(super) async fn get(&self, path: &str, asking: Asking<'_>) -> Result<Fetched, Trouble> {
        match self {
            Kubelet::Direct(direct) => direct.get(path, asking).await,
            Kubelet::Proxied(proxied) => proxied.get(path, asking).await,
        }
    }
}

impl Direct {
    /// Connects when it is used.
    ///
    /// # Errors
    /// The URL, the file of a certificate, or the environment's proxy cannot be used.
    pub(super) fn new(
        http: HttpConfig,
        url: &str,
        user_agent: &'static str,
    ) -> Result<Direct, String> {
        let origin = Origin::of(url).map_err(|error| format!("the endpoint {error}"))?;
        let tls = origin.tls.then(|| http.client_tls()).transpose()?;
        let options = HttpOptions {
            connect: http.connect(&origin, tls)?,
            idle_connections: 1,
            http2: http.http2,
            ..HttpOptions::default()
        };
        let headers = HeaderMap::from_iter([
            (USER_AGENT, HeaderValue::from_static(user_agent)),
            (ACCEPT, HeaderValue::from_static(JSON)),
            (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        ]);
        let base = url.trim_end_matches('/').to_owned();
        Ok(Direct { http, client: HttpClient::new(origin.target, options), base, headers })
    }

    async fn get(&self, path: &str, asking: Asking<'_>) -> Result<Fetched, Trouble> {
        let mut headers = self.headers.clone();
        // The token of a service account changes now and then.
        let credentials = self.http.add_headers(&mut headers).await;
        credentials.map_err(|reason| Failure::new(Reason::Credentials, reason))?;
        let uri: Uri = format!("{}{path}", self.base)
            .parse()
            .map_err(|_| Failure::new(Reason::Connection, "its URL cannot be used"))?;
        let Asking { ingress, expected_bytes, until } = asking;
        let mut admission = Admission::new(ingress.clone(), expected_bytes, ANSWER_LIMIT_BYTES);
        let answer = self.client.get_into(&uri, &headers, &mut admission);
        let Ok(answer) = timeout_at(until, answer).await else {
            return Err(late(path, admission.is_waiting()));
        };
        let secrets = Secrets::of(&headers).and_proxy(self.client.clear_proxy());
        let answer = answer.map_err(|error| {
            admission.unread().map(Trouble::from).unwrap_or_else(|| {
                Failure::new(Reason::Connection, secrets.peer_text(&error.to_string())).into()
            })
        })?;
        if answer.status != StatusCode::OK {
            let said = secrets.peer_text(&String::from_utf8_lossy(&answer.body));
            return Err(of_status(answer.status, path, &said).into());
        }
        if let Some(encoding) = answer.headers.get(CONTENT_ENCODING)
            && encoding != "identity"
        {
            let message = format!("{path} is packed, although that was not asked for");
            return Err(Failure::new(Reason::Page, message).into());
        }
        let admitted = admission.admitted().ok_or_else(Refused::unrouted)?;
        Ok(Fetched { body: answer.body, admitted })
    }
}

impl Proxied {
    /// `node`: the kubelet's.
    pub(super) fn new(client: kubernetes::Client, node: &str) -> Proxied {
        Proxied { client, base: format!("/api/v1/nodes/{}/proxy", kubernetes::segment(node)) }
    }

    async fn get(&self, path: &str, asking: Asking<'_>) -> Result<Fetched, Trouble> {
        let url = format!("{}{path}", self.base);
        let answer = timeout_at(asking.until, self.client.page(&url, JSON)).await;
        let body = answer.map_err(|_| late(path, false))?.map_err(of_api_server)?;
        let admitted = admit(&**asking.ingress, body_memory(body.len())).await?;
        Ok(Fetched { body, admitted })
    }
}

fn late(path: &str, is_waiting: bool) -> Trouble {
    match is_waiting {
        true => Refused::overloaded("no memory within the timeout").into(),
        false => {
            let message = format!("no whole answer to {path} within the timeout");
            Failure::new(Reason::Timeout, message).into()
        }
    }
}

/// A kubelet asks the API server whether we may get a part of its node.
fn of_status(status: StatusCode, path: &str, said: &str) -> Failure {
    match status {
        StatusCode::UNAUTHORIZED => Failure::new(
            Reason::Unauthorized,
            format!("it does not accept our credentials for {path} ({said})"),
        ),
        StatusCode::FORBIDDEN => {
            let resource = match path {
                "/pods" => "`nodes/pods` (before Kubernetes 1.33 `nodes/proxy`)",
                _ => "`nodes/stats`",
            };
            missing(resource, said)
        }
        status => Failure::new(
            Reason::Status,
            format!("it answers {path} with the status {status} ({said})"),
        ),
    }
}

fn missing(resource: &str, said: &str) -> Failure {
    let message = format!(
        "a permission is missing: a ClusterRole must allow `get` of the resource {resource} in \
         the API group `` ({said})"
    );
    Failure::new(Reason::Forbidden, message)
}

fn of_api_server(failure: kubernetes::Failure) -> Failure {
    match failure {
        kubernetes::Failure::Forbidden(said) => missing("`nodes/proxy`", &said),
        kubernetes::Failure::Unauthorized(said) => Failure::new(
            Reason::Unauthorized,
            format!("the API server does not accept our credentials ({said})"),
        ),
        kubernetes::Failure::TooLarge => {
            let message = format!("the answer is longer than {ANSWER_LIMIT_BYTES} bytes");
            Failure::new(Reason::BodySize, message)
        }
        kubernetes::Failure::Busy { reason, .. } => {
            Failure::new(Reason::Status, format!("the API server has no time ({reason})"))
        }
        kubernetes::Failure::NotFound(said) => {
            Failure::new(Reason::Status, format!("the API server answers 404 ({said})"))
        }
        kubernetes::Failure::Gone => Failure::new(Reason::Status, "the API server answers 410"),
        kubernetes::Failure::Other(reason) => Failure::new(Reason::Connection, reason),
    }
}
