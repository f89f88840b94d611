//! The administrative HTTP servers: metrics and health. Strangers may reach them, so they have few
//! places, and the connection that is idle or slow longest makes room at once for a probe.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use sluice_extensions::HealthCheck;
use sluice_net::compress::compress;
use sluice_net::server::{
    Address, Family, Handler, Listener, PACKED_FROM_BYTES, Protocols, ReplyBody, RequestBody,
    ServerOptions, ServerResources, Serving, SharedPage, reply, reply_with_page, serve, takes_gzip,
};
use sluice_net::tls::{TlsOptions, server_tls};
use sluice_otlp::Encoding;
use tokio::sync::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::{Result, StartError};
use crate::ledger::{self, Ledger};
use crate::metrics;
use crate::plan::Plan;
use crate::status::EngineStatus;

/// Connections of a port. Each may occupy 16 KiB for headers, or a whole answer.
pub(crate) const PLACES: usize = 32;
/// A peer has this long to send a request, and to read its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than scrapers pause.
const IDLE: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminPlan {
    pub endpoint: String,
    /// Path of a health check. None: a server of metrics.
    pub health_path: Option<String>,
    pub tls: Option<TlsOptions>,
}

impl AdminPlan {
    pub(crate) fn all(plan: &Plan) -> Vec<AdminPlan> {
        let metrics = plan.metrics.iter().map(|it| {
            let endpoint = it.endpoint.clone();
            AdminPlan { endpoint, health_path: None, tls: None }
        });
        let checks =
            plan.extensions.values().filter_map(|extension| extension.health_check.as_ref());
        let checks = checks.map(|HealthCheck { endpoint, path, tls }| {
            let (endpoint, health_path) = (endpoint.clone(), Some(path.clone()));
            AdminPlan { endpoint, health_path, tls: tls.clone() }
        });
        metrics.chain(checks).collect()
    }

    /// Listens. Requests are answered until the server is dropped.
    pub(crate) async fn serve(&self, status: &Arc<EngineStatus>) -> Result<AdminServer> {
        let (what, option) = match &self.health_path {
            None => (
                "the metrics endpoint",
                "`host` and `port` of the reader \
                 `service.telemetry.metrics.readers[].pull.exporter.prometheus`",
            ),
            Some(_) => ("the health check", "`endpoint` of `extensions.health_check`"),
        };
        let failed = |error: &dyn std::fmt::Display| {
            StartError(format!("{what} {error}; choose another address with {option}"))
        };
        let alpn = Protocols::Http1.alpn();
        let tls = self.tls.clone().map(|tls| server_tls(what, tls, alpn)).transpose();
        let tls = tls.map_err(|error| StartError(format!("{what}: tls: {error}")))?;
        let address = Address::Tcp(self.endpoint.clone(), Family::Any);
        let listener = Listener::bind(&address).await.map_err(|error| failed(&error))?;
        let addr = listener.local_address().ok_or_else(|| failed(&"has no address"))?;
        let stop = CancellationToken::new();
        let serving = Serving {
            options: ServerOptions {
                max_connections: PLACES,
                evicted_after: Duration::ZERO,
                if_crowded: "this port takes 32 connections: restrict who can reach it",
                handshake_timeout: PATIENCE,
                read_header_timeout: PATIENCE,
                write_timeout: PATIENCE,
                max_connection_idle: Some(IDLE),
                max_connection_age_grace: Some(PATIENCE),
                ..ServerOptions::new(Protocols::Http1)
            },
            tls,
            counters: Arc::default(),
            // Whatever happens at the receivers' ports, a probe is answered.
            resources: ServerResources::unlimited(),
            shutdown: stop.clone(),
        };
        let (status, health_path) = (status.clone(), self.health_path.clone());
        let (pages, letters) = (Default::default(), Arc::default());
        let handler = AdminHandler { status, health_path, pages, letters };
        tokio::spawn(serve(listener, serving, handler));
        Ok(AdminServer { addr, _stop: stop.drop_guard() })
    }
}

pub(crate) struct AdminServer {
    pub addr: SocketAddr,
    _stop: DropGuard,
}

struct AdminHandler {
    status: Arc<EngineStatus>,
    /// None: a server of metrics.
    health_path: Option<String>,
    /// `/metrics`, `/log` and `/ledger`, this as JSON and as text.
    pages: [SharedPage; 4],
    /// Locked while dead letters are read, also if no peer waits for the answer any more.
    letters: Arc<Mutex<()>>,
}

impl Handler for AdminHandler {
    type Connection = ();

    fn connected(&self, _: Option<SocketAddr>) {}

