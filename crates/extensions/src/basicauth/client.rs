use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use sluice_net::auth::client::{AuthError, ClientAuth, MetadataHeader};

use super::ClientConfig;
use crate::secret_source::{MadeFromSecrets, SecretSource, sensitive};

/// Shows a user name and a password.
pub struct BasicClient(MadeFromSecrets<HeaderValue>);

impl fmt::Debug for BasicClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BasicClient(hidden)")
    }
}

impl BasicClient {
    pub fn new(config: &ClientConfig) -> BasicClient {
        let username = SecretSource::of(config.username_file.as_ref(), &config.username);
        let password = SecretSource::of(config.password_file.as_ref(), config.password.expose());
        let make = |[username, password]: [&str; 2]| sensitive(&credentials(username, password));
        BasicClient(MadeFromSecrets::new("user name and password", [username, password], make))
    }
}

impl ClientAuth for BasicClient {
    fn authenticate<'a>(
        &'a self,
        headers: &'a mut HeaderMap,
        _: &'a [MetadataHeader],
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        let shown = self.0.get().map(|value| {
            headers.insert(AUTHORIZATION, value);
        });
        Box::pin(std::future::ready(shown))
    }
}

/// The value of `authorization`.
pub(crate) fn credentials(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}
