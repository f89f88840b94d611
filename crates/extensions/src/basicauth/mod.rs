//! `basicauth`: user names and passwords (RFC 7617). Receivers check them against htpasswd lines,
//! exporters show one.

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

pub use client::BasicClient;
pub(crate) use client::credentials;
pub use config::{ClientConfig, Config, ServerConfig};
pub use server::{BasicServer, UsersError};

pub(crate) const KIND: ComponentKind<Box<dyn Extension>> = ComponentKind::new(
    Kind::new(
        "basicauth",
        "User names and passwords, for receivers (htpasswd) and exporters (client_auth).",
    )
    .aliases(&["basic_auth"]),
    |fields| Box::new(Config::read(fields)),
);

impl Extension for Config {
    fn client(&self) -> Option<&dyn ClientExtension> {
        self.client.as_ref().map(|client| client as &dyn ClientExtension)
    }

    fn server(&self) -> Option<&dyn ServerExtension> {
        self.server.as_ref().map(|server| server as &dyn ServerExtension)
    }
}

impl ClientExtension for ClientConfig {
    fn build(&self, _: &ClientAuths) -> Result<Arc<dyn ClientAuth>, BuildError> {
        Ok(Arc::new(BasicClient::new(self)))
    }
}

impl ServerExtension for ServerConfig {
    fn build(&self) -> Result<Arc<dyn ServerAuth>, BuildError> {
        Ok(Arc::new(BasicServer::new(self)?))
    }
}
