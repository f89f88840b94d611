//! The running engine: applies a plan at start and at every reload, and shuts down.
//! `docs/decisions/006-a-reload-replaces-tasks-not-deliveries.md` says what a reload keeps.

mod deliveries;
mod emitting;
mod ending;
mod listening;
mod open_files;
mod routing;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderValue;
use sluice_config::Class;
use sluice_exporters::{BuildContext, Files, Pages};
use sluice_flow::Exporter;
use sluice_net::server::{
    ConnectionBudget, Listener, OpenConnections, ReadScheduler, ServerResources,
};
use sluice_receivers::{StartedReceiver, Streams};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use self::deliveries::Setup;
use self::emitting::RunningEmitter;
pub use self::ending::{ShutdownReport, Undelivered};
use crate::admin::{AdminPlan, AdminServer};
use crate::backlog::Backlog;
use crate::delivery::{Delivery, DeliveryId, Stop};
use crate::error::{Result, StartError};
use crate::extensions::Extensions;
use crate::intake::{Door, ReceiverIngress};
use crate::large_work::LargeWork;
use crate::plan::{DeliveryPlan, MemoryPlan, Plan, ReceiverPlan};
use crate::private_memory::CommonMemory;
use crate::receiving::ReceivingBudget;
use crate::shared_work::SharedWorkMemory;
use crate::status::{EngineStatus, Reloads, Shown};
use crate::storage::{self, Storage};

pub(crate) const USER_AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

struct RunningReceiver {
    id: String,
    fingerprint: u64,
    fetches: bool,
    handle: Box<dyn StartedReceiver>,
}

impl RunningReceiver {
    fn is(&self, planned: &ReceiverPlan) -> bool {
        self.id == planned.id && self.fingerprint == planned.fingerprint
    }

    fn is_in(&self, plan: &Plan) -> bool {
        plan.receivers.iter().any(|planned| self.is(planned))
    }

    async fn end(self) -> (String, Streams) {
        (self.id, self.handle.shutdown().await)
    }
}

struct RunningDelivery {
    plan: DeliveryPlan,
    /// Changes when the task needs another setup. None before the first.
    fingerprint: Option<u64>,
    delivery: Arc<Delivery>,
    /// Stops the task's current setup.
    stop: watch::Sender<Stop>,
    /// The task ends when this is dropped and it is stopped.
    setups: mpsc::UnboundedSender<Setup>,
    task: JoinHandle<()>,
}

struct RunningExporter {
    fingerprint: u64,
    /// Of one that serves. The port stays open while this is kept.
    listener: Option<Listener>,
    exporter: Arc<dyn Exporter>,
}

pub struct Engine {
    /// None before the first is applied.
    plan: Option<Plan>,
    storage: Arc<Storage>,
    watcher: JoinHandle<()>,
    receiving: Arc<ReceivingBudget>,
    backlog: Arc<Backlog>,
    shared_work: Arc<SharedWorkMemory>,
    large_work: Arc<LargeWork>,
    /// Bytes of copies of requests in flight of all deliveries.
    sending: Arc<CommonMemory>,
    receivers: Vec<RunningReceiver>,
    /// Receivers that a reload has ended, while they answer requests in flight.
    ending: JoinSet<(String, Streams)>,
    /// Streams of receivers that have ended, until a receiver of the same name follows.
    streams: HashMap<String, Streams>,
    /// Shared by all receivers.
    resources: ServerResources,
    /// By receiver id. An index is never reused, because frames in the log refer to it.
    intakes: BTreeMap<String, Arc<ReceiverIngress>>,
    /// In the order in which points pass them.
    emitters: Vec<RunningEmitter>,
    exporters: HashMap<String, RunningExporter>,
    /// Outlives the exporters that write them.
    files: Files,
    /// Outlives the exporters that serve them.
    pages: Pages,
    deliveries: BTreeMap<DeliveryId, RunningDelivery>,
    extensions: Extensions,
    admin: Vec<(AdminPlan, AdminServer)>,
    pub(crate) status: Arc<EngineStatus>,
}

