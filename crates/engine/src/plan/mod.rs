//! The plan of a configuration: components with typed options, paths, budgets. Nothing runs yet.

mod budgets;
mod build;
mod checkpoints;
mod describe;
mod disk;
mod dispatch;
mod files;
mod hop;
mod own_telemetry;
mod ports;
mod read;
mod remembering;
mod routes;
mod storage;
mod warnings;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;

pub use budgets::MemoryPlan;
pub use disk::DiskPlan;
pub use own_telemetry::{OwnTelemetryPlan, Push};
pub(crate) use routes::by_receiver;
pub use routes::{Path, PipelineSpec};
use sluice_config::document::{Acknowledge, Document, OwnLogs, PrometheusReader};
use sluice_config::{Diagnostics, Environment};
use sluice_exporters::ExporterConfig;
use sluice_extensions::Extension;
use sluice_flow::dispatch::DispatchPolicy;
use sluice_net::server::Listener;
use sluice_otlp::{AnyValue, Signal};
use sluice_receivers::{BindContext, RECEIVERS, ReceiverConfig, ReceiverKinds};
use sluice_telemetry::exposition::{Naming, labels_of_resource};

use self::read::Read;
use crate::catalog::Components;
use crate::delivery::{DeliveryId, Policy};
use crate::steps::Step;

const MIB: u64 = 1 << 20;

/// A validated configuration, ready to be run.
pub struct Plan {
    /// When a sender is answered.
    pub ack: Acknowledge,
    pub memory: MemoryPlan,
    /// None: telemetry is kept in memory only.
    pub disk: Option<DiskPlan>,
    pub receivers: Vec<ReceiverPlan>,
    pub exporters: BTreeMap<String, ExporterPlan>,
    pub extensions: BTreeMap<String, Extension>,
    pub deliveries: Vec<DeliveryPlan>,
    pub pipelines: Vec<PipelineSpec>,
    pub paths: Vec<Path>,
    pub(crate) steps: BTreeMap<(String, Signal), Arc<Step>>,
    pub metrics: Option<MetricsPlan>,
    pub logging: OwnLogs,
    pub own_telemetry: OwnTelemetryPlan,
}

impl Plan {
    /// The processors of a path that do something to frames.
    pub(crate) fn steps_of(&self, path: &Path) -> Vec<Arc<Step>> {
        self.steps(&path.processors, path.signal).collect()
    }

    pub(crate) fn steps(&self, ids: &[String], signal: Signal) -> impl Iterator<Item = Arc<Step>> {
        ids.iter().filter_map(move |id| self.steps.get(&(id.clone(), signal)).cloned())
    }

    /// The addresses of health checks, as configured.
    pub fn health_endpoints(&self) -> Vec<String> {
        let checks = self.extensions.values().filter_map(|it| it.health_check.as_ref());
        checks.map(|it| it.endpoint.clone() + &it.path).collect()
    }

    /// Bytes that all backlogs may take together: on disk if there is a directory, else in memory.
    pub fn pool_bytes(&self) -> u64 {
        self.disk.as_ref().map_or(self.memory.backlog_bytes, |disk| disk.backlog_bytes)
    }

    /// The disk answers senders.
    pub(crate) fn is_ack_durable(&self) -> bool {
        matches!(self.ack, Acknowledge::DeliveredOrDurable | Acknowledge::Durable)
    }
}

pub struct ReceiverPlan {
    pub id: String,
    pub config: Box<dyn ReceiverConfig>,
    /// Its place in the configuration: `gateway.yaml:3`.
    pub(crate) place: String,
    /// The place of its id in the configuration.
    pub(crate) span: sluice_config::Span,
    /// The file of its checkpoint, if it has one on disk.
    pub checkpoint: Option<PathBuf>,
    /// Its own part of the memory limit.
    pub memory_bytes: u64,
    /// Changes when anything that the receiver was built from changes.
    pub fingerprint: u64,
}

impl ReceiverPlan {
    /// Gives it a part of the memory limit.
    fn keep(&mut self, bytes: u64) {
        self.memory_bytes = bytes;
        self.fingerprint = with_bytes(self.fingerprint, bytes);
    }

    pub(crate) fn bind_context<'a>(&'a self, held: &'a [Listener]) -> BindContext<'a> {
        let (checkpoint, memory_bytes) = (self.checkpoint.as_deref(), self.memory_bytes as usize);
        let fingerprint = self.fingerprint;
        BindContext { id: &self.id, held, checkpoint, memory_bytes, fingerprint }
    }

    /// Whether it reads again, after a crash or an end, what was not resolved.
    pub(crate) fn reads_again(&self) -> bool {
        self.config.fetches() && self.checkpoint.is_some()
    }
}

