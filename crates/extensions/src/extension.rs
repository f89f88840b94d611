//! What an extension can do for the components that name it, and for the engine.

use std::fmt;
use std::sync::Arc;

use sluice_net::auth::client::{ClientAuth, ClientAuths};
use sluice_net::auth::server::ServerAuth;

/// Why an extension cannot be made. Each extension has errors of its own.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// An extension of a configuration with its options read. `Debug` must not show secrets.
pub trait Extension: fmt::Debug + Send + Sync {
    /// Its client side: credentials of requests that exporters, or receivers that fetch, send.
    fn client(&self) -> Option<&dyn ClientExtension> {
        None
    }

    /// Its server side: who may send to receivers.
    fn server(&self) -> Option<&dyn ServerExtension> {
        None
    }

    fn health_check(&self) -> Option<&HealthCheck> {
        None
    }

    fn file_storage(&self) -> Option<&FileStorage> {
        None
    }
}

/// The client side of an extension.
pub trait ClientExtension {
    /// Name of the extension whose headers are set first. That one is built before.
    fn builds_on(&self) -> Option<&str> {
        None
    }

    /// Whether another extension may build on this one.
    fn is_foundation(&self) -> bool {
        true
    }

    /// Makes the client side. `others` has what [`ClientExtension::builds_on`] names. Reads
    /// certificates, does not connect.
    fn build(&self, others: &ClientAuths) -> Result<Arc<dyn ClientAuth>, BuildError>;
}

/// The server side of an extension.
pub trait ServerExtension {
    /// Makes the server side. Reads files with credentials.
    fn build(&self) -> Result<Arc<dyn ServerAuth>, BuildError>;
}

/// An address that tells whether the process is up. The engine serves it.
#[derive(Debug)]
pub struct HealthCheck {
    /// `host:port`.
    pub endpoint: String,
    /// Begins with `/`.
    pub path: String,
}

/// Where the engine's log lives.
#[derive(Debug)]
pub struct FileStorage {
    pub directory: String,
}
