//! What the rest of the program knows of a processor's configuration.

use std::fmt;

use sluice_otlp::Signal;

use crate::{BuildError, Built, batch, memory_limiter};

/// The options of one processor. `Debug` must not show secrets.
pub trait ProcessorConfig: fmt::Debug + Send + Sync {
    /// Makes the processor for pipelines of one signal. None for a processor that is only settings
    /// for the engine. An error where the options do not fit the signal.
    fn build(&self, signal: Signal) -> Result<Option<Built>, BuildError> {
        let _ = signal;
        Ok(None)
    }

    /// Ceilings of batches, which the engine makes.
    fn batch(&self) -> Option<&batch::Config> {
        None
    }

    /// The memory of the process, which the engine shares out.
    fn memory_limiter(&self) -> Option<&memory_limiter::Config> {
        None
    }
}
