//! An extension's sides for the components that name it, and its settings for the engine.

use std::path::PathBuf;
use std::sync::Arc;

use sluice_net::auth::client::{ClientAuth, ClientAuths};
use sluice_net::auth::server::ServerAuth;
use sluice_net::tls::TlsOptions;

/// Why an extension cannot be made. Each extension has errors of its own.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// An extension of a configuration with its options read.
#[derive(Default)]
pub struct Extension {
    /// Its client side: credentials of requests that exporters, or receivers that fetch, send.
    pub client: Option<ClientExtension>,
    /// Names of the senders' headers (lower case) that its client side passes on.
    pub metadata_keys: Vec<String>,
    /// Its server side: who may send to receivers.
    pub server: Option<BuildServer>,
    pub health_check: Option<HealthCheck>,
    /// The files with credentials that it reads, for `sluice validate`.
    pub credentials: Vec<CredentialsFile>,
    /// The directory of the engine's log.
    pub file_storage: Option<FileStorage>,
    /// Its place in the configuration, for messages of the engine: `gateway.yaml:3`.
    pub place: String,
}

/// A directory for the engine's log.
pub struct FileStorage {
    pub directory: String,
    /// Whether it is made if it is missing.
    pub creates_directory: bool,
}

/// A file with credentials that an extension reads, and reads again when it changes.
pub struct CredentialsFile {
    /// The option that names it, below the extension: `htpasswd.file`.
    pub option: &'static str,
    pub path: PathBuf,
    /// The consequence while the file cannot be used. `None`: Sluice does not start.
    pub otherwise: Option<&'static str>,
    /// Says why the file that is there cannot be used. Follows no changes.
    pub check: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// The client side of an extension.
pub struct ClientExtension {
    /// Name of the extension whose headers are set first. That one is built before.
    pub builds_on: Option<String>,
    /// Whether another extension may build on this one.
    pub is_foundation: bool,
    pub build: BuildClient,
}

/// Makes the client side. Its input has the extension that `builds_on` names. Reads certificates,
/// does not connect.
pub type BuildClient =
    Box<dyn Fn(&ClientAuths) -> Result<Arc<dyn ClientAuth>, BuildError> + Send + Sync>;

impl ClientExtension {
    /// One with credentials of its own.
    pub(crate) fn foundation<A: ClientAuth + 'static>(
        build: impl Fn() -> Result<A, BuildError> + Send + Sync + 'static,
    ) -> Self {
        let build = move |_: &ClientAuths| build().map(|it| Arc::new(it) as Arc<dyn ClientAuth>);
        ClientExtension { builds_on: None, is_foundation: true, build: Box::new(build) }
    }
}

/// Makes the server side of an extension. Reads files with credentials.
pub type BuildServer = Box<dyn Fn() -> Result<Arc<dyn ServerAuth>, BuildError> + Send + Sync>;

/// An address that tells whether the process is up. The engine serves it.
pub struct HealthCheck {
    /// `host:port`.
    pub endpoint: String,
    /// Begins with `/`.
    pub path: String,
    pub tls: Option<TlsOptions>,
}
