//! What the rest of the program knows of an exporter's configuration.

use std::fmt;
use std::sync::Arc;

use sluice_flow::Exporter;
use sluice_otlp::Signal;

use crate::client_options::ClientOptions;
use crate::{BuildContext, BuildError, Sending};

/// The largest request of exporters without a backend, in bytes.
const LOCAL_REQUEST_LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// The options of one exporter. `Debug` must not show secrets.
pub trait ExporterConfig: fmt::Debug + Send + Sync {
    /// The options that its delivery interprets.
    fn sending(&self) -> &Sending;

    /// True for an exporter that may lose data rather than slow senders down.
    fn is_best_effort(&self) -> bool {
        false
    }

    /// The options of an exporter that sends over the network.
    fn client(&self) -> Option<&ClientOptions> {
        None
    }

    /// The option that is missing if no requests of this signal can be sent.
    fn missing_option(&self, _signal: Signal) -> Option<&'static str> {
        None
    }

    /// The largest request that the backend takes, in bytes as sent.
    fn request_limit_bytes(&self) -> usize {
        self.client().map_or(LOCAL_REQUEST_LIMIT_BYTES, |client| client.max_request_bytes)
    }

    /// Name of the extension that authenticates its requests.
    fn authenticator(&self) -> Option<&str> {
        self.client()?.authenticator.as_deref()
    }

    /// Makes the exporter. Tries files and reads certificates, but writes nothing and does not
    /// connect. Must run inside a tokio runtime.
    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError>;
}
