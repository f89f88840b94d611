//! OTLP over gRPC and HTTP.
//!
//! A request goes through the same steps over both transports, each as early as it can be taken:
//!
//! 1. authentication, from the headers alone;
//! 2. routing: one snapshot of where the signal goes, for the life of the request;
//! 3. admission: memory is asked for with the length from the gRPC prefix or `content-length`,
//!    before the body is read;
//! 4. reading, bounded in size and time;
//! 5. inflating (bounded, and never more than was admitted), validating and counting, in one pass
//!    over the bytes;
//! 6. submitting, compressed as it came where the route keeps it so;
//! 7. the answer.
//!
//! What cannot be accepted is refused with the answer that makes OTLP clients do the right thing;
//! see [`refusal`].

mod admitted;
mod config;
mod counters;
mod grpc;
mod http;
mod ingest;
mod inspect;
mod kind;
mod metrics;
mod read;
pub mod refusal;
mod senders;

use std::net::SocketAddr;
use std::sync::Arc;

use sluice_flow::source::Ingress;
use sluice_net::auth::server::Authenticator;
use sluice_net::server::{
    BindError, Handler, Listener, ServerCounters, ServerOptions, ServerResources, WeakListener,
    serve,
};
use sluice_net::tls::{ServerTls, TlsError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use config::{GrpcConfig, HttpConfig, OtlpConfig, SharedConfig};
pub use counters::{OtlpCounters, SignalCounters, Transport};
pub use kind::KIND;
pub(crate) use metrics::METRICS;
pub use refusal::{Refused, RefusedReason};

/// Why the receiver cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{protocol}: {error}")]
    Bind { protocol: &'static str, error: BindError },
    #[error("{protocol}: tls: {error}")]
    Tls { protocol: &'static str, error: TlsError },
}

/// Who may send, by protocol. `None`: every client.
#[derive(Clone, Default)]
pub struct Authenticators {
    pub grpc: Option<Arc<Authenticator>>,
    pub http: Option<Arc<Authenticator>>,
}

impl StartError {
    /// True if it may succeed once the listeners that were held meanwhile are closed.
    fn waits_for_held(&self) -> bool {
        matches!(self, StartError::Bind { error: BindError::Held { .. }, .. })
    }
}

/// A port that is bound and not served yet.
struct Port<C> {
    listener: Listener,
    tls: Option<ServerTls>,
    config: C,
}

/// A receiver whose ports are bound and whose certificates are loaded: nothing can fail any more.
pub struct Bound {
    grpc: Option<Port<GrpcConfig>>,
    http: Option<Port<HttpConfig>>,
}

/// The counters of a receiver. Cloning shares them.
#[derive(Clone, Default)]
pub struct Counters {
    pub requests: Arc<OtlpCounters>,
    pub grpc_connections: Arc<ServerCounters>,
    pub http_connections: Arc<ServerCounters>,
}

/// A receiver that listens.
pub struct Running {
    /// Where gRPC is taken, with the real port. `None` if it is off or on a Unix socket.
    pub grpc_address: Option<SocketAddr>,
    pub http_address: Option<SocketAddr>,
    pub counters: Counters,
    resources: ServerResources,
    listeners: Vec<WeakListener>,
    ports: JoinSet<()>,
    shutdown: CancellationToken,
}

impl Running {
    /// Waits until all ports are closed and all their requests answered or cut off. Cancel the
    /// token given to [`Bound::serve`] first.
    pub async fn closed(mut self) {
        while self.ports.join_next().await.is_some() {}
    }

    /// Serves a port; its real address.
    fn serve<C>(
        &mut self,
        Port { listener, tls, .. }: Port<C>,
        server: ServerOptions,
        handler: impl Handler,
        counters: Arc<ServerCounters>,
    ) -> Option<SocketAddr> {
        let address = listener.local_address();
        self.listeners.push(listener.downgrade());
        let (resources, shutdown) = (self.resources.clone(), self.shutdown.clone());
        let handler = Arc::new(handler);
        self.ports.spawn(serve(listener, server, tls, handler, counters, resources, shutdown));
        address
    }
}

/// Binds the configured ports, or takes over those of `held` that have the same addresses. All of
/// them or none.
pub async fn bind(config: OtlpConfig, held: &[Listener]) -> Result<Bound, StartError> {
    let grpc = match config.grpc {
        None => None,
        Some(config) => {
            let (listener, tls) = bind_port("grpc", &config.shared, held).await?;
            Some(Port { listener, tls, config })
        }
    };
    let http = match config.http {
        None => None,
        Some(config) => {
            let (listener, tls) = bind_port("http", &config.shared, held).await?;
            Some(Port { listener, tls, config })
        }
    };
    Ok(Bound { grpc, http })
}

impl Bound {
    /// Serves the ports inside the calling runtime until `shutdown`. All receivers share
    /// `resources`.
    pub fn serve(
        self,
        ingress: Arc<dyn Ingress>,
        authenticators: Authenticators,
        counters: Counters,
        resources: ServerResources,
        shutdown: CancellationToken,
    ) -> Running {
        let inspector = inspect::Inspector::new();
        let requests = Arc::clone(&counters.requests);
        let ingest = |authenticator, config: &SharedConfig| ingest::Ingest {
            ingress: Arc::clone(&ingress),
            authenticator,
            counters: Arc::clone(&requests),
            limit_bytes: config.limit_bytes,
            body_timeouts: config.body_timeouts,
            include_metadata: config.include_metadata,
            resources: resources.clone(),
            inspector: inspector.clone(),
        };
        let mut running = Running {
            grpc_address: None,
            http_address: None,
            counters,
            resources: resources.clone(),
            listeners: Vec::new(),
            ports: JoinSet::new(),
            shutdown,
        };
        if let Some(port) = self.grpc {
            let shared = &port.config.shared;
            let handler = grpc::GrpcHandler { ingest: ingest(authenticators.grpc, shared) };
            let (server, counters) =
                (shared.server.clone(), Arc::clone(&running.counters.grpc_connections));
            running.grpc_address = running.serve(port, server, handler, counters);
        }
        if let Some(port) = self.http {
            let shared = &port.config.shared;
            let handler =
                http::HttpHandler::new(ingest(authenticators.http, shared), port.config.clone());
            let (server, counters) =
                (shared.server.clone(), Arc::clone(&running.counters.http_connections));
            running.http_address = running.serve(port, server, handler, counters);
        }
        running
    }
}

async fn bind_port(
    protocol: &'static str,
    config: &SharedConfig,
    held: &[Listener],
) -> Result<(Listener, Option<ServerTls>), StartError> {
    let tls = match &config.tls {
        None => None,
        Some(options) => Some(
            ServerTls::new(options.clone(), config.server.protocols.alpn())
                .map_err(|error| StartError::Tls { protocol, error })?,
        ),
    };
    let listener = Listener::bind_or_take_over(&config.address, held)
        .await
        .map_err(|error| StartError::Bind { protocol, error })?;
    Ok((listener, tls))
}
