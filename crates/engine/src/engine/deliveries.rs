//! Deliveries at start and at a reload. Unchanged deliveries continue, changed ones hand over to a
//! new task, and removed ones send their remaining data.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_flow::Exporter;
use sluice_log::{Holding, Keep};
use tokio::sync::watch;

use super::{Engine, RunningDelivery, RunningExporter};
use crate::delivery::{self, Bounds, DeadLetters, Delivery, DeliveryId, Preparer, Stop};
use crate::error::StartError;
use crate::plan::{DeliveryPlan, Path, Plan};
use crate::steps::{self, Chain};

/// How long a removed delivery may go on sending.
const LEAVING_TIMEOUT: Duration = Duration::from_secs(10);
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
        let planned: BTreeSet<&DeliveryId> = plan.deliveries.iter().map(|it| &it.id).collect();
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.deliveries)
            .into_iter()
            .partition(|(id, _)| planned.contains(id));
        self.deliveries = kept;
        for planned in &plan.deliveries {
            let fingerprint = delivery_fingerprint(plan, &planned.id, exporters);
            self.wait_until_left(&planned.id).await;
            let kept = self.deliveries.remove(&planned.id);
            let is_same = |it: &RunningDelivery| {
                it.fingerprint == fingerprint
                    && it.plan.dispatch == planned.dispatch
                    && it.plan.metadata_keys == planned.metadata_keys
            };
            let delivery = match kept {
                Some(mut running) if is_same(&running) => {
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
            let exporter = exporters[&planned.id.exporter].exporter.clone();
            let intakes = self.intakes.iter();
            let preparer = Preparer {
                memory: delivery.private.clone(),
                metadata_keys: metadata_keys(planned, exporter.as_ref()).into_iter().collect(),
                exporter,
                chains: self.chains(plan, &planned.id),
                receivers: intakes.map(|(id, intake)| (id.clone(), intake.receiver())).collect(),
                orphans: [own_chain(plan, planned)],
            };
            let (stop, stopped) = watch::channel(Stop::No);
            let run = delivery::run(delivery.clone(), planned.dispatch, preparer, stopped);
            let task = tokio::spawn(run);
            let running =
                RunningDelivery { plan: planned.clone(), fingerprint, delivery, stop, task };
            self.deliveries.insert(planned.id.clone(), running);
        }
        gone.into_iter().collect()
    }

    /// A delivery that returns continues its backlog on disk, which its removed predecessor must
    /// release first.
    async fn wait_until_left(&self, id: &DeliveryId) {
        if self.storage.directory().is_some() {
            self.wait_while_leaving(|leaving| leaving == id).await;
        }
    }

    pub(super) async fn wait_while_leaving(&self, is_meant: impl Fn(&DeliveryId) -> bool) {
        while self.backlog.leaving().iter().any(|delivery| is_meant(&delivery.id)) {
            tokio::time::sleep(LEAVING_PAUSE).await;
        }
    }

    /// The dead letters of new deliveries, opened before anything is changed.
    pub(super) async fn open_dead_letters(
        &self,
        plan: &Plan,
    ) -> Result<HashMap<DeliveryId, DeadLetters>, StartError> {
        let mut opened = HashMap::new();
        for DeliveryPlan { id, signal, .. } in &plan.deliveries {
            if !self.deliveries.contains_key(id) {
                let letters = self.storage.dead_letters(plan, id, *signal).await?;
                opened.insert(id.clone(), letters);
            }
        }
        Ok(opened)
    }

    /// A delivery that the new configuration does not have. Its backlog on disk stays. Frames in
    /// memory, and frames whose senders wait, are sent for a bounded time.
    pub(super) fn leave(&self, id: DeliveryId, running: RunningDelivery) {
        let backlog = self.backlog.clone();
        let stays = self.storage.directory().is_some();
        tokio::spawn(async move {
            let drains = !stays || running.plan.senders_wait;
            let _ = running.stop.send(if drains { Stop::Drain } else { Stop::HandOver });
            let mut task = running.task;
            if tokio::time::timeout(LEAVING_TIMEOUT, &mut task).await.is_err() {
                let _ = running.stop.send(Stop::HandOver);
                let _ = task.await;
            }
            let delivery = &running.delivery;
            abandon(delivery, stays);
            let held = delivery.log.held(delivery.cursor);
            let keep = if stays { Keep::Backlog } else { Keep::Nothing };
            delivery.log.unsubscribe(delivery.cursor, keep);
            backlog.left(delivery);
            let (Holding { items, bytes, .. }, DeliveryId { pipeline, exporter }) = (held, &id);
            match stays {
                _ if items == 0 => {}
                true => tracing::warn!(
                    %pipeline, %exporter, items, bytes,
                    "the configuration no longer has this delivery: its backlog stays on disk \
                     until a delivery of this name returns, or until it is dropped with \
                     `sluice log drop`"
                ),
                false => tracing::error!(
                    %pipeline, %exporter, items, bytes,
                    "the configuration no longer has this delivery, and its backend did not \
                     take the rest in time: the rest is lost"
                ),
            }
        });
    }

    /// The paths from each receiver to a delivery.
    fn chains(&self, plan: &Plan, id: &DeliveryId) -> HashMap<u16, Vec<Chain>> {
        let mut chains: HashMap<u16, Vec<Chain>> = HashMap::new();
        for path in plan.paths.iter().filter(|path| path.delivery == *id) {
            let does_the_same = |other: &&Path| {
                (&other.receiver, other.signal, &other.processors)
                    == (&path.receiver, path.signal, &path.processors)
            };
            let sharers = plan.paths.iter().filter(does_the_same).count();
            let receiver = self.intakes[&path.receiver].receiver();
            let steps = plan.steps_of(path).into();
            chains.entry(receiver).or_default().push(Chain { steps, sharers });
        }
        chains
    }
}

