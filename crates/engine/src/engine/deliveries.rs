//! Deliveries at start and at a reload. Unchanged deliveries continue, changed ones hand over to a
//! new task, and removed ones send their remaining data.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_flow::Exporter;
use sluice_log::Keep;
use tokio::sync::watch;

use super::{Engine, RunningDelivery, RunningExporter};
use crate::delivery::{self, Bounds, DeadLetters, Delivery, DeliveryId, Preparer, Settings, Stop};
use crate::error::StartError;
use crate::plan::{DeliveryPlan, Plan};
use crate::steps::{self, Chain};

/// How often a removed delivery is checked.
const LEAVING_PAUSE: Duration = Duration::from_millis(10);

impl Engine {
    /// Returns the deliveries that the plan no longer has.
    pub(super) async fn apply_deliveries(
        &mut self,
        plan: &Plan,
        exporters: &HashMap<String, RunningExporter>,
        mut dead_letters: HashMap<DeliveryId, DeadLetters>,
    ) -> Vec<(DeliveryId, RunningDelivery)> {
        let planned: BTreeMap<&DeliveryId, &DeliveryPlan> =
            plan.deliveries.iter().map(|delivery| (&delivery.id, delivery)).collect();
        let gone: Vec<DeliveryId> = self.deliveries.keys().filter(|id| !planned.contains_key(id)).cloned().collect();
        let gone = gone.into_iter().filter_map(|id| self.deliveries.remove_entry(&id)).collect();
        for planned in plan.deliveries.iter() {
            let fingerprint = self.delivery_fingerprint(plan, planned, exporters);
            self.wait_until_left(&planned.id).await;
            let kept = self.deliveries.remove(&planned.id);
            let delivery = match kept {
                Some(mut running) if running.fingerprint == fingerprint => {
                    set_bounds(plan, planned, &running.delivery);
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
                    self.storage.log(planned.signal).clone(),
                    dead_letters.remove(&planned.id).unwrap_or_else(|| DeadLetters::in_memory(0)),
                    self.receiving.clone(),
                    self.backlog.private_memory(),
                    planned.best_effort,
                )),
            };
            set_bounds(plan, planned, &delivery);
            let settings = Settings {
                dispatch: planned.dispatch,
                preparer: Preparer {
                    memory: delivery.private.clone(),
                    metadata_keys: metadata_keys(planned, exporters[&planned.id.exporter].exporter.as_ref()),
                    exporter: exporters[&planned.id.exporter].exporter.clone(),
                    chains: self.chains(plan, &planned.id),
                    receivers: self.intakes.iter().map(|(id, intake)| (id.clone(), intake.receiver())).collect(),
                    orphans: [own_chain(plan, planned)],
                },
            };
            let (stop, stopped) = watch::channel(Stop::No);
            let task = tokio::spawn(delivery::run(delivery.clone(), settings, stopped));
            let running = RunningDelivery { plan: planned.clone(), fingerprint, delivery, stop, task };
            self.deliveries.insert(planned.id.clone(), running);
        }
        gone
    }

    /// A delivery that returns continues its backlog on disk, which its removed predecessor must
    /// release first.
    async fn wait_until_left(&self, id: &DeliveryId) {
        while self.storage.directory().is_some() && self.status.leaving.lock().contains(id) {
            tokio::time::sleep(LEAVING_PAUSE).await;
        }
    }

    /// The dead letters of new deliveries, opened before anything is changed.
    pub(super) async fn open_dead_letters(&self, plan: &Plan) -> Result<HashMap<DeliveryId, DeadLetters>, StartError> {
        let mut opened = HashMap::new();
        for planned in plan.deliveries.iter().filter(|planned| !self.deliveries.contains_key(&planned.id)) {
            let letters = self.storage.dead_letters(plan, &planned.id, planned.signal).await?;
            opened.insert(planned.id.clone(), letters);
        }
        Ok(opened)
    }

    /// A delivery that the new configuration does not have. Its backlog on disk stays. Frames in
    /// memory, and frames whose senders wait, are sent for a bounded time.
    pub(super) fn leave(&self, id: DeliveryId, running: RunningDelivery, drain_timeout: Duration) {
        self.status.leaving.lock().push(id.clone());
        let status = self.status.clone();
        let stays = self.storage.directory().is_some();
        tokio::spawn(async move {
            let drains = !stays || running.plan.senders_wait;
            let _ = running.stop.send(if drains { Stop::Drain } else { Stop::HandOver });
            let mut task = running.task;
            if tokio::time::timeout(drain_timeout, &mut task).await.is_err() {
                let _ = running.stop.send(Stop::HandOver);
                let _ = task.await;
            }
            let delivery = &running.delivery;
            abandon(delivery, stays);
            if stays {
                let held = delivery.log.held(delivery.cursor);
                delivery.log.unsubscribe(delivery.cursor, Keep::Backlog);
                if held.items > 0 {
                    tracing::warn!(
                        pipeline = %id.pipeline, exporter = %id.exporter, items = held.items, bytes = held.bytes,
                        "the configuration no longer has this delivery: its backlog stays on disk \
                         until a delivery of this name returns, or until it is dropped with \
                         `sluice log drop`"
                    );
                }
            } else {
                let lost = delivery.log.unsubscribe(delivery.cursor, Keep::Nothing);
                if lost.items > 0 {
                    tracing::error!(
                        pipeline = %id.pipeline, exporter = %id.exporter, items = lost.items, bytes = lost.bytes,
                        "the configuration no longer has this delivery, and its backend did not \
                         take the rest in time: the rest is lost"
                    );
                }
            }
            status.leaving.lock().retain(|other| *other != id);
        });
    }

    /// The paths from each receiver to a delivery.
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
            let receiver = self.intakes[&way.receiver].receiver();
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
        planned.dispatch.hash(&mut hasher);
        planned.metadata_keys.hash(&mut hasher);
        for way in plan.ways.iter().filter(|way| way.delivery == planned.id) {
            way.receiver.hash(&mut hasher);
            steps::identity(&plan.steps_of(way)).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Tells senders and sources of what is left in memory that the delivery has gone: its task has ended and leases nothing.
fn abandon(delivery: &Delivery, is_kept: bool) {
    while let Some((_, entry)) = delivery.log.read(delivery.cursor).entry() {
        entry.abandoned(delivery.cursor, is_kept);
    }
    delivery.log.rewind(delivery.cursor);
}

fn set_bounds(plan: &Plan, planned: &DeliveryPlan, delivery: &Delivery) {
    let bounds =
        Bounds { policy: planned.policy, is_best_effort: planned.best_effort, limit_bytes: planned.budget_bytes };
    delivery.set_bounds(bounds, planned.lease_bytes);
    delivery.packed_limit_bytes.store(plan.memory.packed_bytes, Ordering::Relaxed);
    let dead_letters_bytes = plan.disk.as_ref().map_or(plan.memory.dead_letters_bytes, |disk| disk.dead_letters_bytes);
    delivery.dead_letters.set_limit(dead_letters_bytes);
}

/// The steps of the delivery's own pipeline.
fn own_chain(plan: &Plan, planned: &DeliveryPlan) -> Chain {
    let pipeline = plan.pipelines.iter().find(|pipeline| pipeline.id == planned.id.pipeline);
    let processors = pipeline.map(|pipeline| pipeline.processors.as_slice()).unwrap_or_default();
    let steps = processors.iter().filter_map(|id| plan.steps.get(&(id.clone(), planned.signal)).cloned());
    Chain { steps: steps.collect(), sharers: 1 }
}

/// The request metadata that the exporter reads or by which the pipeline batches.
pub(super) fn metadata_keys(planned: &DeliveryPlan, exporter: &dyn Exporter) -> Vec<String> {
    let mut keys = exporter.metadata_keys().to_vec();
    keys.extend(planned.metadata_keys.iter().cloned());
    keys.sort();
    keys.dedup();
    keys
}
