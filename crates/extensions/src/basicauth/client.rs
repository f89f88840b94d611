use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use sluice_net::auth::client::{AuthError, ClientAuth, MetadataHeader};

use super::ClientConfig;
use crate::secret_source::{MadeValue, SecretSource};

/// Shows a user name and a password.
pub struct BasicClient {
    username: SecretSource,
    password: SecretSource,
    made: MadeValue,
}

impl fmt::Debug for BasicClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BasicClient(hidden)")
    }
}

impl BasicClient {
    pub fn new(config: &ClientConfig) -> BasicClient {
        BasicClient {
            username: SecretSource::of(config.username_file.as_ref(), &config.username),
            password: SecretSource::of(config.password_file.as_ref(), config.password.expose()),
            made: MadeValue::default(),
        }
    }
}

impl ClientAuth for BasicClient {
    fn authenticate<'a>(
        &'a self,
        headers: &'a mut HeaderMap,
        _: &'a [MetadataHeader],
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(async move {
            let secrets = [self.username.read().await?, self.password.read().await?];
            let value = self.made.get(&secrets, || credentials(&secrets[0], &secrets[1]))?;
            headers.insert(AUTHORIZATION, value);
            Ok(())
        })
    }
}

/// The value of `authorization`.
pub(crate) fn credentials(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}
