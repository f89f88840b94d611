//! Receivers: what brings telemetry in. Each sees the engine only as a [`sluice_flow::Intake`].

mod kinds;
pub mod otlp;

pub use kinds::{Bound, ReceiverConfig, Running, kinds};
pub use otlp::Counters;
