//! The state of a running engine, for the administrative servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use sluice_flow::dispatch::State;
use sluice_otlp::Signal;
use sluice_telemetry::exposition::Families;

use crate::backlog::Backlog;
use crate::delivery::{Delivery, DeliveryId};
use crate::ledger::Fed;
use crate::own_telemetry::stats::PushStats;
use crate::plan::{DeliveryPlan, MetricsPlan};
use crate::receiving::ReceivingBudget;
use crate::steps::Step;
use crate::storage::Storage;

/// The components of a plan. Replaced as a whole when another plan is applied.
#[derive(Default)]
pub(crate) struct Shown {
    pub deliveries: Vec<(DeliveryPlan, Arc<Delivery>)>,
    pub receivers: Vec<(String, Arc<dyn sluice_receivers::ReceiverCounters>)>,
    /// Processors that change data, by id and signal.
    pub steps: Vec<((String, Signal), Arc<Step>)>,
    pub metrics: Option<MetricsPlan>,
    /// Deliveries with all that leads to them, for the ledger.
    pub fed: Vec<Fed>,
}

/// Reloads since the start.
#[derive(Default)]
pub(crate) struct Reloads {
    pub succeeded: AtomicU64,
    pub failed: AtomicU64,
    /// The last one.
    pub has_failed: AtomicBool,
}

impl Reloads {
    pub(crate) fn note(&self, has_failed: bool) {
        let count = if has_failed { &self.failed } else { &self.succeeded };
        count.fetch_add(1, Ordering::Relaxed);
        self.has_failed.store(has_failed, Ordering::Relaxed);
    }
}

pub(crate) struct EngineStatus {
    pub reloads: Reloads,
    pub started: Instant,
    pub ready: AtomicBool,
    pub shown: ArcSwap<Shown>,
    /// Destinations of own telemetry.
    pub pushes: ArcSwap<Vec<Arc<PushStats>>>,
    /// As they were when the deliveries had ended: those of the last report.
    pub last_metrics: OnceLock<Families>,
    pub receiving: Arc<ReceivingBudget>,
    pub backlog: Arc<Backlog>,
    pub storage: Arc<Storage>,
}

impl EngineStatus {
    /// Whether all has started and no shutdown has begun; and, as JSON, deliveries that do not
    /// deliver, and disks that do not work. Data that can be delivered is accepted nevertheless.
    pub(crate) fn health(&self) -> (bool, String) {
        let sick = |id: &DeliveryId, state: &str, reason: &str| -> Value {
            let DeliveryId { pipeline, exporter } = id;
            json!({ "pipeline": pipeline, "exporter": exporter, "state": state, "reason": reason })
        };
        let shown = self.shown.load();
        let in_trouble =
            shown.deliveries.iter().filter_map(|(_, it)| match &*it.stats.state.lock() {
                State::Open => None,
                State::Outage(reason) => Some(sick(&it.id, "out of order", reason)),
                State::Held(reason) => Some(sick(&it.id, "held", reason)),
            });
        let stuck = shown.deliveries.iter().filter_map(|(_, it)| {
            let problem = it.stats.dead_letter_trouble.lock();
            let reason = format!("its dead letters cannot be stored: {}", problem.as_ref()?);
            Some(sick(&it.id, "waits for dead letters", &reason))
        });
        let leaving = self.backlog.leaving();
        let why = "a reload removed it; it sends its remaining data";
        let leaving = leaving.iter().map(|delivery| sick(&delivery.id, "leaving", why));
        let deliveries: Vec<Value> = in_trouble.chain(stuck).chain(leaving).collect();
        let troubled = |signal: Signal| {
            let reason = self.storage.watches[signal as usize].trouble()?;
            Some(json!({ "signal": signal.as_str(), "reason": reason }))
        };
        let disk_trouble: Vec<Value> = Signal::ALL.into_iter().filter_map(troubled).collect();
        let ready = self.ready.load(Ordering::Acquire);
        // The Collector's wording of the status, for probes that look at the body.
        let mut body = json!({
            "status": if ready { "Server available" } else { "Server not available" },
            "uptime_seconds": self.started.elapsed().as_secs(),
            "sick_deliveries": deliveries,
        });
        if !disk_trouble.is_empty() {
            body["disk_trouble"] = disk_trouble.into();
        }
        let logs = || Signal::ALL.into_iter().map(|signal| self.storage.log(signal));
        let set_aside: Vec<Value> = logs()
            .flat_map(|log| log.set_aside())
            .map(|path| path.display().to_string().into())
            .collect();
        if !set_aside.is_empty() {
            body["set_aside"] = set_aside.into();
        }
        let orphans = logs().flat_map(|log| log.orphans());
        let lost: Vec<Value> =
            orphans.filter(|orphan| orphan.is_lost).map(|orphan| orphan.name.into()).collect();
        if !lost.is_empty() {
            body["lost_cursors"] = lost.into();
        }
        let missing = logs().flat_map(|log| log.missing());
        let missing: Vec<Value> = missing
            .map(|(delivery, frames)| json!({ "delivery": delivery, "frames": frames }))
            .collect();
        if !missing.is_empty() {
            body["missing_frames"] = missing.into();
        }
        (ready, format!("{body}\n"))
    }
}
