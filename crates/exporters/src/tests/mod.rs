//! Backends for tests: real listeners that behave as told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use parking_lot::Mutex;
use sluice_config::Fields;
use sluice_flow::{Exporter, Metadata, Outcome, Packed};
use sluice_net::auth::client::ClientAuths;
use sluice_net::auth::server::ServerAuth;
use sluice_net::client::{Resolve, ResolveFuture, TransportError};
use sluice_otlp::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::{BuildContext, EXPORTERS, ExporterConfig, Files, Pages};

/// One span named "work" in a request.
pub(crate) fn one_span() -> Bytes {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
    use prost::Message;
    let span =
        Span { trace_id: vec![1; 16], span_id: vec![2; 8], name: "work".into(), ..Span::default() };
    let scope = ScopeSpans { spans: vec![span], ..ScopeSpans::default() };
    let resource = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec().into()
}

pub(crate) fn context<'a>(authenticators: &'a ClientAuths, files: &'a Files) -> BuildContext<'a> {
    BuildContext {
        name: "otlp/test",
        authenticators,
        servers: no_servers(),
        listener: None,
        memory_bytes: 64 << 20,
        user_agent: HeaderValue::from_static("sluice/test"),
        files,
        pages: no_pages(),
    }
}

fn no_pages() -> &'static Pages {
    static PAGES: LazyLock<Pages> = LazyLock::new(Pages::default);
    &PAGES
}

fn no_servers() -> &'static HashMap<String, Arc<dyn ServerAuth>> {
    static NONE: LazyLock<HashMap<String, Arc<dyn ServerAuth>>> = LazyLock::new(HashMap::new);
    &NONE
}

/// Reads options; mistakes fail the test.
pub(crate) fn read<C>(text: &str, read: impl FnOnce(&mut Fields<'_>) -> C) -> C {
    let (config, diagnostics) = sluice_config::read_text("exporters.test", text, read);
    let errors: Vec<_> = diagnostics.errors().map(|error| error.message.clone()).collect();
    assert!(errors.is_empty(), "{text}: {errors:?}");
    config
}

/// The options of an exporter of this kind.
pub(crate) fn config(kind: &str, text: &str) -> Box<dyn ExporterConfig> {
    read(text, |fields| EXPORTERS.read(kind, fields)).expect("a known kind")
}

/// The only exporter of a process.
pub(crate) fn exporter(kind: &str, text: &str) -> Arc<dyn Exporter> {
    config(kind, text).build(&context(&ClientAuths::new(), &Files::default())).expect("builds")
}

pub(crate) fn request(exporter: &dyn Exporter) -> Packed {
    packed(exporter, Signal::Traces, vec![one_span()])
}

/// A request of one item.
pub(crate) fn packed(exporter: &dyn Exporter, signal: Signal, chunks: Vec<Bytes>) -> Packed {
    let (chunks, encoding) = exporter.pack(signal, chunks).expect("packs");
    Packed::new(signal, 1, chunks, encoding, Arc::new(Metadata::default()))
}

/// Sends one span as a delivery does: within the exporter's deadline.
pub(crate) async fn send(exporter: &dyn Exporter) -> Outcome {
    let request = request(exporter);
    match tokio::time::timeout(exporter.timeout(), exporter.send(&request)).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::RetryAfter { delay: None, reason: "deadline".to_owned() },
    }
}

pub(crate) fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Delivered => "delivered",
        Outcome::PartlyRejected { .. } => "partly",
        Outcome::RetryAfter { .. } => "retry",
        Outcome::TooLarge { .. } => "large",
        Outcome::Misconfigured { .. } => "misconfigured",
        Outcome::Rejected { .. } => "rejected",
        Outcome::Failed { .. } => "failed",
        Outcome::Overlaps { .. } => "overlaps",
    }
}

/// A certificate for 127.0.0.1 from an authority of its own, both as PEM, and the server's
/// settings.
pub(crate) fn authority(alpn: &[&[u8]]) -> (String, Arc<rustls::ServerConfig>) {
    authority_of(&["127.0.0.1"], alpn)
}

/// The same for these names.
pub(crate) fn authority_of(names: &[&str], alpn: &[&[u8]]) -> (String, Arc<rustls::ServerConfig>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = rcgen::generate_simple_self_signed(names).expect("generates");
    let pem = key.cert.pem();
    let der =
        rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], der)
        .expect("a certificate");
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    (pem, Arc::new(config))
}

/// A listener whose connections are handed to a function, and counted. Stops when dropped.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Backend {
    pub(crate) async fn start<F, W>(serve: F) -> Backend
    where
        F: Fn(TcpStream, usize) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("has an address");
        let (accepted, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (accepted.clone(), open.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = counts.0.fetch_add(1, Ordering::SeqCst);
                counts.1.fetch_add(1, Ordering::SeqCst);
                let (work, open) = (serve(stream, number), counts.1.clone());
                tokio::spawn(async move {
                    work.await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Backend { address, accepted, open, task }
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Waits until no connection is served any more; fails the test if some stay.
    pub(crate) async fn all_closed(&self) {
        for _ in 0..1000 {
            if self.open.load(Ordering::SeqCst) == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} connections stay open", self.open.load(Ordering::SeqCst));
    }
}

/// A name that stands for the addresses that the test sets.
pub(crate) struct Moving(Mutex<Vec<SocketAddr>>);

impl Moving {
    pub(crate) fn at(addresses: impl Into<Vec<SocketAddr>>) -> Arc<Moving> {
        Arc::new(Moving(Mutex::new(addresses.into())))
    }

    pub(crate) fn to(&self, address: SocketAddr) {
        *self.0.lock() = vec![address];
    }
}

impl Resolve for Moving {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> ResolveFuture<'a> {
        Box::pin(async {
            let addresses = self.0.lock().clone();
            if addresses.is_empty() {
                return Err(TransportError::Resolve {
                    host: "backend".into(),
                    reason: "gone".into(),
                });
            }
            Ok(addresses)
        })
    }
}

/// A request as an HTTP/1.1 backend got it.
pub(crate) struct HttpRequest {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// Reads one HTTP/1.1 request; none at the end of the connection.
pub(crate) async fn read_http(stream: &mut TcpStream) -> Option<HttpRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
    let mut body = bytes.split_off(end);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(HttpRequest { head, body })
}

pub(crate) async fn write_http(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
}

/// An HTTP/1.1 backend that answers every request with the function's (status, headers, body).
pub(crate) async fn http_backend<F>(answer: F) -> Backend
where
    F: Fn(&HttpRequest) -> (String, String, Vec<u8>) + Clone + Send + Sync + 'static,
{
    Backend::start(move |mut stream, _| {
        let answer = answer.clone();
        async move {
            while let Some(request) = read_http(&mut stream).await {
                let (status, headers, body) = answer(&request);
                write_http(&mut stream, &status, &headers, &body).await;
            }
        }
    })
    .await
}
