//! The list of receivers.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_config::{Fields, Kind};
use sluice_flow::Intake;
use sluice_net::auth::server::Authenticator;
use sluice_net::server::{Listener, ServerResources};
use tokio_util::sync::CancellationToken;

use crate::otlp::{self, Counters, OtlpConfig, StartError};

/// The kinds of receivers in this build.
pub fn kinds() -> &'static [Kind] {
    const KINDS: &[Kind] = &[Kind::new("otlp", "Receives OTLP over gRPC and HTTP, in protobuf and JSON")];
    KINDS
}

/// What a receiver's section of the configuration says.
#[derive(Clone, Debug)]
pub enum ReceiverConfig {
    Otlp(Box<OtlpConfig>),
}

impl ReceiverConfig {
    /// Reads the options of a receiver of the kind with this canonical name; nothing if there is no such kind.
    pub fn read(kind: &str, fields: &mut Fields<'_>) -> Option<ReceiverConfig> {
        match kind {
            otlp::KIND => Some(ReceiverConfig::Otlp(Box::new(OtlpConfig::read(fields)))),
            _ => None,
        }
    }

    /// Names of the extensions that decide who may send.
    pub fn authenticators(&self) -> Vec<&str> {
        let ReceiverConfig::Otlp(config) = self;
        let grpc = config.grpc.as_ref().and_then(|grpc| grpc.shared.authenticator.as_deref());
        let http = config.http.as_ref().and_then(|http| http.shared.authenticator.as_deref());
        grpc.into_iter().chain(http).collect()
    }

    /// Binds its ports, or takes over those of `held` that have the same addresses; nothing is served yet.
    pub async fn bind(&self, held: &[Listener]) -> Result<Bound, StartError> {
        let ReceiverConfig::Otlp(config) = self;
        Ok(Bound {
            grpc_authenticator: config.grpc.as_ref().and_then(|grpc| grpc.shared.authenticator.clone()),
            http_authenticator: config.http.as_ref().and_then(|http| http.shared.authenticator.clone()),
            ports: otlp::bind((**config).clone(), held).await?,
        })
    }
}

/// A receiver that has its ports.
pub struct Bound {
    grpc_authenticator: Option<String>,
    http_authenticator: Option<String>,
    ports: otlp::Bound,
}

impl Bound {
    /// Serves inside the calling runtime. `authenticators` holds at least those that the configuration names; `counters` are
    /// those of the receiver that this one takes the place of, so that they go on; all receivers share `resources`.
    pub fn serve(
        self,
        intake: Arc<dyn Intake>,
        authenticators: &HashMap<String, Arc<Authenticator>>,
        counters: Counters,
        resources: ServerResources,
    ) -> Running {
        let find = |name: Option<String>| name.and_then(|name| authenticators.get(&name)).cloned();
        let chosen = otlp::Authenticators { grpc: find(self.grpc_authenticator), http: find(self.http_authenticator) };
        let stop = CancellationToken::new();
        Running { running: self.ports.serve(intake, chosen, counters, resources, stop.clone()), stop }
    }
}

/// A receiver that runs until [`Running::shutdown`].
pub struct Running {
    running: otlp::Running,
    stop: CancellationToken,
}

impl Running {
    /// Protocol and address, as bound.
    pub fn addresses(&self) -> Vec<(&'static str, String)> {
        let grpc = self.running.grpc_address.map(|address| ("grpc", address.to_string()));
        let http = self.running.http_address.map(|address| ("http", address.to_string()));
        grpc.into_iter().chain(http).collect()
    }

    /// What it listens on. Whoever keeps them keeps the ports open.
    pub fn listeners(&self) -> Vec<Listener> {
        self.running.listeners()
    }

    pub fn counters(&self) -> Counters {
        self.running.counters.clone()
    }

    /// Stops listening, lets requests in flight end, bounded in time by the receiver's grace period.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.running.closed().await;
    }
}
