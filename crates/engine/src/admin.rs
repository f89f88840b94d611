//! The administrative HTTP servers: metrics and health.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::status::Status;

/// A small HTTP server. It runs until it is dropped.
pub(crate) struct AdminServer {
    pub addr: SocketAddr,
    stop: CancellationToken,
}

impl AdminServer {
    /// True if another endpoint needs the port of this server.
    pub(crate) fn is_in_the_way_of(&self, endpoint: &str) -> bool {
        let port = endpoint.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        port == Some(self.addr.port())
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{what} cannot listen on {endpoint}: {source}; choose another address with `{option}`")]
pub struct AdminError {
    what: &'static str,
    endpoint: String,
    option: &'static str,
    source: std::io::Error,
}

async fn serve(
    what: &'static str,
    option: &'static str,
    endpoint: &str,
    router: Router,
) -> Result<AdminServer, AdminError> {
    let failed = |source| AdminError { what, endpoint: endpoint.to_owned(), option, source };
    let listener = TcpListener::bind(endpoint).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    let stop = CancellationToken::new();
    let stopped = stop.clone().cancelled_owned();
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
            tracing::error!(what, %error, "an administrative server ended");
        }
    });
    Ok(AdminServer { addr, stop })
}

/// Prometheus metrics on `/metrics`, the newest dead letters on `/dead-letters`, the backlog of
/// each delivery on `/log`.
pub(crate) async fn serve_metrics(endpoint: &str, status: Arc<dyn Status>) -> Result<AdminServer, AdminError> {
    let (letters, log) = (status.clone(), status.clone());
    let router = Router::new()
        .route(
            "/metrics",
            get(async move || ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], status.metrics())),
        )
        .route("/dead-letters", get(async move || blocking(move || letters.dead_letters()).await))
        .route("/log", get(async move || log.log()));
    serve("the metrics endpoint", "service.telemetry.metrics.address", endpoint, router).await
}

/// Runs code that reads from disk without blocking the runtime.
async fn blocking(read: impl FnOnce() -> String + Send + 'static) -> String {
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| format!("cannot be read: {error}\n"))
}

/// 200 while data can be accepted, 503 otherwise; the body names the deliveries whose backends
/// fail.
pub(crate) async fn serve_health(
    endpoint: &str,
    path: &str,
    status: Arc<dyn Status>,
) -> Result<AdminServer, AdminError> {
    let answer = async move || {
        let health = status.health();
        let code = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (code, [(header::CONTENT_TYPE, "application/json")], health.to_json()).into_response()
    };
    let router = Router::new().route(path, get(answer));
    serve("the health check", "extensions.health_check.endpoint", endpoint, router).await
}
