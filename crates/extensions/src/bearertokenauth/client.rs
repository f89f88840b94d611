use std::fmt;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName};
use sluice_config::Secret;
use sluice_net::auth::client::{AuthError, ClientAuth, MetadataHeader};

use super::Config;
use crate::secret_source::{MadeValue, SecretSource};

/// Shows a token.
pub struct BearerClient {
    header: HeaderName,
    scheme: String,
    token: SecretSource,
    made: MadeValue,
}

impl fmt::Debug for BearerClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BearerClient({})", self.header)
    }
}

impl BearerClient {
    pub fn new(config: &Config) -> BearerClient {
        let token = config.tokens.first().map(Secret::expose).unwrap_or_default();
        BearerClient {
            header: config.header.clone(),
            scheme: config.scheme.clone(),
            token: SecretSource::of(config.filename.as_ref(), token),
            made: MadeValue::default(),
        }
    }
}

impl ClientAuth for BearerClient {
    fn authenticate<'a>(
        &'a self,
        headers: &'a mut HeaderMap,
        _: &'a [MetadataHeader],
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(async move {
            let token = self.token.read().await?;
            let value = self.made.get(std::slice::from_ref(&token), || match self.scheme.as_str() {
                "" => token.to_string(),
                scheme => format!("{scheme} {token}"),
            })?;
            headers.insert(self.header.clone(), value);
            Ok(())
        })
    }
}
