//! `oauth2client`: OAuth 2.0 client credentials (RFC 6749, section 4.4). Requests show a token that
//! is fetched when needed and kept until it ends.

mod client;
mod config;
mod token;

use std::sync::Arc;

use sluice_config::{ComponentKind, Kind};
use sluice_net::auth::client::{ClientAuth, ClientAuths};

use crate::{BuildError, ClientExtension, Extension};

pub use client::OAuth2Client;
pub use config::Config;
pub use token::Granted;

pub(crate) const KIND: ComponentKind<Box<dyn Extension>> = ComponentKind::new(
    Kind::new("oauth2client", "OAuth 2.0 client credentials, for exporters.")
        .aliases(&["oauth2_client"]),
    |fields| Box::new(Config::read(fields)),
);

impl Extension for Config {
    fn client(&self) -> Option<&dyn ClientExtension> {
        Some(self)
    }
}

impl ClientExtension for Config {
    fn build(&self, _: &ClientAuths) -> Result<Arc<dyn ClientAuth>, BuildError> {
        Ok(Arc::new(OAuth2Client::new(self)?))
    }
}
