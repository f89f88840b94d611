use std::fmt;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_config::Secret;
use sluice_net::auth::client::{AuthError, ClientAuth, MetadataHeader};

use super::Config;
use crate::secret_source::{MadeFromSecrets, SecretSource, sensitive};

/// Shows a token.
pub struct BearerClient {
    header: HeaderName,
    value: MadeFromSecrets<HeaderValue>,
}

impl fmt::Debug for BearerClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BearerClient({})", self.header)
    }
}

impl BearerClient {
    pub fn new(config: &Config) -> BearerClient {
        let token = config.tokens.first().map(Secret::expose).unwrap_or_default();
        let token = SecretSource::of(config.filename.as_ref(), token);
        let scheme = config.scheme.clone();
        let is_file = config.filename.is_some();
        let make = move |[secret]: [&str; 1]| {
            let token = if is_file { first_line(secret) } else { secret };
            match scheme.as_str() {
                "" => sensitive(token),
                scheme => sensitive(&format!("{scheme} {token}")),
            }
        };
        BearerClient {
            header: config.header.clone(),
            value: MadeFromSecrets::new("a bearer token", [token], make),
        }
    }

    #[cfg(test)]
    pub(super) fn check_files(&self) {
        self.value.check_files();
    }
}

/// A file has a token a line, for the server side. The client side shows the first.
fn first_line(content: &str) -> &str {
    content.lines().next().unwrap_or_default().trim_end()
}

impl ClientAuth for BearerClient {
    fn authenticate<'a>(
        &'a self,
        headers: &'a mut HeaderMap,
        _: &'a [MetadataHeader],
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        let shown = self.value.get().map(|value| {
            headers.insert(self.header.clone(), value);
        });
        Box::pin(std::future::ready(shown))
    }
}
