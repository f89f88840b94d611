//! The running engine: brings what runs into line with a plan, at the start and at every reload, and ends it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_exporters::BuildContext;
use sluice_flow::Exporter;
use sluice_log::Log;
use sluice_otlp::Signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin::{self, AdminServer};
use crate::delivery::{self, Delivery, DeliveryId, Preparer, Settings, Stop};
use crate::entry::{Entry, SharedWorkMemory};
use crate::extensions::Extensions;
use crate::intake::{ReceiverIntake, Route, Routes};
use crate::metrics;
use crate::plan::{DeliveryPlan, MetricsPlan, Plan};
use crate::receiving::ReceivingBudget;
use crate::status::{Health, SickDelivery, Status};
use crate::steps::{self, Chain};

/// At the end of the drain, what answers to senders that still wait may take.
const FAREWELL: Duration = Duration::from_secs(1);
const USER_AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

/// Why a plan could not be brought to life.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("exporter {id}: {reason}")]
    Exporter { id: String, reason: String },
    #[error("extension {id}: {reason}")]
    Extension { id: String, reason: String },
    #[error("receiver {id}: {reason}")]
    Receiver { id: String, reason: String },
    #[error(transparent)]
    Admin(#[from] admin::AdminError),
}

/// What was not delivered when the engine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub delivery: DeliveryId,
    pub items: u64,
    pub bytes: u64,
}

struct RunningReceiver {
    id: String,
    fingerprint: u64,
    handle: sluice_receivers::Running,
}

struct RunningDelivery {
    plan: DeliveryPlan,
    /// Changes when the task has to be replaced.
    fingerprint: u64,
    delivery: Arc<Delivery>,
    stop: watch::Sender<Stop>,
    task: JoinHandle<()>,
}

struct RunningExporter {
    fingerprint: u64,
    exporter: Arc<dyn Exporter>,
}

/// What the administrative servers read. Replaced as a whole when a plan is applied.
#[derive(Default)]
struct Shown {
    deliveries: Vec<(DeliveryPlan, Arc<Delivery>)>,
    receivers: Vec<(String, sluice_receivers::Counters)>,
    metrics: Option<MetricsPlan>,
}

struct EngineStatus {
    started: Instant,
    ready: AtomicBool,
    shown: ArcSwap<Shown>,
    receiving: Arc<ReceivingBudget>,
    logs: [Arc<Log<Entry>>; 3],
}

/// A running pipeline engine.
pub struct Engine {
    plan: Plan,
    logs: [Arc<Log<Entry>>; 3],
    receiving: Arc<ReceivingBudget>,
    shared_work: Arc<SharedWorkMemory>,
    receivers: Vec<RunningReceiver>,
    /// By receiver id. Indices are given once and never reused, so that frames in the log keep their meaning.
    intakes: BTreeMap<String, Arc<ReceiverIntake>>,
    exporters: HashMap<String, RunningExporter>,
    deliveries: BTreeMap<DeliveryId, RunningDelivery>,
    extensions: Extensions,
    metrics_server: Option<(MetricsPlan, AdminServer)>,
    health_servers: BTreeMap<(String, String), AdminServer>,
    status: Arc<EngineStatus>,
    /// Deliveries that a reload removed, while they send what they still have.
    leaving: Arc<Mutex<Vec<DeliveryId>>>,
}

impl Engine {
    /// Starts everything that a plan names.
    pub async fn start(plan: Plan) -> Result<Engine, StartError> {
        let logs: [Arc<Log<Entry>>; 3] = Default::default();
        let receiving = ReceivingBudget::new(plan.memory.receiving_bytes as usize);
        let shared_work = Arc::new(SharedWorkMemory::new(plan.memory.shared_work_bytes as usize));
        let status = Arc::new(EngineStatus {
            started: Instant::now(),
            ready: AtomicBool::new(false),
            shown: ArcSwap::default(),
            receiving: receiving.clone(),
            logs: logs.clone(),
        });
        let mut engine = Engine {
            plan: Plan::empty(),
            logs,
            receiving,
            shared_work,
            receivers: Vec::new(),
            intakes: BTreeMap::new(),
            exporters: HashMap::new(),
            deliveries: BTreeMap::new(),
            extensions: Extensions::default(),
            metrics_server: None,
            health_servers: BTreeMap::new(),
            status,
            leaving: Arc::default(),
        };
        match engine.apply(&plan).await {
            Ok(()) => {
                engine.plan = plan;
                engine.status.ready.store(true, Ordering::Release);
                Ok(engine)
            }
            Err(error) => {
                engine.shutdown(Duration::ZERO).await;
                Err(error)
            }
        }
    }

