//! Sluice's own telemetry: metrics as Prometheus text, and structured logs that never flood.

pub mod exposition;
pub mod logging;
pub mod sampler;
pub mod table;
