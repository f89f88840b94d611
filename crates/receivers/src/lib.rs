//! Receivers: what brings telemetry in. Each sees the engine only as a [`sluice_flow::Intake`].

mod kinds;
pub mod otlp;

pub use kinds::{Bound, Counters, ReceiverConfig, Running, kinds};