    async fn handle(&self, (): &(), request: Request<RequestBody>) -> Response<ReplyBody> {
        match &self.health_path {
            Some(health_path) => self.health(health_path, request.uri().path()),
            None => self.metrics(&request).await,
        }
    }

    fn refuse_for_memory(&self, _: Request<RequestBody>) -> Response<ReplyBody> {
        reply(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "")
    }
}

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const FORMATS: &str = "a ledger is JSON, or with `?format=text` a text\n";

impl AdminHandler {
    /// 200 from the start of all components to the shutdown, 503 before and after; the body names
    /// the deliveries whose backends fail.
    fn health(&self, own: &str, path: &str) -> Response<ReplyBody> {
        // As a pattern of Go's `ServeMux`: one that ends in a slash matches all paths below.
        if path != own && !(own.ends_with('/') && path.starts_with(own)) {
            return reply(StatusCode::NOT_FOUND, PLAIN, "");
        }
        let (is_ready, body) = self.status.health();
        let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        reply(code, JSON, body)
    }

    /// Metrics on `/metrics`, the newest dead letters on `/dead-letters`, backlogs on `/log`, what
    /// became of samples on `/ledger`.
    async fn metrics(&self, request: &Request<RequestBody>) -> Response<ReplyBody> {
        let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
        if !["/metrics", "/dead-letters", "/log", "/ledger"].contains(&path) {
            return reply(StatusCode::NOT_FOUND, PLAIN, "");
        }
        if ![Method::GET, Method::HEAD].contains(method) {
            let mut refusal = reply(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
            return refusal;
        }
        let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        let ([of_metrics, of_log, of_json, of_text], status) = (&self.pages, self.status.clone());
        let packs = takes_gzip(headers);
        match path {
            "/metrics" => {
                let page = of_metrics.get(0, packs, move || metrics::render(&status)).await;
                reply_with_page(text, page)
            }
            "/log" => {
                let page = of_log.get(0, packs, move || metrics::log::text(&status)).await;
                reply_with_page(PLAIN, page)
            }
            "/ledger" => match request.uri().query().unwrap_or_default() {
                "" | "format=json" => {
                    let page = of_json.get(0, packs, move || ledger::json(&read_ledger(&status)));
                    reply_with_page(JSON, page.await)
                }
                "format=text" => {
                    let page = of_text.get(0, packs, move || ledger::text(&read_ledger(&status)));
                    reply_with_page(PLAIN, page.await)
                }
                _ => reply(StatusCode::BAD_REQUEST, PLAIN, FORMATS),
            },
            _ => packed_if_asked(headers, self.dead_letters().await),
        }
    }

    /// Letters may be on disk, for which no thread of the runtime waits. One request reads them at
    /// a time: if the disk hangs, requests must not occupy all connections.
    async fn dead_letters(&self) -> Response<Bytes> {
        let Ok(alone) = self.letters.clone().try_lock_owned() else {
            let busy = "they are being read for another request\n";
            return short(StatusCode::SERVICE_UNAVAILABLE, busy);
        };
        let status = self.status.clone();
        let read = tokio::task::spawn_blocking(move || {
            let _alone = alone;
            metrics::dead_letters_text(&status)
        });
        let text = read.await.unwrap_or_else(|error| format!("cannot be read: {error}\n"));
        page(PLAIN, text)
    }
}

fn read_ledger(status: &EngineStatus) -> Ledger {
    let shown = status.shown.load();
    Ledger::read(&shown.receivers, &shown.fed)
}

fn page(content_type: HeaderValue, text: String) -> Response<Bytes> {
    let mut page = Response::new(Bytes::from(text));
    page.headers_mut().insert(CONTENT_TYPE, content_type);
    page
}

fn short(status: StatusCode, text: &'static str) -> Response<Bytes> {
    let mut answer = page(PLAIN, text.to_owned());
    *answer.status_mut() = status;
    answer
}

/// The answer, packed with gzip if the request takes that: a page of metrics shrinks to a tenth.
fn packed_if_asked(asked: &HeaderMap, answer: Response<Bytes>) -> Response<ReplyBody> {
    let (mut head, mut body) = answer.into_parts();
    let is_long = body.len() >= PACKED_FROM_BYTES;
    if is_long {
        head.headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    let packed = || compress(Encoding::Gzip, std::slice::from_ref(&body), None).ok();
    if let Some(packed) = (is_long && takes_gzip(asked)).then(packed).flatten() {
        head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        body = packed;
    }
    let content_type = head.headers.remove(CONTENT_TYPE).unwrap_or(PLAIN);
    let mut reply = reply(head.status, content_type, body);
    reply.headers_mut().extend(head.headers);
    reply
}
