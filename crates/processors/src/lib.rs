//! Processors: steps on encoded requests between receivers and exporters.
//!
//! One folder a component, with every option in its README. [`PROCESSORS`] lists them; there is no
//! registration elsewhere. Components see `processor.rs`, never this list.

mod actions;
mod attributes;
mod batch;
mod cumulative_to_delta;
mod delta_to_cumulative;
mod fingerprint;
mod interval;
mod k8s_attributes;
mod matching;
mod memory_limiter;
mod processor;
mod resource;
mod resource_detection;
mod series;

use sluice_config::ComponentKinds;

pub use processor::Usage as SeriesUsage;
pub use processor::{
    Aggregated, BatchLimits, Build, Built, Edited, Emission, Emitter, EmitterCounts, MemoryLimit,
    Processor, ProcessorConfig, Remembered, RunningState,
};

/// The kinds of processors in this build.
pub static PROCESSORS: ComponentKinds<ProcessorConfig> = ComponentKinds::new(&[
    attributes::KIND,
    batch::KIND,
    cumulative_to_delta::KIND,
    delta_to_cumulative::KIND,
    interval::KIND,
    k8s_attributes::KIND,
    memory_limiter::KIND,
    resource::KIND,
    resource_detection::KIND,
]);
