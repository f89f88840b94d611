//! `headers_setter`: headers of requests to backends, from fixed values and from the metadata of
//! the senders' requests.

mod client;
mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sluice_config::{ComponentKind, Kind};
use sluice_net::auth::client::{ClientAuth, ClientAuths};

use crate::{BuildError, ClientExtension, Extension};

pub use client::HeadersSetter;
pub use config::{Config, HeaderAction, HeaderRule};

pub(crate) const KIND: ComponentKind<Box<dyn Extension>> = ComponentKind::new(
    Kind::new(
        "headers_setter",
        "Headers of requests to backends, from the senders' request metadata.",
    ),
    |fields| Box::new(Config::read(fields)),
);

impl Extension for Config {
    fn client(&self) -> Option<&dyn ClientExtension> {
        Some(self)
    }
}

impl ClientExtension for Config {
    fn builds_on(&self) -> Option<&str> {
        self.additional_auth.as_deref()
    }

    fn is_foundation(&self) -> bool {
        false
    }

    fn build(&self, others: &ClientAuths) -> Result<Arc<dyn ClientAuth>, BuildError> {
        Ok(Arc::new(HeadersSetter::new(self, others)?))
    }
}
