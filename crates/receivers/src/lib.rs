//! Receivers: what brings telemetry in. Each sees the engine only as a
//! [`sluice_flow::source::Ingress`].
//!
//! One folder a receiver, and its line in [`RECEIVERS`]: nothing else knows of a kind.

pub mod otlp;
mod receiver;

use sluice_config::{ComponentKind, ComponentKinds};
use sluice_telemetry::table::TableDoc;

pub use receiver::{
    BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverCounters, StartError, StartedReceiver,
};

/// A kind of receivers, with the table of the metrics that it exposes.
pub type ReceiverKind = ComponentKind<Box<dyn ReceiverConfig>, fn() -> TableDoc>;
/// A list of kinds of receivers.
pub type ReceiverKinds = ComponentKinds<Box<dyn ReceiverConfig>, fn() -> TableDoc>;

/// The kinds of receivers in this build.
pub static RECEIVERS: ReceiverKinds = ComponentKinds::new(&[otlp::KIND]);
