//! The administrative HTTP servers: metrics and health.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::{any, get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::StartError;
use crate::metrics;
use crate::plan::Plan;
use crate::status::EngineStatus;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AdminPlan {
    pub endpoint: String,
    /// Of a health check. None: the metrics.
    pub health_path: Option<String>,
}

impl AdminPlan {
    pub(crate) fn all(plan: &Plan) -> Vec<AdminPlan> {
        let metrics = plan.metrics.iter().map(|it| (&it.endpoint, None));
        let checks = plan.extensions.values().filter_map(|extension| extension.health_check());
        let checks = checks.map(|it| (&it.endpoint, Some(it.path.clone())));
        let all = metrics.chain(checks);
        all.map(|(endpoint, health_path)| AdminPlan { endpoint: endpoint.clone(), health_path })
            .collect()
    }

    /// Listens. Requests are answered until the server is dropped.
    pub(crate) async fn serve(
        &self,
        status: &Arc<EngineStatus>,
    ) -> Result<AdminServer, StartError> {
        let (what, option, router) = match &self.health_path {
            None => (
                "the metrics endpoint",
                "service.telemetry.metrics.address",
                metrics_router(status),
            ),
            Some(path) => (
                "the health check",
                "extensions.health_check.endpoint",
                health_router(path, status.clone()),
            ),
        };
        let endpoint = &self.endpoint;
        let failed = |error: std::io::Error| {
            StartError(format!(
                "{what} cannot listen on {endpoint}: {error}; \
                 choose another address with `{option}`"
            ))
        };
        let listener = TcpListener::bind(endpoint).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            let served = axum::serve(listener, router).with_graceful_shutdown(stopped);
            if let Err(error) = served.await {
                tracing::error!(what, %error, "an administrative server ended");
            }
        });
        Ok(AdminServer { addr, stop })
    }
}

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

/// Prometheus metrics on `/metrics`, the newest dead letters on `/dead-letters`, the backlog of
/// each delivery on `/log`.
fn metrics_router(status: &Arc<EngineStatus>) -> Router {
    let [for_metrics, for_letters, for_log] = [(); 3].map(|()| status.clone());
    let text = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    // Dead letters may be on disk, for which no thread of the runtime waits.
    let letters = async move || {
        let read = tokio::task::spawn_blocking(move || metrics::dead_letters_text(&for_letters));
        read.await.unwrap_or_else(|error| format!("cannot be read: {error}\n"))
    };
    Router::new()
        .route("/metrics", get(async move || (text, metrics::render(&for_metrics))))
        .route("/dead-letters", get(letters))
        .route("/log", get(async move || metrics::log::text(&for_log)))
}

/// 200 from the start of all components to the shutdown, 503 before and after; the body names the
/// deliveries whose backends fail.
fn health_router(path: &str, status: Arc<EngineStatus>) -> Router {
    let answer = async move || {
        let (is_ready, body) = status.health();
        let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (code, [(header::CONTENT_TYPE, "application/json")], body)
    };
    // As a pattern of Go's `ServeMux`: one that ends in a slash matches all paths below.
    let below = path.ends_with('/').then(|| format!("{path}{{*rest}}"));
    let paths = std::iter::once(path).chain(below.as_deref());
    paths.fold(Router::new(), |router, path| router.route(path, any(answer.clone())))
}
