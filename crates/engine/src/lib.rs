//! Wiring: starts, reloads and shuts down receivers, logs, deliveries and exporters.

mod ack;
mod admin;
mod backlog;
mod catalog;
mod dashboard;
mod delivery;
mod engine;
mod entry;
mod error;
mod extensions;
mod hop;
mod intake;
mod large_work;
mod metrics;
mod own_telemetry;
pub mod plan;
mod private_memory;
pub mod process;
mod receiving;
pub mod reference;
mod shared_work;
mod status;
mod steps;
mod storage;
pub mod stored;

pub use catalog::Components;
pub use delivery::{DeliveryId, Policy};
pub use engine::{Engine, ShutdownReport, Undelivered};
pub use error::StartError;
pub use own_telemetry::OwnTelemetry;
pub use plan::Plan;