    /// Brings the running engine into line with another plan. If that fails, the old plan goes on.
    pub async fn reload(&mut self, plan: Plan) -> Result<(), StartError> {
        match self.apply(&plan).await {
            Ok(()) => {
                self.plan = plan;
                Ok(())
            }
            Err(error) => {
                let old = std::mem::replace(&mut self.plan, Plan::empty());
                if let Err(second) = self.apply(&old).await {
                    tracing::error!(error = %second, "the previous configuration could not be restored in full");
                }
                self.plan = old;
                Err(error)
            }
        }
    }

    /// Where the receiver listens: protocol and address, as bound.
    pub fn listen_addresses(&self) -> Vec<(String, &'static str, String)> {
        let mut addresses = Vec::new();
        for receiver in &self.receivers {
            for (protocol, address) in receiver.handle.addresses() {
                addresses.push((receiver.id.clone(), protocol, address));
            }
        }
        addresses
    }

    pub fn metrics_address(&self) -> Option<std::net::SocketAddr> {
        self.metrics_server.as_ref().map(|(_, server)| server.addr)
    }

    pub fn health(&self) -> Health {
        self.status.health()
    }

    async fn apply(&mut self, plan: &Plan) -> Result<(), StartError> {
        let extensions = Extensions::build(&plan.extensions)?;
        let exporters = self.build_exporters(plan, &extensions)?;
        self.receiving.set_limit(plan.memory.receiving_bytes as usize);
        self.extensions = extensions;
        self.open_intakes(plan);
        let gone = self.apply_deliveries(plan, &exporters).await;
        self.exporters = exporters;
        self.apply_routes(plan);
        // Only now does nobody hand them anything any more.
        for (id, running) in gone {
            self.leave(id, running, plan.drain_timeout);
        }
        self.apply_receivers(plan).await?;
        self.apply_admin(plan).await?;
        self.show(plan);
        Ok(())
    }

    /// Exporters whose configuration is unchanged keep their connections.
    fn build_exporters(
        &self,
        plan: &Plan,
        extensions: &Extensions,
    ) -> Result<HashMap<String, RunningExporter>, StartError> {
        let mut exporters = HashMap::new();
        for (id, planned) in &plan.exporters {
            let kept = self.exporters.get(id).filter(|running| running.fingerprint == planned.fingerprint);
            let exporter = match kept {
                Some(running) => running.exporter.clone(),
                None => planned
                    .config
                    .build(&BuildContext { name: id, authenticators: &extensions.requests, user_agent: USER_AGENT })
                    .map_err(|error| StartError::Exporter { id: id.clone(), reason: error.to_string() })?,
            };
            exporters.insert(id.clone(), RunningExporter { fingerprint: planned.fingerprint, exporter });
        }
        Ok(exporters)
    }

    fn open_intakes(&mut self, plan: &Plan) {
        for receiver in &plan.receivers {
            let index = self.intakes.len() as u16;
            self.intakes.entry(receiver.id.clone()).or_insert_with(|| {
                Arc::new(ReceiverIntake::new(index, self.receiving.clone(), self.shared_work.clone()))
            });
        }
    }

