//! `health_check`: an address that answers 200 while data can be accepted. The engine serves it,
//! because it alone knows the deliveries.

mod config;

use sluice_config::{ComponentKind, Kind};

use crate::Extension;

pub use config::Config;

pub(crate) const KIND: ComponentKind<Box<dyn Extension>> = ComponentKind::new(
    Kind::new("health_check", "Answers 200 while data can be accepted; the body names deliveries that are sick.")
        .aliases(&["healthcheck", "healthcheckv2"]),
    |fields| Box::new(Config::read(fields)),
);

impl Extension for Config {
    fn health_check(&self) -> Option<&Config> {
        Some(self)
    }
}
