//! Receivers: what brings telemetry in. Each sees the engine only as a [`sluice_flow::source::Ingress`].
//!
//! One folder a receiver, and its line in [`RECEIVERS`]: nothing else knows of a kind.

pub mod otlp;
mod receiver;

use sluice_config::ComponentKinds;
use sluice_telemetry::table::TableDoc;

pub use receiver::{BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverCounters, StartError, StartedReceiver};

/// A list of kinds of receivers.
pub type ReceiverKinds = ComponentKinds<Box<dyn ReceiverConfig>>;

/// The kinds of receivers in this build.
pub static RECEIVERS: ReceiverKinds = ComponentKinds::new(&[otlp::KIND]);

/// What the kinds of receivers expose.
pub fn metric_tables() -> Vec<TableDoc> {
    vec![otlp::METRICS.describe()]
}
