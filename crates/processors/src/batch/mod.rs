//! `batch`: how large and how old a batch may become. The engine batches, behind its log, where
//! nothing can be lost.

mod config;

use sluice_config::{ComponentKind, Kind};

pub use config::{Config, read};

use crate::ProcessorConfig;

pub(crate) const KIND: ComponentKind<Box<dyn ProcessorConfig>> = ComponentKind::new(
    Kind::new("batch", "Says how large and how old batches may become"),
    |fields| Box::new(read(fields)),
);

impl ProcessorConfig for Config {
    fn batch(&self) -> Option<&Config> {
        Some(self)
    }
}