impl Engine {
    /// Starts the components of a plan. `scheduler`, if any, decides which connections are read.
    pub async fn start(plan: Plan, scheduler: Option<Arc<ReadScheduler>>) -> Result<Engine> {
        let storage = Arc::new(Storage::open(&plan).await?);
        let receiving = ReceivingBudget::new(plan.memory.receiving_bytes as usize);
        let memory = plan.memory;
        let connections = ConnectionBudget::new(
            memory.connections_bytes as usize,
            memory.receiving_bytes as usize,
        );
        let connections = OpenConnections::new(connections);
        let scheduler = scheduler.unwrap_or_else(ReadScheduler::off);
        let resources = ServerResources { connections, scheduler: Arc::clone(&scheduler) };
        let pool_bytes = plan.pool_bytes();
        let is_cpu_bound = move || scheduler.is_cpu_bound();
        let backlog =
            Backlog::new(storage.memory.clone(), storage.logs.clone(), pool_bytes, is_cpu_bound);
        let shared_work = SharedWorkMemory::new(memory.shared_work_bytes, backlog.shared.clone());
        let (shared_work, large_work) = (Arc::new(shared_work), Arc::<LargeWork>::default());
        let (part, pool) = (shared_work.clone(), backlog.clone());
        large_work.set_copies(memory.shared_work_bytes);
        large_work.set_room(move || {
            part.limit_bytes.load(Ordering::Relaxed) + pool.lendable_bytes() as u64 / 2
        });
        let watcher = tokio::spawn(storage::watch(storage.clone(), backlog.clone()));
        let status = Arc::new(EngineStatus {
            reloads: Reloads::default(),
            started: Instant::now(),
            ready: AtomicBool::new(false),
            shown: ArcSwap::default(),
            pushes: ArcSwap::default(),
            last_metrics: OnceLock::new(),
            receiving: receiving.clone(),
            backlog: backlog.clone(),
            storage: storage.clone(),
        });
        backlog.lend_to(&resources.connections.budget);
        let mut engine = Engine {
            plan: None,
            storage,
            watcher,
            receiving,
            backlog,
            shared_work,
            large_work,
            sending: Arc::default(),
            receivers: Vec::new(),
            ending: JoinSet::new(),
            streams: HashMap::new(),
            resources,
            intakes: BTreeMap::new(),
            emitters: Vec::new(),
            exporters: HashMap::new(),
            files: Files::default(),
            pages: Pages::default(),
            deliveries: BTreeMap::new(),
            extensions: Extensions::default(),
            admin: Vec::new(),
            status,
        };
        match engine.apply(&plan).await {
            Ok(()) => {
                engine.plan = Some(plan);
                engine.storage.tell_orphans();
                engine.status.ready.store(true, Ordering::Release);
                Ok(engine)
            }
            Err(error) => {
                engine.shutdown(Duration::ZERO).await;
                Err(error)
            }
        }
    }

    /// Counts a reload for which there is no plan: the configuration has errors.
    pub fn note_failed_reload(&self) {
        self.status.reloads.note(true);
    }

    /// Applies another plan to the running engine. If that fails, the old plan stays in force. If
    /// this is dropped before it ends, only [`Engine::shutdown`] may follow.
    pub async fn reload(&mut self, plan: Plan) -> Result<()> {
        let applied = self.reload_uncounted(plan).await;
        self.status.reloads.note(applied.is_err());
        applied
    }

    async fn reload_uncounted(&mut self, plan: Plan) -> Result<()> {
        self.storage.check_reload(&plan)?;
        self.hand_on_steps(&plan);
        self.end_emitters_not_in(&plan);
        let applied = self.apply(&plan).await;
        let in_force = if applied.is_ok() { Some(plan) } else { self.plan.take() };
        if let (Err(_), Some(old)) = (&applied, &in_force)
            && let Err(error) = self.apply(old).await
        {
            tracing::error!(%error, "the previous configuration could not be restored in full");
        }
        self.plan = in_force;
        applied
    }

    /// The listeners of a receiver: protocol and bound address.
    pub fn listen_addresses(&self) -> Vec<(String, &'static str, String)> {
        let of_receiver = |receiver: &RunningReceiver| {
            let addresses = receiver.handle.addresses().into_iter();
            let id = receiver.id.clone();
            addresses.map(move |(protocol, address)| (id.clone(), protocol, address))
        };
        self.receivers.iter().flat_map(of_receiver).collect()
    }

    pub fn metrics_address(&self) -> Option<std::net::SocketAddr> {
        let metrics = self.admin.iter().find(|(plan, _)| plan.health_path.is_none());
        metrics.map(|(_, server)| server.addr)
    }

