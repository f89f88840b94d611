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
//! What is refused gets the answer that makes OTLP clients do the right thing: see [`refusal`].

mod admitted;
mod config;
mod counters;
mod grpc;
mod http;
mod ingest;
mod inspect;
mod metrics;
mod read;
pub mod refusal;
mod senders;

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use sluice_config::Kind;
use sluice_flow::BoxFuture;
use sluice_flow::source::Ingress;
use sluice_net::auth::server::Authenticator;
use sluice_net::server::{BindError, Listener, ServerResources, WeakListener, serve};
use sluice_net::tls::ServerTls;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::receiver::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverCounters, ReceiverError,
    ReceiverKind, StartedReceiver,
};

pub use config::{HttpConfig, OtlpConfig, SharedConfig};
pub use counters::{Counters, OtlpCounters, SignalCounters, Transport};
pub use refusal::{Refused, RefusedReason};

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind::new("otlp", "Receives OTLP over gRPC and HTTP, in protobuf and JSON"),
    |fields| Box::new(OtlpConfig::read(fields)),
)
.metrics(|| metrics::METRICS.describe());

/// Who may send, by `Transport`. `None`: every client.
pub type Authenticators = [Option<Arc<Authenticator>>; 2];

impl ReceiverConfig for OtlpConfig {
    fn authenticators(&self) -> Vec<&str> {
        self.ports().filter_map(|(_, shared, _)| shared.authenticator.as_deref()).collect()
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        Box::pin(async move {
            bind(self, context.held).await.map(|bound| Box::new(bound) as Box<dyn BoundReceiver>)
        })
    }
}

/// A port that is bound and not served yet.
struct Port {
    transport: Transport,
    listener: Listener,
    tls: Option<ServerTls>,
    config: SharedConfig,
    /// For HTTP.
    http: Option<HttpConfig>,
}

/// A receiver whose ports are bound and whose certificates are loaded: nothing can fail any more.
pub struct Bound(Vec<Port>);

/// Binds all configured ports or none. Takes over those of `held` that have the same addresses.
pub async fn bind(config: &OtlpConfig, held: &[Listener]) -> Result<Bound, ReceiverError> {
    let mut ports = Vec::new();
    for (transport, config, http) in config.ports() {
        let protocol = transport.as_str();
        let tls = config.tls.clone().map(|tls| ServerTls::new(tls, config.server.protocols.alpn()));
        let tls = tls
            .transpose()
            .map_err(|error| ReceiverError::failed(format!("{protocol}: tls: {error}")))?;
        let bound = Listener::bind_or_take_over(&config.address, held).await;
        let listener = bound.map_err(|error| match error {
            BindError::Held { .. } => ReceiverError::held(format!("{protocol}: {error}")),
            _ => ReceiverError::failed(format!("{protocol}: {error}")),
        })?;
        ports.push(Port { transport, listener, tls, config: config.clone(), http: http.cloned() });
    }
    Ok(Bound(ports))
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let mut authenticators = Authenticators::default();
        for Port { transport, config, .. } in &self.0 {
            let found =
                config.authenticator.as_ref().and_then(|name| context.authenticators.get(name));
            authenticators[*transport as usize] = found.cloned();
        }
        let before = context
            .counters
            .and_then(|counters| (counters as Arc<dyn Any + Send + Sync>).downcast().ok());
        let counters =
            before.map(|counters: Arc<Counters>| (*counters).clone()).unwrap_or_default();
        let (ingress, resources) = (context.ingress, context.resources);
        let shutdown = CancellationToken::new();
        Box::new((*self).serve(ingress, authenticators, counters, resources, shutdown))
    }
}

impl Bound {
    /// Serves the ports in the calling runtime until `shutdown`. All receivers share `resources`.
    pub fn serve(
        self,
        ingress: Arc<dyn Ingress>,
        mut authenticators: Authenticators,
        counters: Counters,
        resources: ServerResources,
        shutdown: CancellationToken,
    ) -> Running {
        let inspector = inspect::Inspector::new();
        let (mut addresses, mut listeners, mut tasks) = (Vec::new(), Vec::new(), JoinSet::new());
        for Port { transport, listener, tls, config, http } in self.0 {
            addresses.extend(listener.local_address().map(|address| (transport, address)));
            listeners.push(listener.downgrade());
            let ingest = ingest::Ingest {
                ingress: Arc::clone(&ingress),
                authenticator: authenticators[transport as usize].take(),
                counters: Arc::clone(&counters.requests),
                limit_bytes: config.limit_bytes,
                body_timeouts: config.body_timeouts,
                include_metadata: config.include_metadata,
                resources: resources.clone(),
                inspector: inspector.clone(),
            };
            let connections = Arc::clone(counters.connections(transport));
            let (server, resources, shutdown) =
                (config.server, resources.clone(), shutdown.clone());
            match http {
                None => {
                    let handler = Arc::new(grpc::GrpcHandler { ingest });
                    tasks.spawn(serve(
                        listener,
                        server,
                        tls,
                        handler,
                        connections,
                        resources,
                        shutdown,
                    ))
                }
                Some(http) => {
                    let handler = Arc::new(http::HttpHandler::new(ingest, http));
                    tasks.spawn(serve(
                        listener,
                        server,
                        tls,
                        handler,
                        connections,
                        resources,
                        shutdown,
                    ))
                }
            };
        }
        Running { addresses, counters, listeners, tasks, shutdown }
    }
}

/// A receiver that listens.
pub struct Running {
    /// With the real ports. Not those on Unix sockets.
    pub addresses: Vec<(Transport, SocketAddr)>,
    pub counters: Counters,
    listeners: Vec<WeakListener>,
    tasks: JoinSet<()>,
    shutdown: CancellationToken,
}

impl Running {
    /// Waits until all ports are closed and all their requests answered or cut off. Cancel the
    /// token given to [`Bound::serve`] first.
    pub async fn closed(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl StartedReceiver for Running {
    fn addresses(&self) -> Vec<(&'static str, String)> {
        self.addresses.iter().map(|(by, address)| (by.as_str(), address.to_string())).collect()
    }

    fn listeners(&self) -> Vec<Listener> {
        self.listeners.iter().filter_map(WeakListener::upgrade).collect()
    }

    fn counters(&self) -> Arc<dyn ReceiverCounters> {
        Arc::new(self.counters.clone())
    }

    fn shutdown(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.shutdown.cancel();
            self.closed().await;
        })
    }
}
