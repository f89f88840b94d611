//! The context in which exporters are made, and why that can fail.

use http::HeaderValue;
use sluice_net::auth::client::ClientAuths;
use sluice_net::client::{EndpointError, UrlError};
use sluice_net::tls::TlsError;

use crate::credentials::Credentials;
use crate::file::Files;

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
        HeaderValue::from_str(self.user_agent)
            .unwrap_or_else(|_| HeaderValue::from_static("sluice"))
    }

    /// The credentials of requests, by the option `auth.authenticator`.
    pub(crate) fn credentials(
        &self,
        authenticator: Option<&str>,
    ) -> Result<Credentials, BuildError> {
        let Some(name) = authenticator else { return Ok(Credentials::none()) };
        match self.authenticators.get(name) {
            Some(auth) => Ok(Credentials::of(auth.clone())),
            None => Err(BuildError::Authenticator { name: name.to_owned() }),
        }
    }
}

/// Why an exporter could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Origin(#[from] UrlError),
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    #[error("the URL {url:?} cannot be used: {reason}")]
    Url { url: String, reason: String },
    #[error("the proxy cannot be used: {reason}")]
    Proxy { reason: String },
    #[error("there is no authentication extension {name:?} among the extensions of the service")]
    Authenticator { name: String },
    #[error("cannot open {path}: {reason}")]
    File { path: String, reason: String },
}