    async fn apply(&mut self, plan: &Plan) -> Result<()> {
        let extensions = Extensions::build(&plan.extensions)?;
        let exporters = self.build_exporters(plan, &extensions).await?;
        start_processors(plan).await?;
        let dead_letters = self.open_dead_letters(plan).await?;
        let bound = self.bind_receivers(plan).await?;
        self.apply_admin(plan).await?;
        self.receiving.set_limit(plan.memory.receiving_bytes as usize);
        self.backlog.set_limit(plan.pool_bytes());
        let shared_work_bytes = plan.memory.shared_work_bytes;
        self.shared_work.limit_bytes.store(shared_work_bytes, Ordering::Relaxed);
        self.large_work.set_copies(shared_work_bytes);
        self.storage.apply(plan);
        let MemoryPlan { connections_bytes, receiving_bytes, .. } = plan.memory;
        let connections = &self.resources.connections.budget;
        connections.set_limits(connections_bytes as usize, receiving_bytes as usize);
        open_files::reserve(plan, &self.storage, connections);
        self.extensions = extensions;
        self.open_intakes(plan);
        self.apply_deliveries(plan, &exporters, dead_letters);
        self.exporters = exporters;
        let planned: BTreeSet<&DeliveryId> = plan.deliveries.iter().map(|it| &it.id).collect();
        let gone = self.deliveries.iter().filter(|(id, _)| !planned.contains(id));
        let gone: Vec<_> = gone.map(|(_, running)| running.delivery.clone()).collect();
        self.apply_routes(plan, &gone);
        self.apply_emitters(plan);
        if let Err(error) = self.apply_receivers(plan, bound).await {
            // The plan that comes back has them.
            gone.iter().for_each(|delivery| self.backlog.left(delivery));
            return Err(error);
        }
        // Only now no receiver submits to them any more.
        for delivery in gone {
            if let Some(running) = self.deliveries.remove(&delivery.id) {
                self.leave(running);
            }
        }
        self.show(plan);
        Ok(())
    }

    /// Processors of the same name count on, and remember. Unchanged ones go on with what they have
    /// running.
    fn hand_on_steps(&self, plan: &Plan) {
        let old = self.plan.iter().flat_map(|plan| &plan.steps);
        for (key, old) in old {
            if let Some(new) = plan.steps.get(key) {
                new.counters.store(old.counters.load_full());
                if let Some(running) = old.processor.running() {
                    new.processor.take_over(running, old.fingerprint == new.fingerprint);
                }
            }
        }
    }

    /// Exporters with an unchanged configuration keep their connections, and what they have
    /// collected. A changed one takes over the port of one that has it.
    async fn build_exporters(
        &self,
        plan: &Plan,
        extensions: &Extensions,
    ) -> Result<HashMap<String, RunningExporter>> {
        let mut exporters = HashMap::new();
        for (id, planned) in &plan.exporters {
            let fingerprint = planned.fingerprint;
            let kept = self.exporters.get(id).filter(|kept| kept.fingerprint == fingerprint);
            let (exporter, listener) = match kept {
                Some(running) => (running.exporter.clone(), running.listener.clone()),
                None => {
                    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
                        StartError::of(Class::Exporter, id, &planned.place, error)
                    };
                    let listener = match planned.config.listening() {
                        Some(listening) => {
                            let held = self.exporters.values().filter_map(|it| it.listener.clone());
                            let held: Vec<_> = held.collect();
                            let bound = Listener::bind_or_take_over(listening.address, &held).await;
                            Some(bound.map_err(|error| failed(error.into()))?)
                        }
                        None => None,
                    };
                    let context = BuildContext {
                        name: id,
                        authenticators: &extensions.clients,
                        servers: &extensions.servers,
                        listener: listener.clone(),
                        memory_bytes: planned.memory_bytes as usize,
                        user_agent: HeaderValue::from_static(USER_AGENT),
                        files: &self.files,
                        pages: &self.pages,
                    };
                    let checked = planned.config.check().await;
                    let built = checked.and_then(|()| planned.config.build(&context));
                    (built.map_err(failed)?, listener)
                }
            };
            exporters.insert(id.clone(), RunningExporter { fingerprint, listener, exporter });
        }
        Ok(exporters)
    }

    fn open_intakes(&mut self, plan: &Plan) {
        for receiver in &plan.receivers {
            let index = self.intakes.len() as u16;
            self.intakes.entry(receiver.id.clone()).or_insert_with(|| {
                Arc::new(ReceiverIngress::new(Door {
                    receiver: index,
                    receiving: self.receiving.clone(),
                    shared_work: self.shared_work.clone(),
                    large_work: self.large_work.clone(),
                    resources: self.resources.clone(),
                    closed: AtomicBool::new(false),
                    told_closed: CancellationToken::new(),
                }))
            });
        }
    }

    fn show(&self, plan: &Plan) {
        let deliveries = self.deliveries.values();
        let receivers = self.receivers.iter();
        self.status.shown.store(Arc::new(Shown {
            deliveries: deliveries.map(|it| (it.plan.clone(), it.delivery.clone())).collect(),
            receivers: receivers.map(|it| (it.id.clone(), it.handle.counters())).collect(),
            steps: plan.steps.iter().map(|(key, step)| (key.clone(), step.clone())).collect(),
            metrics: plan.metrics.clone(),
            fed: self.fed(plan),
        }));
    }
}

