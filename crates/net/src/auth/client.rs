//! Credentials of requests to servers, for exporters and for receivers that fetch.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use sluice_config::Fields;

/// Why a request could not be authenticated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CredentialsError {
    pub reason: String,
    /// The token endpoint cannot be reached or is overloaded. Otherwise the configuration or a file
    /// must change: a file cannot be read, the token endpoint refuses the client.
    pub is_temporary: bool,
}

impl CredentialsError {
    pub fn misconfigured(reason: impl Into<String>) -> CredentialsError {
        CredentialsError { reason: reason.into(), is_temporary: false }
    }

    pub fn unavailable(reason: impl Into<String>) -> CredentialsError {
        CredentialsError { reason: reason.into(), is_temporary: true }
    }
}

/// A header that a sender's request had: name in lower case, value.
pub type MetadataHeader = (String, Vec<u8>);

/// Puts credentials into requests.
pub trait ClientAuth: Send + Sync {
    /// Adds headers. `metadata`: headers of the senders' requests, empty for a receiver that
    /// fetches. Waits only where a token has to be fetched or a changed file has to be read.
    fn authenticate<'a>(
        &'a self,
        headers: &'a mut HeaderMap,
        metadata: &'a [MetadataHeader],
    ) -> BoxFuture<'a, Result<(), CredentialsError>>;

    /// The server did not take the credentials: a cached token is not used again.
    fn refused(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Why no request can ever be sent for senders with this metadata.
    fn refuses(&self, _metadata: &[MetadataHeader]) -> Option<String> {
        None
    }

    /// Names of the metadata that [`ClientAuth::authenticate`] reads, in lower case.
    fn metadata_keys(&self) -> &[String] {
        &[]
    }
}

/// The extensions that authenticate requests, by name: `oauth2client/backend`.
pub type ClientAuths = HashMap<String, Arc<dyn ClientAuth>>;

/// The value of `authorization` for `user:password` (RFC 7617).
pub fn basic_credentials(user_and_password: impl AsRef<[u8]>) -> String {
    format!("Basic {}", STANDARD.encode(user_and_password))
}

/// Reads `auth.authenticator`: the extension that authenticates requests.
pub fn read_authenticator(fields: &mut Fields<'_>) -> Option<String> {
    let doc = "Name of the extension that authenticates requests, with its `/name` if it has one.";
    let section = "Authentication of requests.";
    let name = fields.section_unless_empty("auth", section, |fields| {
        fields.required_string("authenticator", doc)
    });
    name.filter(|name| !name.is_empty())
}
