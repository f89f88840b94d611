//! OTLP over gRPC and HTTP.
//!
//! A request goes through the same steps over both transports, each as early as it can be taken:
//!
//! 1. authentication, from the headers alone;
//! 2. routing: does any pipeline take this signal from here?
//! 3. admission: memory is asked for with the length from the gRPC prefix or `content-length`, before the body is read;
//! 4. reading, bounded in size and time;
//! 5. inflating (bounded), validating and counting, in one pass over the bytes;
//! 6. handing in, compressed as it came where the engine keeps it so;
//! 7. the answer.
//!
//! What cannot be accepted is refused with the answer that makes OTLP clients do the right thing; see [`refusal`].

mod config;
mod counters;
mod grpc;
mod http;
mod ingest;
mod read;
pub mod refusal;
mod senders;

use std::net::SocketAddr;
use std::sync::Arc;

use sluice_flow::Intake;
use sluice_net::auth::server::Authenticator;
use sluice_net::server::{BindError, Listener, ServerCounters, serve};
use sluice_net::tls::{ServerTls, TlsError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use config::{GrpcConfig, HttpConfig, OtlpConfig, SharedConfig};
pub use counters::{OtlpCounters, SignalCounters, Transport};
pub use refusal::{Refused, RefusedReason};

/// The names of the component in configurations.
pub const KIND: &str = "otlp";

/// Why the receiver cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{protocol}: {error}")]
    Bind { protocol: &'static str, error: BindError },
    #[error("{protocol}: tls: {error}")]
    Tls { protocol: &'static str, error: TlsError },
}

/// Who may send, by protocol. `None`: anybody.
#[derive(Clone, Default)]
pub struct Authenticators {
    pub grpc: Option<Arc<Authenticator>>,
    pub http: Option<Arc<Authenticator>>,
}

/// A receiver that listens.
pub struct Running {
    /// Where gRPC is taken, with the real port. `None` if it is off or on a Unix socket.
    pub grpc_address: Option<SocketAddr>,
    pub http_address: Option<SocketAddr>,
    pub counters: Arc<OtlpCounters>,
    pub grpc_connections: Arc<ServerCounters>,
    pub http_connections: Arc<ServerCounters>,
    ports: JoinSet<()>,
}

impl Running {
    /// Waits until all ports are closed and all their requests answered or cut off. Cancel the token given to [`start`] first.
    pub async fn closed(mut self) {
        while self.ports.join_next().await.is_some() {}
    }
}

/// Binds the configured ports and serves them inside the calling runtime until `shutdown`.
pub async fn start(
    config: OtlpConfig,
    intake: Arc<dyn Intake>,
    authenticators: Authenticators,
    shutdown: CancellationToken,
) -> Result<Running, StartError> {
    let mut running = Running {
        grpc_address: None,
        http_address: None,
        counters: Arc::default(),
        grpc_connections: Arc::default(),
        http_connections: Arc::default(),
        ports: JoinSet::new(),
    };
    // Everything is bound before anything is served: a receiver starts whole or not at all.
    let grpc = match config.grpc {
        None => None,
        Some(grpc) => Some((bind("grpc", &grpc.shared).await?, grpc)),
    };
    let http = match config.http {
        None => None,
        Some(http) => Some((bind("http", &http.shared).await?, http)),
    };
    let windows_bytes = intake.windows_bytes();
    if let Some(((listener, tls), mut config)) = grpc {
        config.shared.server.windows_bytes = windows_bytes;
        running.grpc_address = listener.local_address();
        let ingest = ingest::Ingest::new(Arc::clone(&intake), authenticators.grpc, &running.counters, &config.shared);
        let handler = Arc::new(grpc::GrpcHandler::new(ingest));
        let counters = Arc::clone(&running.grpc_connections);
        running.ports.spawn(serve(listener, config.shared.server, tls, handler, counters, shutdown.clone()));
    }
    if let Some(((listener, tls), mut config)) = http {
        config.shared.server.windows_bytes = windows_bytes;
        running.http_address = listener.local_address();
        let ingest = ingest::Ingest::new(intake, authenticators.http, &running.counters, &config.shared);
        let server = config.shared.server.clone();
        let handler = Arc::new(http::HttpHandler::new(ingest, config));
        let counters = Arc::clone(&running.http_connections);
        running.ports.spawn(serve(listener, server, tls, handler, counters, shutdown));
    }
    Ok(running)
}

async fn bind(protocol: &'static str, config: &SharedConfig) -> Result<(Listener, Option<ServerTls>), StartError> {
    let tls = match &config.tls {
        None => None,
        Some(options) => Some(
            ServerTls::new(options.clone(), config.server.protocols.alpn())
                .map_err(|error| StartError::Tls { protocol, error })?,
        ),
    };
    let listener = Listener::bind(&config.address).await.map_err(|error| StartError::Bind { protocol, error })?;
    Ok((listener, tls))
}
