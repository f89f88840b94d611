//! Sluice's own telemetry: metrics as Prometheus text and as OTLP, and structured logs that never
//! flood.

pub mod exposition;
pub mod logging;
pub mod otlp;
pub mod sampler;
pub mod table;
