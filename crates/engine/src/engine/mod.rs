//! The running engine: brings what runs into line with a plan, at the start and at every reload, and ends it.

mod apply;
mod deliveries;
mod listening;
mod routing;
mod status;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_flow::Exporter;
use sluice_log::{Keep, Log};
use sluice_net::server::ConnectionBudget;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::status::EngineStatus;
use crate::admin::AdminServer;
use crate::delivery::{Delivery, DeliveryId, Stop};
use crate::entry::{Entry, SharedWorkMemory};
use crate::error::StartError;
use crate::extensions::Extensions;
use crate::intake::ReceiverIntake;
use crate::plan::{DeliveryPlan, MetricsPlan, Plan, ReceiverPlan};
use crate::receiving::ReceivingBudget;
use crate::status::{Health, Status};

/// At the end of the drain, what answers to senders that still wait may take.
const FAREWELL: Duration = Duration::from_secs(1);

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

/// A running pipeline engine.
pub struct Engine {
    plan: Plan,
    logs: [Arc<Log<Entry>>; 3],
    receiving: Arc<ReceivingBudget>,
    shared_work: Arc<SharedWorkMemory>,
    receivers: Vec<RunningReceiver>,
    connections: Arc<ConnectionBudget>,
    /// By receiver id. Indices are given once and never reused, so that frames in the log keep their meaning.
    intakes: BTreeMap<String, Arc<ReceiverIntake>>,
    exporters: HashMap<String, RunningExporter>,
    deliveries: BTreeMap<DeliveryId, RunningDelivery>,
    extensions: Extensions,
    metrics_server: Option<(MetricsPlan, AdminServer)>,
    health_servers: BTreeMap<(String, String), AdminServer>,
    status: Arc<EngineStatus>,
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
            leaving: Mutex::default(),
            receiving: receiving.clone(),
            logs: logs.clone(),
        });
        let mut engine = Engine {
            plan: Plan::empty(),
            logs,
            receiving,
            shared_work,
            receivers: Vec::new(),
            connections: ConnectionBudget::new(plan.memory.connections_bytes as usize),
            intakes: BTreeMap::new(),
            exporters: HashMap::new(),
            deliveries: BTreeMap::new(),
            extensions: Extensions::default(),
            metrics_server: None,
            health_servers: BTreeMap::new(),
            status,
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
            let lost = running.delivery.log.unsubscribe(running.delivery.cursor, Keep::Nothing);
            if lost.items > 0 {
                undelivered.push(Undelivered { delivery: id, items: lost.items, bytes: lost.bytes });
            }
        }
        undelivered
    }
}
