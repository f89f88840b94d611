//! Wiring: starts, reloads and shuts down receivers, logs, deliveries and exporters.
//!
//! In reading order:
//!
//! - `plan`: a configuration to a plan, in which nothing runs yet. `catalog`: the components of
//!   this build. `error`: why an engine cannot start.
//! - `engine`: a plan to running tasks, reload and shutdown. `extensions`: authentication, made.
//! - `intake`: a request from its receiver into the log, with its memory (`receiving`), the chains
//!   of processors (`steps`) and the answer to its sender (`ack`).
//! - `entry`: what the log keeps of a frame. `stored`: its bytes on disk beside the payload.
//! - `storage`: the logs and their directory. `hop`: what they have had of other Sluices.
//! - `backlog`: the pool of all backlogs, which obeys `sluice_flow::overload`.
//! - `delivery`: from the log to an exporter. `private_memory` and `shared_work`: copies of frames
//!   beside the log, of one delivery and for several.
//! - `large_work`: large requests hand their thread over and take turns.
//! - `status` and `metrics`: the state of the running engine. `admin`: its ports. `process`: memory
//!   and CPU of the process. `own_telemetry`: own metrics and log lines, pushed.
//! - `reference` and `dashboard`: documents that the code writes.

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
mod ledger;
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
