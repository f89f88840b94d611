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
        kubernetes::Failure::Unavailable(reason) | kubernetes::Failure::Other(reason) => {
            Failure::new(Reason::Connection, reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use sluice_discovery::{Credentials, SecretSource};
    use sluice_flow::source::{IngressRoute, MemoryPool};
    use sluice_otlp::Signal;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// An engine that takes nothing.
    struct Closed;

    impl Ingress for Closed {
        fn route(&self, _: Signal) -> Option<Arc<dyn IngressRoute>> {
            None
        }

        fn waiting(&self, _: bool) -> Arc<dyn MemoryPool> {
            unreachable!("it has no senders")
        }
    }

    async fn ask(direct: &Direct) -> Trouble {
        let ingress: Arc<dyn Ingress> = Arc::new(Closed);
        let until = Instant::now() + Duration::from_secs(60);
        let asking = Asking { ingress: &ingress, expected_bytes: 0, until };
        direct.get("/stats/summary", asking).await.err().expect("it cannot be taken")
    }

    /// Scenario: the token's file is replaced, and then removed. Guarantee: each request shows the
    /// token of now; without one there is no request, and no trouble shows a token.
    #[tokio::test]
    async fn tokens_are_those_of_now() {
        let folder = tempfile::tempdir().expect("a directory");
        let token = folder.path().join("token");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let echo = tokio::spawn(async move {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.expect("connects");
                let mut head = vec![0; 4096];
                let read = stream.read(&mut head).await.expect("a request");
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let shown = head.lines().find(|line| line.starts_with("authorization: "));
                let said = shown.unwrap_or_default().to_owned();
                let answer = format!(
                    "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\
                     content-length: {}\r\n\r\n{said}",
                    said.len()
                );
                stream.write_all(answer.as_bytes()).await.expect("is read");
                assert!(said.starts_with("authorization: Bearer secret-"), "{said}");
            }
        });
        let credentials = SecretSource::File(Path::new(&token).to_owned());
        let http = HttpConfig {
            credentials: Some(Credentials::Header { scheme: "Bearer".to_owned(), credentials }),
            ..HttpConfig::default()
        };
        let direct = Direct::new(http, &format!("http://{address}/"), "sluice/test").expect("made");
        for text in ["secret-of-before\n", "secret-of-now"] {
            std::fs::write(&token, text).expect("is written");
            let Trouble::Failed(Failure { reason, message }) = ask(&direct).await else {
                panic!("the kubelet refuses");
            };
            assert_eq!(reason, Reason::Unauthorized);
            assert!(!message.contains("secret-"), "{message}");
        }
        echo.await.expect("both showed theirs");
        std::fs::remove_file(&token).expect("is removed");
        let Trouble::Failed(failure) = ask(&direct).await else { panic!("there is no token") };
        assert_eq!(failure.reason, Reason::Credentials);
        assert!(failure.message.contains("token"), "{failure:?}");
    }

    /// Guarantee: the permission that is missing is that of the path.
    #[test]
    fn missing_permissions_are_named() {
        let said = |path| of_status(StatusCode::FORBIDDEN, path, "no").message;
        assert!(said("/stats/summary").contains("the resource `nodes/stats` in"));
        assert!(said("/pods").contains("the resource `nodes/pods` (before Kubernetes 1.33"));
        let proxied = of_api_server(kubernetes::Failure::Forbidden("no".to_owned()));
        assert_eq!(proxied.reason, Reason::Forbidden);
        assert!(proxied.message.contains("`nodes/proxy`"), "{proxied:?}");
    }
}