/// All processors wait together, each as long as it has to.
async fn start_processors(plan: &Plan) -> Result<()> {
    let mut starting = JoinSet::new();
    for step in plan.steps.values() {
        let (id, place, started) = (step.id.clone(), step.place.clone(), step.processor.start());
        starting.spawn(async move {
            let failed = |reason| StartError::of(Class::Processor, &id, &place, reason);
            started.await.map_err(failed)
        });
    }
    while let Some(started) = starting.join_next().await {
        // One that panics has said so.
        started.unwrap_or(Ok(()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sluice_config::SystemEnvironment;

    use super::*;

    fn plan(limit_mib: u64, pipelines: &[&str]) -> Plan {
        let pipelines: String = pipelines
            .iter()
            .map(|id| format!("    {id}: {{receivers: [otlp], exporters: [otlp]}}\n"))
            .collect();
        let text = format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}}}\n\
             exporters: {{otlp: {{endpoint: 'localhost:1', tls: {{insecure: true}}}}}}\n\
             buffer: {{memory: {{limit_mib: {limit_mib}}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n{pipelines}"
        );
        let (plan, diagnostics) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
        plan.unwrap_or_else(|| panic!("{}", diagnostics.render(false)))
    }

    /// Scenario: a reload that halves the memory, and one that brings another delivery to share it
    /// with.
    #[tokio::test]
    async fn every_part_of_the_memory_follows_a_reload() {
        let mut engine = Engine::start(plan(512, &["traces"]), None).await.expect("starts");
        for (limit_mib, pipelines) in
            [(256, vec!["traces"]), (256, vec!["traces", "traces/second"])]
        {
            engine.reload(plan(limit_mib, &pipelines)).await.expect("reloads");
            let memory = engine.plan.as_ref().expect("is applied").memory;
            assert_eq!(engine.receiving.limit_bytes() as u64, memory.receiving_bytes);
            assert_eq!(engine.backlog.state().limit_bytes, memory.backlog_bytes);
            let shared_bytes = engine.shared_work.limit_bytes.load(Ordering::Relaxed);
            assert_eq!(shared_bytes, memory.shared_work_bytes);
            for running in engine.deliveries.values() {
                assert_eq!(
                    running.delivery.packed_limit_bytes.load(Ordering::Relaxed),
                    memory.packed_bytes
                );
                let limit_bytes = running.delivery.sending_limit_bytes.load(Ordering::Relaxed);
                assert_eq!(limit_bytes, memory.sending_bytes);
            }
        }
        engine.shutdown(Duration::ZERO).await;
    }

    /// Guarantee: an engine that has no time left ends, whenever its receivers do.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_engine_ends_without_time_to_drain() {
        for _ in 0..30 {
            let plan = plan_with_pods("passthrough: true", "");
            let engine = Engine::start(plan, None).await.expect("starts");
            engine.shutdown(Duration::ZERO).await;
        }
    }

    fn plan_with_pods(options: &str, more: &str) -> Plan {
        let text = format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}}}\n\
             processors: {{k8s_attributes: {{{options}}}, batch: {{{more}}}}}\n\
             exporters: {{nop: {{}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
             pipelines: {{logs: {{receivers: [otlp], processors: [k8s_attributes, batch], \
             exporters: [nop]}}}}\n"
        );
        let (plan, diagnostics) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
        plan.unwrap_or_else(|| panic!("{}", diagnostics.render(false)))
    }

    /// Guarantee: an engine starts only with processors that are ready, and names one that is not.
    #[tokio::test]
    async fn a_processor_that_is_not_ready_is_named() {
        let waits = "wait_for_metadata: true, wait_for_metadata_timeout: 300ms";
        let error = Engine::start(plan_with_pods(waits, ""), None).await.err();
        let error = error.expect("has no cluster").to_string();
        assert!(error.starts_with("processor k8s_attributes (yaml:"), "{error}");
        assert!(error.contains("no metadata of Kubernetes within 300ms"), "{error}");
    }

    /// Guarantee: a reload that leaves a processor as it is leaves what it has running.
    #[tokio::test]
    async fn an_unchanged_processor_goes_on_with_what_it_has_running() {
        let mut engine = Engine::start(plan_with_pods("", ""), None).await.expect("starts");
        let running = |engine: &Engine| {
            let plan = engine.plan.as_ref().expect("is applied");
            let step = plan.steps.values().find(|step| step.id == "k8s_attributes");
            step.and_then(|step| step.processor.running()).expect("runs")
        };
        let first = running(&engine);
        engine.reload(plan_with_pods("", "timeout: 1s")).await.expect("reloads");
        assert!(Arc::ptr_eq(&first, &running(&engine)));
        let changed = plan_with_pods("filter: {namespace: a}", "");
        engine.reload(changed).await.expect("reloads");
        assert!(!Arc::ptr_eq(&first, &running(&engine)));
        engine.shutdown(Duration::ZERO).await;
    }
}
