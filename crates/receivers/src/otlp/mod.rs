//! OTLP over gRPC and HTTP.
//!
//! A request goes through the same steps over both transports, each as early as it can be taken:
//!
//! 1. authentication, from the headers alone;
//! 2. routing: one snapshot of the signal's route, for the life of the request;
//! 3. admission: memory is asked for with the length from the gRPC prefix or `content-length`,
//!    and bytes of the body that come before are charged while it waits;
//! 4. reading, bounded in size and time;
//! 5. inflating (bounded, and never more than was admitted), validating and counting, in one pass
//!    over the bytes;
//! 6. submitting, compressed as it came if the route keeps it so;
//! 7. the answer.
//!
//! A refused request gets the answer that makes OTLP clients do the right thing: see [`refusal`].

mod admitted;
pub(crate) mod config;
mod counters;
pub(crate) mod front;
mod grpc;
mod http;
pub(crate) mod ingest;
pub(crate) mod inspect;
pub(crate) mod metrics;
mod read;
pub mod refusal;
pub(crate) mod senders;
mod waiting;

use std::sync::Arc;

use sluice_config::Kind;
use sluice_flow::BoxFuture;
use sluice_net::server::{BindError, Listener, Listening, Serving, serve};
use sluice_net::tls::{ServerTls, server_tls};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::receiver::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverCounters, ReceiverError,
    ReceiverKind, StartedReceiver, Streams,
};

pub use config::{HttpConfig, OtlpConfig, SharedConfig};
pub(crate) use counters::About;
pub use counters::{Counters, SignalCounters, Transport};
pub use refusal::{Refused, RefusedReason};

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind::new("otlp", "Receives OTLP over gRPC and HTTP, in protobuf and JSON"),
    |fields| Box::new(OtlpConfig::read(fields)),
)
.metrics(|| metrics::METRICS.describe());

impl ReceiverConfig for OtlpConfig {
    fn authenticators(&self) -> Vec<&str> {
        self.ports().filter_map(|(_, shared, _)| shared.authenticator.as_deref()).collect()
    }

    fn knows_ranges(&self) -> bool {
        true
    }

    fn listening(&self) -> Vec<Listening<'_>> {
        let listening = self.ports().map(|(transport, shared, _)| {
            let (path, limit_option): (&[_], _) = match transport {
                Transport::Grpc => (&["protocols", "grpc", "endpoint"], "max_recv_msg_size_mib"),
                Transport::Http => (&["protocols", "http", "endpoint"], "max_request_body_size"),
            };
            Listening {
                protocol: transport.as_str(),
                path,
                address: &shared.address,
                tls: shared.tls.as_ref(),
                authenticator: shared.authenticator.as_deref(),
                request_limit: (limit_option, shared.limit_bytes),
            }
        });
        listening.collect()
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        Box::pin(async move {
            let mut ports = Vec::new();
            for (transport, config, http) in self.ports() {
                let protocol = transport.as_str();
                let alpn = config.server.protocols.alpn();
                let what = format!("receiver {} ({protocol})", context.id);
                let tls = config.tls.clone().map(|tls| server_tls(&what, tls, alpn)).transpose();
                let tls = tls
                    .map_err(|error| ReceiverError::failed(format!("{protocol}: tls: {error}")))?;
                let bound = Listener::bind_or_take_over(&config.address, context.held).await;
                let listener = bound.map_err(|error| ReceiverError {
                    waits_for_held: matches!(error, BindError::Held { .. }),
                    ..ReceiverError::failed(format!("{protocol}: {error}"))
                })?;
                let (config, http) = (config.clone(), http.cloned());
                let receiver = context.id.into();
                ports.push(Port { receiver, transport, listener, tls, config, http });
            }
            Ok(Box::new(ports) as Box<dyn BoundReceiver>)
        })
    }
}

/// A port that is bound and not served yet.
struct Port {
    /// The receiver's id.
    receiver: Arc<str>,
    transport: Transport,
    listener: Listener,
    tls: Option<ServerTls>,
    config: SharedConfig,
    /// For HTTP.
    http: Option<HttpConfig>,
}

/// A receiver whose ports are bound and whose certificates are loaded: nothing can fail any more.
impl BoundReceiver for Vec<Port> {
    fn serve(self: Box<Self>, mut context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let before = context.take_counters::<Counters>();
        let before = before.filter(|counters| counters.is_of(&counters::OTLP));
        let counters = before.unwrap_or_default();
        let shutdown = CancellationToken::new();
        let inspector = inspect::Inspector::new();
        let (mut addresses, mut listeners, mut tasks) = (Vec::new(), Vec::new(), JoinSet::new());
        for Port { receiver, transport, listener, tls, config, http } in *self {
            let address = listener.local_address();
            addresses.extend(address.map(|address| (transport.as_str(), address.to_string())));
            listeners.push(listener.clone());
            let name = config.authenticator.as_ref();
            let authenticator = name.and_then(|name| context.authenticators.get(name).cloned());
            let options = config.server.clone();
            let ingest = ingest::Ingest {
                receiver,
                ingress: Arc::clone(&context.ingress),
                authenticator,
                counters: Arc::clone(&counters),
                config,
                scheduler: Arc::clone(&context.resources.scheduler),
                inspector: inspector.clone(),
            };
            let serving = Serving {
                options,
                tls,
                counters: Arc::clone(counters.connections(transport)),
                resources: context.resources.clone(),
                shutdown: shutdown.clone(),
            };
            match http {
                None => tasks.spawn(serve(listener, serving, grpc::GrpcHandler { ingest })),
                Some(http) => {
                    tasks.spawn(serve(listener, serving, http::HttpHandler::new(ingest, http)))
                }
            };
        }
        Box::new(Running { addresses, counters, listeners, tasks, shutdown })
    }
}

/// A receiver that listens.
pub(crate) struct Running {
    /// Bound addresses, with the real ports. Not those on Unix sockets.
    pub addresses: Vec<(&'static str, String)>,
    pub counters: Arc<Counters>,
    pub listeners: Vec<Listener>,
    pub tasks: JoinSet<()>,
    pub shutdown: CancellationToken,
}

impl StartedReceiver for Running {
    fn addresses(&self) -> Vec<(&'static str, String)> {
        self.addresses.clone()
    }

    fn listeners(&self) -> Vec<Listener> {
        self.listeners.clone()
    }

    fn counters(&self) -> Arc<dyn ReceiverCounters> {
        Arc::clone(&self.counters) as _
    }

    fn shutdown(mut self: Box<Self>) -> BoxFuture<'static, Streams> {
        Box::pin(async move {
            // Ports close as soon as they take nothing more.
            self.listeners.clear();
            self.shutdown.cancel();
            // Until all ports are closed and all their requests answered or cut off.
            while self.tasks.join_next().await.is_some() {}
            Streams::default()
        })
    }
}