    /// Returns the deliveries that the plan no longer has.
    async fn apply_deliveries(
        &mut self,
        plan: &Plan,
        exporters: &HashMap<String, RunningExporter>,
    ) -> Vec<(DeliveryId, RunningDelivery)> {
        let planned: BTreeMap<&DeliveryId, &DeliveryPlan> =
            plan.deliveries.iter().map(|delivery| (&delivery.id, delivery)).collect();
        let gone: Vec<DeliveryId> = self.deliveries.keys().filter(|id| !planned.contains_key(id)).cloned().collect();
        let gone = gone.into_iter().filter_map(|id| self.deliveries.remove_entry(&id)).collect();
        for planned in plan.deliveries.iter() {
            let fingerprint = self.delivery_fingerprint(plan, planned, exporters);
            let kept = self.deliveries.remove(&planned.id);
            let delivery = match kept {
                Some(mut running) if running.fingerprint == fingerprint => {
                    running.delivery.set_policy(planned.policy, planned.budget_bytes);
                    running.plan = planned.clone();
                    self.deliveries.insert(planned.id.clone(), running);
                    continue;
                }
                Some(running) => {
                    let _ = running.stop.send(Stop::HandOver);
                    let _ = running.task.await;
                    running.delivery
                }
                None => Arc::new(Delivery::new(
                    planned.id.clone(),
                    planned.signal,
                    self.logs[planned.signal as usize].clone(),
                    planned.budget_bytes,
                    plan.memory.dead_letters_bytes as usize,
                    self.receiving.clone(),
                )),
            };
            delivery.set_policy(planned.policy, planned.budget_bytes);
            let settings = Settings {
                dispatch: planned.dispatch,
                preparer: Preparer {
                    metadata_keys: metadata_keys(planned, exporters[&planned.id.exporter].exporter.as_ref()),
                    exporter: exporters[&planned.id.exporter].exporter.clone(),
                    chains: self.chains(plan, &planned.id),
                },
                packed_limit_bytes: plan.memory.packed_bytes as usize,
            };
            let (stop, stopped) = watch::channel(Stop::No);
            let task = tokio::spawn(delivery::run(delivery.clone(), settings, stopped));
            let running = RunningDelivery { plan: planned.clone(), fingerprint, delivery, stop, task };
            self.deliveries.insert(planned.id.clone(), running);
        }
        gone
    }

    /// A delivery that the new configuration does not have: it sends what it was given, for a bounded time.
    fn leave(&self, id: DeliveryId, running: RunningDelivery, drain_timeout: Duration) {
        self.leaving.lock().push(id.clone());
        let leaving = self.leaving.clone();
        tokio::spawn(async move {
            let _ = running.stop.send(Stop::Drain);
            let mut task = running.task;
            if tokio::time::timeout(drain_timeout, &mut task).await.is_err() {
                let _ = running.stop.send(Stop::HandOver);
                let _ = task.await;
            }
            let lost = running.delivery.log.unsubscribe(running.delivery.cursor);
            if lost.items > 0 {
                tracing::error!(
                    pipeline = %id.pipeline, exporter = %id.exporter, items = lost.items, bytes = lost.bytes,
                    "the configuration no longer has this delivery and its backend did not take the rest in time: lost"
                );
            }
            leaving.lock().retain(|other| *other != id);
        });
    }

    /// The ways from each receiver to a delivery.
    fn chains(&self, plan: &Plan, id: &DeliveryId) -> HashMap<u16, Vec<Chain>> {
        let mut chains: HashMap<u16, Vec<Chain>> = HashMap::new();
        for way in plan.ways.iter().filter(|way| way.delivery == *id) {
            let steps = plan.steps_of(way);
            let sharers = plan
                .ways
                .iter()
                .filter(|other| {
                    other.receiver == way.receiver && other.signal == way.signal && other.processors == way.processors
                })
                .count();
            let receiver = self.intakes[&way.receiver].receiver;
            chains.entry(receiver).or_default().push(Chain { steps: steps.into(), sharers });
        }
        chains
    }

