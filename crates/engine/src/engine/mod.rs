//! The running engine: applies a plan at start and at every reload, and shuts down.

mod apply;
mod deliveries;
mod ending;
mod listening;
mod routing;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use sluice_exporters::Files;
use sluice_flow::Exporter;
use sluice_net::server::{ConnectionBudget, ReadScheduler, ServerResources};
use sluice_receivers::StartedReceiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use self::ending::{ShutdownReport, Undelivered};
use crate::admin::{AdminPlan, AdminServer};
use crate::backlog::Backlog;
use crate::delivery::{Delivery, DeliveryId, Stop};
use crate::entry::SharedWorkMemory;
use crate::error::StartError;
use crate::extensions::Extensions;
use crate::intake::ReceiverIngress;
use crate::plan::{DeliveryPlan, Plan, ReceiverPlan};
use crate::receiving::ReceivingBudget;
use crate::status::EngineStatus;
use crate::storage::{self, Storage};

struct RunningReceiver {
    id: String,
    fingerprint: u64,
    /// It does not fetch.
    has_senders: bool,
    handle: Box<dyn StartedReceiver>,
}

impl RunningReceiver {
    fn is(&self, planned: &ReceiverPlan) -> bool {
        self.id == planned.id && self.fingerprint == planned.fingerprint
    }

    fn is_in(&self, plan: &Plan) -> bool {
        plan.receivers.iter().any(|planned| self.is(planned))
    }
}

struct RunningDelivery {
    plan: DeliveryPlan,
    /// Changes when the task must be replaced.
    fingerprint: u64,
    delivery: Arc<Delivery>,
    stop: watch::Sender<Stop>,
    task: JoinHandle<()>,
}

struct RunningExporter {
    fingerprint: u64,
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
    receivers: Vec<RunningReceiver>,
    /// Shared by all receivers.
    resources: ServerResources,
    /// By receiver id. An index is never reused, because frames in the log refer to it.
    intakes: BTreeMap<String, Arc<ReceiverIngress>>,
    exporters: HashMap<String, RunningExporter>,
    /// Outlives the exporters that write them.
    files: Files,
    deliveries: BTreeMap<DeliveryId, RunningDelivery>,
    extensions: Extensions,
    admin: BTreeMap<AdminPlan, AdminServer>,
    status: Arc<EngineStatus>,
}

impl Engine {
    /// Starts the components of a plan. `scheduler`, if there is one, decides which connections are
    /// read.
    pub async fn start(
        plan: Plan,
        scheduler: Option<Arc<ReadScheduler>>,
    ) -> Result<Engine, StartError> {
        let storage = Arc::new(Storage::open(&plan).await?);
        let receiving = ReceivingBudget::new(plan.memory.receiving_bytes as usize);
        let memory = plan.memory;
        let connections =
            ConnectionBudget::new(memory.connections_bytes as usize, memory.windows_bytes as usize);
        let resources = ServerResources { connections, scheduler };
        let pool_bytes = plan.pool_bytes();
        let backlog = Backlog::new(storage.memory.clone(), storage.logs.clone(), pool_bytes, {
            let resources = resources.clone();
            move || resources.is_cpu_bound()
        });
        let shared_work_bytes = memory.shared_work_bytes as usize;
        let shared_work = SharedWorkMemory::new(shared_work_bytes, backlog.shared.clone());
        let watch = storage::watch(storage.logs.clone(), storage.watches.clone(), backlog.clone());
        let watcher = tokio::spawn(watch);
        let status = Arc::new(EngineStatus {
            started: Instant::now(),
            ready: AtomicBool::new(false),
            shown: ArcSwap::default(),
            receiving: receiving.clone(),
            backlog: backlog.clone(),
            storage: storage.clone(),
        });
        backlog.lend_to(&resources.connections);
        let mut engine = Engine {
            plan: None,
            storage,
            watcher,
            receiving,
            backlog,
            shared_work: Arc::new(shared_work),
            receivers: Vec::new(),
            resources,
            intakes: BTreeMap::new(),
            exporters: HashMap::new(),
            files: Files::default(),
            deliveries: BTreeMap::new(),
            extensions: Extensions::default(),
            admin: BTreeMap::new(),
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

    /// Applies another plan to the running engine. If that fails, the old plan stays in force.
    pub async fn reload(&mut self, plan: Plan) -> Result<(), StartError> {
        self.storage.check_reload(&plan)?;
        match self.apply(&plan).await {
            Ok(()) => self.plan = Some(plan),
            Err(error) => {
                let old = self.plan.take();
                if let Some(old) = &old
                    && let Err(error) = self.apply(old).await
                {
                    tracing::error!(
                        %error, "the previous configuration could not be restored in full"
                    );
                }
                self.plan = old;
                return Err(error);
            }
        }
        Ok(())
    }

    /// The listeners of a receiver: protocol and bound address.
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
        let metrics = self.admin.iter().find(|(plan, _)| matches!(plan, AdminPlan::Metrics { .. }));
        metrics.map(|(_, server)| server.addr)
    }
}