pub struct ExporterPlan {
    pub config: Box<dyn ExporterConfig>,
    /// The place of its id in the configuration.
    pub(crate) span: sluice_config::Span,
    /// The same for people: `gateway.yaml:3`.
    pub(crate) place: String,
    /// Its own part of the memory limit.
    pub memory_bytes: u64,
    pub fingerprint: u64,
}

impl ExporterPlan {
    fn keep(&mut self, bytes: u64) {
        self.memory_bytes = bytes;
        self.fingerprint = with_bytes(self.fingerprint, bytes);
    }
}

/// A fingerprint that changes with a part of the memory limit.
fn with_bytes(fingerprint: u64, bytes: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (fingerprint, bytes).hash(&mut hasher);
    hasher.finish()
}

#[derive(Clone, Debug)]
pub struct DeliveryPlan {
    pub id: DeliveryId,
    pub signal: Signal,
    pub policy: Policy,
    /// May lose data rather than make a sender wait.
    pub best_effort: bool,
    /// Senders are answered only when this delivery has delivered.
    pub senders_wait: bool,
    /// All of its receivers read again, after a crash or an end, what was not resolved, and nothing
    /// aggregates it on the way.
    pub is_read_again: bool,
    /// Bytes that it may lag: on disk if there is a directory, else in memory.
    pub budget_bytes: u64,
    /// Bytes of frames that it may lease from the log at a time.
    pub lease_bytes: u64,
    /// Request metadata by which batches are told apart, beside the exporter's.
    pub metadata_keys: Vec<String>,
    pub dispatch: DispatchPolicy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsPlan {
    pub endpoint: String,
    pub naming: Naming,
}

/// Reads, checks and plans a configuration. There is a plan only if nothing is wrong.
pub fn load(locations: &[String], environment: &dyn Environment) -> (Option<Plan>, Diagnostics) {
    load_with(locations, environment, &RECEIVERS)
}

/// As [`load`], and looks into the files that the configuration names.
pub fn validate(
    locations: &[String],
    environment: &dyn Environment,
) -> (Option<Plan>, Diagnostics) {
    load_and(locations, environment, &RECEIVERS, files::check)
}

/// As [`load`], with these kinds of receivers instead of those of the build.
pub fn load_with(
    locations: &[String],
    environment: &dyn Environment,
    receivers: &ReceiverKinds,
) -> (Option<Plan>, Diagnostics) {
    load_and(locations, environment, receivers, |_, _, _| ())
}

fn load_and(
    locations: &[String],
    environment: &dyn Environment,
    receivers: &ReceiverKinds,
    check: fn(&Document, &Read, &mut Diagnostics),
) -> (Option<Plan>, Diagnostics) {
    let components = Components { receivers };
    let (document, mut diagnostics) = sluice_config::load(locations, environment, &components);
    let Some(document) = document else { return (None, diagnostics) };
    let read = Read::components(&document, receivers, &mut diagnostics);
    if diagnostics.has_errors() {
        return (None, diagnostics);
    }
    check(&document, &read, &mut diagnostics);
    let plan = build::build(&document, read, &mut diagnostics);
    ((!diagnostics.has_errors()).then_some(plan), diagnostics)
}

/// `attributes`: those of the process, with the defaults.
fn metrics(document: &Document, attributes: &[(String, AnyValue)]) -> Option<MetricsPlan> {
    let PrometheusReader { host, port, has_suffixes } = document.telemetry.readers.first()?.clone();
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let given = &document.telemetry.resource.attributes;
    let given = given.iter().filter_map(|(name, value)| Some((&**name, text(value.as_ref()?))));
    let all = attributes.iter().map(|(name, value)| (&**name, text(value)));
    let (given, all): (Vec<_>, Vec<_>) = (given.collect(), all.collect());
    let [constant_labels, target_labels] = [&given, &all]
        .map(|them| labels_of_resource(them.iter().map(|(name, value)| (*name, value.as_str()))));
    let naming = Naming {
        without_type_suffix: !has_suffixes,
        without_units: !has_suffixes,
        constant_labels,
        target_labels,
    };
    Some(MetricsPlan { endpoint: format!("{host}:{port}"), naming })
}

/// An attribute's value as a label.
fn text(value: &AnyValue) -> String {
    match value {
        AnyValue::String(text) => text.clone(),
        AnyValue::Bool(value) => value.to_string(),
        AnyValue::Int(value) => value.to_string(),
        AnyValue::Double(value) => value.to_string(),
        AnyValue::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(","),
        AnyValue::Empty | AnyValue::Bytes(_) | AnyValue::Map(_) => String::new(),
    }
}
