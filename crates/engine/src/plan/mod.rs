//! What a configuration comes to: components with typed options, ways, budgets. Nothing here runs yet.

mod budgets;
mod build;
mod describe;
mod disk;
mod dispatch;
mod found;
mod load;
mod own_limits;
mod read;
mod routes;
mod warnings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use budgets::MemoryPlan;
pub use disk::DiskPlan;
pub use load::{load, load_with};
pub(crate) use routes::by_receiver;
pub use routes::{PipelineSpec, Way};
use sluice_exporters::ExporterConfig;
use sluice_extensions::Extension;
use sluice_flow::dispatch::DispatchPolicy;
use sluice_otlp::Signal;
use sluice_receivers::ReceiverConfig;
use sluice_telemetry::exposition::Naming;
use sluice_telemetry::logging::LoggingOptions;

use crate::delivery::{DeliveryId, Policy};
use crate::steps::Step;

/// When a sender is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckMode {
    /// When its frame is in memory.
    Memory,
    /// When the deliveries whose policy is backpressure have delivered it.
    Delivered,
    /// When it is resolved everywhere or on disk, which it is soon if it is not resolved.
    DeliveredOrDurable,
    /// The same; everything is written at once.
    Durable,
}

impl AckMode {
    /// The disk answers senders.
    pub(crate) fn is_durable(self) -> bool {
        matches!(self, AckMode::DeliveredOrDurable | AckMode::Durable)
    }
}

/// A validated configuration, ready to be run.
pub struct Plan {
    pub ack: AckMode,
    pub memory: MemoryPlan,
    /// None: telemetry is held in memory only.
    pub disk: Option<DiskPlan>,
    pub receivers: Vec<ReceiverPlan>,
    pub exporters: BTreeMap<String, ExporterPlan>,
    pub extensions: BTreeMap<String, Box<dyn Extension>>,
    pub deliveries: Vec<DeliveryPlan>,
    pub pipelines: Vec<PipelineSpec>,
    pub ways: Vec<Way>,
    pub(crate) steps: BTreeMap<(String, Signal), Arc<Step>>,
    pub metrics: Option<MetricsPlan>,
    pub logging: LoggingOptions,
    /// How long deliveries may go on sending after receivers have stopped.
    pub drain_timeout: Duration,
}

impl Plan {
    /// The processors of a way that do something to frames.
    pub(crate) fn steps_of(&self, way: &Way) -> Vec<Arc<Step>> {
        way.processors.iter().filter_map(|id| self.steps.get(&(id.clone(), way.signal)).cloned()).collect()
    }

    /// What the backlogs of all deliveries may take together: on disk if there is a directory, else in memory.
    pub fn pool_bytes(&self) -> u64 {
        self.disk.as_ref().map_or(self.memory.backlog_bytes, |disk| disk.backlog_bytes)
    }

    /// A plan of nothing, which an engine has before its first and while it changes.
    pub(crate) fn empty() -> Plan {
        Plan {
            ack: AckMode::Memory,
            memory: MemoryPlan::new(0, 0, None, None),
            disk: None,
            receivers: Vec::new(),
            exporters: BTreeMap::new(),
            extensions: BTreeMap::new(),
            deliveries: Vec::new(),
            pipelines: Vec::new(),
            ways: Vec::new(),
            steps: BTreeMap::new(),
            metrics: None,
            logging: LoggingOptions::default(),
            drain_timeout: Duration::ZERO,
        }
    }
}

pub struct ReceiverPlan {
    pub id: String,
    pub config: Box<dyn ReceiverConfig>,
    /// Changes when anything that the receiver was built from changes.
    pub fingerprint: u64,
}

pub struct ExporterPlan {
    pub config: Box<dyn ExporterConfig>,
    /// Where its id stands in the configuration.
    pub(crate) span: sluice_config::Span,
    pub fingerprint: u64,
}

#[derive(Clone, Debug)]
pub struct DeliveryPlan {
    pub id: DeliveryId,
    pub signal: Signal,
    pub policy: Policy,
    /// May lose data rather than hold anybody up.
    pub best_effort: bool,
    /// Senders are answered only when this delivery has delivered.
    pub senders_wait: bool,
    /// How far it may lag: on disk if there is a directory, else in memory.
    pub budget_bytes: u64,
    /// That is less than what all deliveries may hold together.
    pub has_own_limit: bool,
    /// What it may have taken from the log at a time.
    pub lease_bytes: u64,
    /// Request metadata by which batches are told apart, beside what the exporter reads.
    pub metadata_keys: Vec<String>,
    pub dispatch: DispatchPolicy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsPlan {
    pub endpoint: String,
    pub naming: Naming,
}
