//! `bearertokenauth`: tokens that are given out elsewhere (RFC 6750). Receivers let in any of them,
//! exporters show the first.

mod client;
mod config;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sluice_config::{ComponentKind, Kind};
use sluice_net::auth::client::{ClientAuth, ClientAuths};
use sluice_net::auth::server::ServerAuth;

use crate::{BuildError, ClientExtension, Extension, ServerExtension};

pub use client::BearerClient;
pub use config::Config;
pub use server::{BearerServer, TokensError};

pub(crate) const KIND: ComponentKind<Box<dyn Extension>> = ComponentKind::new(
    Kind::new("bearertokenauth", "Bearer tokens, for receivers and exporters.")
        .aliases(&["bearer_token_auth"]),
    |fields| Box::new(Config::read(fields)),
);

impl Extension for Config {
    fn client(&self) -> Option<&dyn ClientExtension> {
        Some(self)
    }

    fn server(&self) -> Option<&dyn ServerExtension> {
        Some(self)
    }
}

impl ClientExtension for Config {
    fn build(&self, _: &ClientAuths) -> Result<Arc<dyn ClientAuth>, BuildError> {
        Ok(Arc::new(BearerClient::new(self)))
    }
}

impl ServerExtension for Config {
    fn build(&self) -> Result<Arc<dyn ServerAuth>, BuildError> {
        Ok(Arc::new(BearerServer::new(self)?))
    }
}