/// Changes with the exporter and with the steps before it.
fn delivery_fingerprint(
    plan: &Plan,
    id: &DeliveryId,
    exporters: &HashMap<String, RunningExporter>,
) -> u64 {
    let mut hasher = DefaultHasher::new();
    exporters[&id.exporter].fingerprint.hash(&mut hasher);
    for path in plan.paths.iter().filter(|path| path.delivery == *id) {
        (&path.receiver, steps::identity(&plan.steps_of(path))).hash(&mut hasher);
    }
    hasher.finish()
}

/// Tells senders and sources of what is left in memory that the delivery has gone: its task has
/// ended and leases nothing.
fn abandon(delivery: &Delivery, is_kept: bool) {
    let mut from = 0;
    loop {
        let left = delivery.log.unresolved_in_memory(delivery.cursor, from);
        let Some((last, _)) = left.last() else { return };
        from = last + 1;
        left.iter().for_each(|(_, entry)| entry.abandoned(delivery.cursor, is_kept));
    }
}

fn set_bounds(plan: &Plan, planned: &DeliveryPlan, delivery: &Delivery) {
    let bounds = Bounds {
        policy: planned.policy,
        is_best_effort: planned.best_effort,
        limit_bytes: planned.budget_bytes,
    };
    delivery.set_bounds(bounds, planned.lease_bytes);
    delivery.packed_limit_bytes.store(plan.memory.packed_bytes, Ordering::Relaxed);
    let dead_letters_bytes =
        plan.disk.as_ref().map_or(plan.memory.dead_letters_bytes, |disk| disk.dead_letters_bytes);
    delivery.dead_letters.set_limit(dead_letters_bytes);
}

/// The steps of the delivery's own pipeline.
fn own_chain(plan: &Plan, planned: &DeliveryPlan) -> Chain {
    let pipeline = plan.pipelines.iter().find(|pipeline| pipeline.id == planned.id.pipeline);
    let processors = pipeline.map(|pipeline| pipeline.processors.as_slice()).unwrap_or_default();
    let steps =
        processors.iter().filter_map(|id| plan.steps.get(&(id.clone(), planned.signal)).cloned());
    Chain { steps: steps.collect(), sharers: 1 }
}

/// The request metadata that the exporter reads or by which the pipeline batches.
pub(super) fn metadata_keys(planned: &DeliveryPlan, exporter: &dyn Exporter) -> BTreeSet<String> {
    exporter.metadata_keys().iter().chain(&planned.metadata_keys).cloned().collect()
}

#[cfg(test)]
mod tests {
    use sluice_log::Log;

    use super::*;
    use crate::ack::{Ack, Awaited};
    use crate::delivery::tests::{append, delivery};
    use crate::entry::Entry;

    /// Scenario: a reload removes a delivery that may lease one frame at a time, while the senders
    /// of many wait for it. Guarantee: all of them are told at once.
    #[test]
    fn every_sender_learns_that_the_delivery_that_it_waits_for_has_gone() {
        let log = Arc::<Log<Entry>>::default();
        let gone = delivery("gone", &log);
        log.set_limits(gone.cursor, u64::MAX, 1);
        let awaited = Arc::new(Awaited { delivered: vec![gone.cursor], ..Awaited::default() });
        let submit = |_| {
            let (ack, answer) = Ack::new(awaited.clone());
            append(&log, &[gone.cursor], Some(ack));
            answer
        };
        let mut answers: Vec<_> = (0..2000).map(submit).collect();
        abandon(&gone, false);
        assert!(answers.iter_mut().all(|answer| answer.try_recv().is_ok()));
    }
}
