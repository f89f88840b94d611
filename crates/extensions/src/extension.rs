//! An extension's sides for the components that name it, and its settings for the engine.

use std::sync::Arc;

use sluice_net::auth::client::{ClientAuth, ClientAuths};
use sluice_net::auth::server::ServerAuth;

/// Why an extension cannot be made. Each extension has errors of its own.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// An extension of a configuration with its options read.
#[derive(Default)]
pub struct Extension {
    /// Its client side: credentials of requests that exporters, or receivers that fetch, send.
    pub client: Option<Box<dyn ClientExtension>>,
    /// Its server side: who may send to receivers.
    pub server: Option<BuildServer>,
    pub health_check: Option<HealthCheck>,
    /// The directory of the engine's log.
    pub file_storage: Option<String>,
}

/// The client side of an extension.
pub trait ClientExtension: Send + Sync {
    /// Name of the extension whose headers are set first. That one is built before.
    fn builds_on(&self) -> Option<&str> {
        None
    }

    /// Whether another extension may build on this one.
    fn is_foundation(&self) -> bool {
        true
    }

    /// Makes the client side. `others` has the extension that [`ClientExtension::builds_on`] names.
    /// Reads certificates, does not connect.
    fn build(&self, others: &ClientAuths) -> Result<Arc<dyn ClientAuth>, BuildError>;
}

/// Makes the server side of an extension. Reads files with credentials.
pub type BuildServer = Box<dyn Fn() -> Result<Arc<dyn ServerAuth>, BuildError> + Send + Sync>;

/// An address that tells whether the process is up. The engine serves it.
pub struct HealthCheck {
    /// `host:port`.
    pub endpoint: String,
    /// Begins with `/`.
    pub path: String,
}
