//! What an exporter is to the rest of the program: its options, and the context in which it is
//! made. Nothing here knows an exporter.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use sluice_flow::{Exporter, Metadata, Outcome};
use sluice_net::auth::client::{ClientAuth, ClientAuths};
use sluice_otlp::Signal;

use crate::client_options::ClientOptions;
use crate::files::Files;
use crate::outcome;
use crate::sending::Sending;

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

/// Why an exporter could not be made.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// What an exporter gets beside its own options.
pub struct BuildContext<'a> {
    /// The component's name: `otlp/backend`.
    pub name: &'a str,
    /// The authentication extensions by their names: `oauth2client/backend`.
    pub authenticators: &'a ClientAuths,
    /// `user-agent` of requests: `sluice/0.1.0`.
    pub user_agent: &'a str,
    /// The same for all exporters of a process.
    pub files: &'a Files,
}

impl BuildContext<'_> {
    pub(crate) fn user_agent(&self) -> HeaderValue {
        HeaderValue::from_str(self.user_agent).unwrap_or(HeaderValue::from_static("sluice"))
    }

    /// The credentials of requests, by the option `auth.authenticator`.
    pub(crate) fn credentials(&self, client: &ClientOptions) -> Result<Credentials, BuildError> {
        let find = |name: &String| {
            self.authenticators.get(name).cloned().ok_or_else(|| {
                format!(
                    "there is no authentication extension {name:?} among the extensions of the \
                     service"
                )
            })
        };
        Ok(Credentials(client.authenticator.as_ref().map(find).transpose()?))
    }
}

/// The authentication extension of an exporter, if it has one.
pub(crate) struct Credentials(Option<Arc<dyn ClientAuth>>);

impl Credentials {
    /// The headers of one request: those that all have, and its credentials. Without credentials
    /// nothing is copied.
    pub(crate) async fn headers<'a>(
        &self,
        fixed: &'a HeaderMap,
        metadata: &Metadata,
    ) -> Result<Cow<'a, HeaderMap>, Outcome> {
        let Some(auth) = &self.0 else { return Ok(Cow::Borrowed(fixed)) };
        let mut headers = fixed.clone();
        let authenticated = auth.authenticate(&mut headers, &metadata.headers).await;
        authenticated.map(|()| Cow::Owned(headers)).map_err(outcome::of_auth_error)
    }

    /// The backend did not take them.
    pub(crate) async fn refused(&self) {
        if let Some(auth) = &self.0 {
            auth.refused().await;
        }
    }

    pub(crate) fn refuses(&self, metadata: &Metadata) -> Option<String> {
        self.0.as_ref()?.refuses(&metadata.headers)
    }

    pub(crate) fn metadata_keys(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |auth| auth.metadata_keys())
    }
}