    fn delivery_fingerprint(
        &self,
        plan: &Plan,
        planned: &DeliveryPlan,
        exporters: &HashMap<String, RunningExporter>,
    ) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        exporters[&planned.id.exporter].fingerprint.hash(&mut hasher);
        format!("{:?}", planned.dispatch).hash(&mut hasher);
        for way in plan.ways.iter().filter(|way| way.delivery == planned.id) {
            way.receiver.hash(&mut hasher);
            steps::identity(&plan.steps_of(way)).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn apply_routes(&self, plan: &Plan) {
        let grouped = crate::plan::by_receiver(&plan.ways);
        for (id, intake) in &self.intakes {
            let routes = Signal::ALL.into_iter().filter_map(|signal| {
                let ways = grouped.get(&(id.as_str(), signal))?;
                Some((signal, self.route(plan, signal, ways)))
            });
            intake.routes.store(Arc::new(Routes::new(routes)));
        }
    }

    fn route(&self, plan: &Plan, signal: Signal, ways: &[&crate::plan::Way]) -> Route {
        let chains: Vec<Vec<_>> = ways.iter().map(|way| plan.steps_of(way)).collect();
        let prefix = steps::common_prefix(&chains.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut running: Vec<&RunningDelivery> = Vec::new();
        for way in ways {
            let delivery = &self.deliveries[&way.delivery];
            if !running.iter().any(|known| known.plan.id == delivery.plan.id) {
                running.push(delivery);
            }
        }
        let refusing = |running: &&&RunningDelivery| running.plan.policy == crate::delivery::Policy::Backpressure;
        let backpressure: Vec<_> = running.iter().filter(refusing).map(|running| running.delivery.cursor).collect();
        let waits_for: Vec<_> =
            running.iter().filter(|running| running.plan.senders_wait).map(|running| running.delivery.cursor).collect();
        let passes_through = ways
            .iter()
            .zip(&chains)
            .filter(|(_, steps)| steps.is_empty())
            .filter_map(|(way, _)| self.exporters[&way.delivery.exporter].exporter.passes_through());
        Route {
            prefix_fingerprints: prefix.iter().map(|step| step.fingerprint).collect(),
            passes_through: if prefix.is_empty() { passes_through.collect() } else { Vec::new() },
            prefix,
            log: self.logs[signal as usize].clone(),
            deliveries: running.iter().map(|running| running.delivery.clone()).collect(),
            readers: running.iter().map(|running| running.delivery.cursor).collect(),
            backpressure,
            waits_for: waits_for.into(),
        }
    }

    async fn apply_receivers(&mut self, plan: &Plan) -> Result<(), StartError> {
        let (kept, ended): (Vec<_>, Vec<_>) = std::mem::take(&mut self.receivers).into_iter().partition(|running| {
            plan.receivers.iter().any(|planned| planned.id == running.id && planned.fingerprint == running.fingerprint)
        });
        self.receivers = kept;
        // All at once: their listeners close first, then what is in flight ends.
        futures_util::future::join_all(ended.into_iter().map(|running| running.handle.shutdown())).await;
        for planned in &plan.receivers {
            if self.receivers.iter().any(|running| running.id == planned.id) {
                continue;
            }
            let intake = self.intakes[&planned.id].clone();
            let handle = planned
                .config
                .start(intake, &self.extensions.senders)
                .await
                .map_err(|error| StartError::Receiver { id: planned.id.clone(), reason: error.to_string() })?;
            self.receivers.push(RunningReceiver { id: planned.id.clone(), fingerprint: planned.fingerprint, handle });
        }
        Ok(())
    }

    async fn apply_admin(&mut self, plan: &Plan) -> Result<(), StartError> {
        let status: Arc<dyn Status> = self.status.clone();
        if self.metrics_server.as_ref().map(|(plan, _)| &plan.endpoint)
            != plan.metrics.as_ref().map(|plan| &plan.endpoint)
        {
            self.metrics_server = None;
            if let Some(metrics) = &plan.metrics {
                let server = admin::serve_metrics(&metrics.endpoint, status.clone()).await?;
                self.metrics_server = Some((metrics.clone(), server));
            }
        }
        let planned: Vec<(String, String)> = plan
            .extensions
            .values()
            .filter_map(|extension| extension.health_check())
            .map(|(endpoint, path)| (endpoint.to_owned(), path.to_owned()))
            .collect();
        self.health_servers.retain(|running, _| planned.contains(running));
        for (endpoint, path) in planned {
            if !self.health_servers.contains_key(&(endpoint.clone(), path.clone())) {
                let server = admin::serve_health(&endpoint, &path, status.clone()).await?;
                self.health_servers.insert((endpoint, path), server);
            }
        }
        Ok(())
    }

    fn show(&self, plan: &Plan) {
        let deliveries =
            self.deliveries.values().map(|running| (running.plan.clone(), running.delivery.clone())).collect();
        let receivers = self.receivers.iter().map(|running| (running.id.clone(), running.handle.counters())).collect();
        self.status.shown.store(Arc::new(Shown { deliveries, receivers, metrics: plan.metrics.clone() }));
    }

    /// Ends in order: unready, receivers finish what is in flight, deliveries send what is left, all that for at most
    /// `drain_timeout`. Returns what was not delivered.
    pub async fn shutdown(mut self, drain_timeout: Duration) -> Vec<Undelivered> {
        self.status.ready.store(false, Ordering::Release);
        let deadline = Instant::now() + drain_timeout;
        let receivers = std::mem::take(&mut self.receivers);
        let receivers = futures_util::future::join_all(receivers.into_iter().map(|running| running.handle.shutdown()));
        let mut receivers = std::pin::pin!(receivers);
        // Deliveries go on meanwhile: requests in flight may wait for them.
        let all_answered = tokio::time::timeout_at(deadline.into(), receivers.as_mut()).await.is_ok();
        if !all_answered {
            self.intakes.values().for_each(|intake| intake.close());
        }
        let undelivered = self.end_deliveries(deadline).await;
        self.status.shown.store(Arc::default());
        if !all_answered {
            // The log has let go of what senders still waited for, so that they are told to come back.
            let _ = tokio::time::timeout(FAREWELL, receivers).await;
        }
        for running in self.exporters.into_values() {
            running.exporter.shutdown().await;
        }
        undelivered
    }

    async fn end_deliveries(&mut self, deadline: Instant) -> Vec<Undelivered> {
        for running in self.deliveries.values() {
            let _ = running.stop.send(Stop::Drain);
        }
        let mut undelivered = Vec::new();
        for (id, running) in std::mem::take(&mut self.deliveries) {
            let mut task = running.task;
            if tokio::time::timeout_at(deadline.into(), &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
            }
            let lost = running.delivery.log.unsubscribe(running.delivery.cursor);
            if lost.items > 0 {
                undelivered.push(Undelivered { delivery: id, items: lost.items, bytes: lost.bytes });
            }
        }
        undelivered
    }
}

/// What the exporter reads of request metadata, and what the pipeline batches by.
fn metadata_keys(planned: &DeliveryPlan, exporter: &dyn Exporter) -> Vec<String> {
    let mut keys = exporter.metadata_keys().to_vec();
    keys.extend(planned.metadata_keys.iter().cloned());
    keys.sort();
    keys.dedup();
    keys
}

impl Status for EngineStatus {
    fn metrics(&self) -> String {
        let shown = self.shown.load();
        let naming = shown.metrics.as_ref().map(|metrics| metrics.naming.clone()).unwrap_or_default();
        metrics::render(&naming, self.started, &shown.deliveries, &shown.receivers, &self.receiving, &self.logs)
    }

    fn health(&self) -> Health {
        let shown = self.shown.load();
        let sick = shown.deliveries.iter().filter_map(|(_, delivery)| {
            let trouble = delivery.stats.trouble.lock().clone()?;
            Some(SickDelivery {
                pipeline: delivery.id.pipeline.clone(),
                exporter: delivery.id.exporter.clone(),
                state: if trouble.held { "held" } else { "out of order" },
                reason: trouble.reason,
            })
        });
        Health {
            ready: self.ready.load(Ordering::Acquire),
            uptime_seconds: self.started.elapsed().as_secs(),
            sick: sick.collect(),
        }
    }

    fn dead_letters(&self) -> String {
        let shown = self.shown.load();
        metrics::dead_letters_text(shown.deliveries.iter().map(|(_, delivery)| delivery.as_ref()))
    }
}
