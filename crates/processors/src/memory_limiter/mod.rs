//! `memory_limiter`: how much memory the process may take. The engine keeps to it, for all
//! pipelines together.

mod config;

use sluice_config::{ComponentKind, Kind};

pub use config::{Config, Limit, read};

use crate::ProcessorConfig;

pub(crate) const KIND: ComponentKind<Box<dyn ProcessorConfig>> = ComponentKind::new(
    Kind::new("memory_limiter", "Says how much memory the process may take"),
    |fields| Box::new(read(fields)),
);

impl ProcessorConfig for Config {
    fn memory_limiter(&self) -> Option<&Config> {
        Some(self)
    }
}
