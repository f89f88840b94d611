//! The running engine: applies a plan at start and at every reload, and shuts down.

mod apply;
mod deliveries;
mod ending;
mod listening;
mod routing;
mod status;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_exporters::Files;
use sluice_flow::Exporter;
use sluice_net::server::{ConnectionBudget, ReadScheduler, ServerResources};
use sluice_receivers::StartedReceiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use self::ending::{ShutdownReport, Undelivered};
use self::status::EngineStatus;
use crate::admin::AdminServer;
use crate::backlog::Backlog;
use crate::delivery::{Delivery, DeliveryId, Stop};
use crate::entry::SharedWorkMemory;
use crate::error::StartError;
use crate::extensions::Extensions;
use crate::intake::ReceiverIngress;
use crate::plan::{DeliveryPlan, MetricsPlan, Plan, ReceiverPlan};
use crate::receiving::ReceivingBudget;
use crate::status::{Health, Status};
use crate::storage::{self, Storage};

struct RunningReceiver {
    id: String,
    fingerprint: u64,
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

/// A running pipeline engine.
pub struct Engine {
    plan: Plan,
    storage: Arc<Storage>,
    /// The task that watches the disk.
    watcher: JoinHandle<()>,
    receiving: Arc<ReceivingBudget>,
    /// The pool of all backlogs.
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
    metrics_server: Option<(MetricsPlan, AdminServer)>,
    health_servers: BTreeMap<(String, String), AdminServer>,
    status: Arc<EngineStatus>,
}

impl Engine {
    /// Starts the components of a plan. `scheduler`, if there is one, decides which connections are
    /// read.
    pub async fn start(plan: Plan, scheduler: Option<Arc<ReadScheduler>>) -> Result<Engine, StartError> {
        let storage = Arc::new(Storage::open(&plan).await?);
        let receiving = ReceivingBudget::new(plan.memory.receiving_bytes as usize);
        let resources = ServerResources {
            connections: ConnectionBudget::new(
                plan.memory.connections_bytes as usize,
                plan.memory.windows_bytes as usize,
            ),
            scheduler,
        };
        let pool_bytes = plan.pool_bytes();
        let backlog = Backlog::new(storage.memory.clone(), storage.logs.clone(), pool_bytes, {
            let resources = resources.clone();
            move || resources.is_cpu_bound()
        });
        let shared_work = SharedWorkMemory::new(plan.memory.shared_work_bytes as usize, backlog.shared.clone());
        let shared_work = Arc::new(shared_work);
        let watched = (storage.logs.clone(), storage.watches.clone(), backlog.clone());
        let watcher = tokio::spawn(storage::watch(watched.0, watched.1, watched.2));
        let status = Arc::new(EngineStatus {
            started: Instant::now(),
            ready: AtomicBool::new(false),
            shown: ArcSwap::default(),
            leaving: Mutex::default(),
            receiving: receiving.clone(),
            backlog: backlog.clone(),
            storage: storage.clone(),
        });
        backlog.lend_to(&resources.connections);
        let mut engine = Engine {
            plan: Plan::empty(),
            storage,
            watcher,
            receiving,
            backlog,
            shared_work,
            receivers: Vec::new(),
            resources,
            intakes: BTreeMap::new(),
            exporters: HashMap::new(),
            files: Files::default(),
            deliveries: BTreeMap::new(),
            extensions: Extensions::default(),
            metrics_server: None,
            health_servers: BTreeMap::new(),
            status,
        };
        match engine.apply(&plan).await {
            Ok(()) => {
                engine.plan = plan;
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
        self.metrics_server.as_ref().map(|(_, server)| server.addr)
    }

    pub fn health(&self) -> Health {
        self.status.health()
    }
}
