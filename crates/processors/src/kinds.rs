//! The list of processors.

use sluice_config::{Fields, Kind};
use sluice_otlp::Signal;

use crate::{BuildError, Built, attributes, batch, memory_limiter, resource};

/// What a processor's section of the configuration says.
#[derive(Clone, Debug)]
pub enum Settings {
    Attributes(Box<attributes::Config>),
    Batch(batch::Config),
    MemoryLimiter(memory_limiter::Config),
    Resource(resource::Config),
}

/// The kinds of processors that this build has.
pub fn kinds() -> &'static [Kind] {
    static KINDS: [Kind; 4] = [
        Kind::new(
            "attributes",
            "Sets, removes, hashes, extracts and converts attributes of spans, data points and log records",
        ),
        Kind::new("batch", "Says how large and how old batches may become"),
        Kind::new("memory_limiter", "Says how much memory the process may take"),
        Kind::new("resource", "Sets, removes, hashes, extracts and converts attributes of resources"),
    ];
    &KINDS
}

/// Reads the options of a processor of the kind with this canonical name; nothing if there is no such kind.
pub fn read(kind: &str, fields: &mut Fields<'_>) -> Option<Settings> {
    match kind {
        "attributes" => Some(Settings::Attributes(Box::new(attributes::read(fields)))),
        "batch" => Some(Settings::Batch(batch::read(fields))),
        "memory_limiter" => Some(Settings::MemoryLimiter(memory_limiter::read(fields))),
        "resource" => Some(Settings::Resource(resource::read(fields))),
        _ => None,
    }
}

impl Settings {
    /// Makes the processor for pipelines of one signal; nothing for those that are settings only.
    ///
    /// # Errors
    /// [`BuildError`] where the settings do not fit the signal.
    pub fn build(&self, signal: Signal) -> Result<Option<Built>, BuildError> {
        match self {
            Settings::Attributes(config) => {
                let (processor, warnings) = attributes::Attributes::new((**config).clone(), signal)?;
                Ok(Some(Built { processor: Box::new(processor), warnings }))
            }
            Settings::Resource(config) => {
                let processor = Box::new(resource::Resource::new(config.clone()));
                Ok(Some(Built { processor, warnings: Vec::new() }))
            }
            Settings::Batch(_) | Settings::MemoryLimiter(_) => Ok(None),
        }
    }
}
