//! An exporter's options, and the context in which it is made. Nothing here knows an exporter.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::HeaderValue;
use sluice_flow::{BoxFuture, Exporter};
use sluice_net::auth::client::ClientAuths;
use sluice_net::auth::server::ServerAuth;
use sluice_net::client::Target;
use sluice_net::server::{Listener, Listening};
use sluice_otlp::{Beyond, Malformed, Signal};

use crate::client_options::ClientOptions;
use crate::files::Files;
use crate::pages::Pages;
use crate::sending::Sending;

/// The largest request of exporters without a backend, in bytes.
pub(crate) const LOCAL_REQUEST_LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// A place that an exporter sends to, for checks and `sluice plan`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTarget {
    /// The option that names it.
    pub option: &'static str,
    /// As it may be shown: see [`sluice_config::shown_url`].
    pub text: String,
    /// None: no host, but a file or the like.
    pub target: Option<Target>,
    /// None: TLS does not apply.
    pub tls: Option<bool>,
}

/// Changes each request of the log before it is cut, merged and packed: what it says is the same
/// however often, and in which company, parts of the request are sent.
pub trait LastStep: Send + Sync {
    /// None if the request stays as it is. The changed one has the same items. `limit_bytes`: of
    /// the memory that this takes.
    fn change(
        &self,
        signal: Signal,
        request: &Bytes,
        limit_bytes: usize,
    ) -> Result<Result<Option<Bytes>, Beyond>, Malformed>;

    /// Hash of its effect: the same for a configuration, over restarts and releases.
    fn fingerprint(&self) -> u64;
}

/// Sizes of batches in items, where the backend has a preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchItems {
    /// A batch of this many goes out, unless the configuration says otherwise.
    pub full: usize,
    /// No batch has more.
    pub most: usize,
    /// Batches get smaller, down to this, while the backend does not answer them in time.
    pub least: usize,
}

/// The options of one exporter.
pub trait ExporterConfig: Send + Sync {
    /// The options that its delivery interprets.
    fn sending(&self) -> &Sending {
        static UNSET: LazyLock<Sending> = LazyLock::new(Sending::default);
        self.client().map_or(&UNSET, |client| &client.sending)
    }

    /// True for an exporter that may lose data rather than slow senders down.
    fn is_best_effort(&self) -> bool {
        false
    }

    /// The options of an exporter that sends over the network.
    fn client(&self) -> Option<&ClientOptions> {
        None
    }

    /// Whether requests go to all addresses of a name in turn.
    fn spreads_requests(&self) -> bool {
        false
    }

    /// Connections or files that it may have open while this many requests are in flight.
    fn open_files(&self, requests: usize) -> usize {
        if self.client().is_some() { requests } else { 1 }
    }

    /// The places that it sends to.
    fn destinations(&self) -> Vec<NamedTarget> {
        Vec::new()
    }

    /// The address that it serves, if it does: [`BuildContext::listener`].
    fn listening(&self) -> Option<Listening<'_>> {
        None
    }

    /// Whether a part of the memory limit is its own: [`BuildContext::memory_bytes`].
    fn keeps_memory(&self) -> bool {
        false
    }

    /// The option that is missing if no requests of this signal can be sent.
    fn missing_option(&self, _signal: Signal) -> Option<&'static str> {
        None
    }

    /// The largest request that the backend takes, in bytes as sent.
    fn request_limit_bytes(&self) -> usize {
        self.client().map_or(LOCAL_REQUEST_LIMIT_BYTES, |client| client.max_request_bytes)
    }

    /// Sizes of its batches. None: bytes alone count.
    fn batch_items(&self) -> Option<BatchItems> {
        None
    }

    /// The step behind all processors of its pipelines, if it has one.
    fn last_step(&self) -> Option<Arc<dyn LastStep>> {
        None
    }

    /// Tries whether files can be written, without writing. Comes before [`ExporterConfig::build`].
    fn check(&self) -> BoxFuture<'_, Result<(), BuildError>> {
        Box::pin(async { Ok(()) })
    }

    /// Makes the exporter, inside a tokio runtime. Reads certificates; neither writes nor connects.
    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError>;
}

/// Why an exporter could not be made.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// Input for making an exporter, beside its own options.
pub struct BuildContext<'a> {
    /// The component's name: `otlp/backend`.
    pub name: &'a str,
    /// The authentication extensions by their names: `oauth2client/backend`.
    pub authenticators: &'a ClientAuths,
    /// At least the one that [`Listening::authenticator`] names.
    pub servers: &'a HashMap<String, Arc<dyn ServerAuth>>,
    /// Bound to [`ExporterConfig::listening`].
    pub listener: Option<Listener>,
    /// Its own part of the memory limit, if it [`ExporterConfig::keeps_memory`].
    pub memory_bytes: usize,
    /// `user-agent` of requests: `sluice/0.1.0`.
    pub user_agent: HeaderValue,
    /// The same for all exporters of a process.
    pub files: &'a Files,
    /// The same for all exporters of a process.
    pub pages: &'a Pages,
}
