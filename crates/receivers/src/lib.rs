//! Receivers: what brings telemetry in. Each sees the engine only as a [`sluice_flow::Intake`].

mod kinds;
pub mod otlp;

use sluice_telemetry::table::TableDoc;

pub use kinds::{Bound, ReceiverConfig, Running, kinds};
pub use otlp::Counters;

/// What the kinds of receivers expose.
pub fn metric_tables() -> Vec<TableDoc> {
    vec![otlp::METRICS.describe()]
}
