//! Processors: what is done to encoded requests between receivers and exporters.
//!
//! `resource` and `attributes` edit requests; `batch` and `memory_limiter` are settings that the
//! engine obeys.
//!
//! One folder a component, with every option in its README. [`PROCESSORS`] lists them; there is no
//! registration elsewhere.

mod actions;
mod attributes;
pub mod batch;
mod matching;
pub mod memory_limiter;
mod resource;

mod fingerprint;
mod go_regexp;
mod processor_config;
mod text;

use bytes::Bytes;
use sluice_config::ComponentKinds;
use sluice_flow::Metadata;
use sluice_otlp::{Malformed, Signal};

pub use processor_config::ProcessorConfig;

/// The kinds of processors in this build.
pub static PROCESSORS: ComponentKinds<Box<dyn ProcessorConfig>> =
    ComponentKinds::new(&[attributes::KIND, batch::KIND, memory_limiter::KIND, resource::KIND]);

/// What a processor made of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The request stays as it is, and so do the bytes in which it came.
    Unchanged,
    /// The request is now this one (not compressed), with so many spans, metric points or log
    /// records left in it.
    Changed { payload: Bytes, items: u32 },
}

/// Why a request could not be processed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// Cannot happen to a request that was validated on its way in.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Why a processor cannot be used in a pipeline although its options are valid by themselves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The message continues "in a pipeline for {signal}, ".
    #[error("in a pipeline for {signal}, {message}")]
    Unfit { signal: Signal, message: String },
}

/// A processor made for one signal, and what is doubtful about it there.
pub struct Built {
    pub processor: Box<dyn Processor>,
    /// Whole sentences for the log and for `validate`.
    pub warnings: Vec<String>,
}

/// Edits one request after another. Keeps nothing between them.
pub trait Processor: Send + Sync {
    /// `request` is uncompressed and was accepted by [`sluice_otlp::scan`]; any other may be an
    /// error.
    fn process(
        &self,
        signal: Signal,
        request: &Bytes,
        metadata: &Metadata,
    ) -> Result<Edit, ProcessError>;

    /// Names of the request metadata (lower case) that this processor reads.
    fn metadata_keys(&self) -> Vec<String> {
        Vec::new()
    }

    /// Stable hash of what the processor does: equal for equal configurations, over restarts and
    /// releases.
    fn fingerprint(&self) -> u64;
}
