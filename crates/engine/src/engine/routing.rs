//! The ways from receivers to deliveries, as receivers see them.

use std::sync::Arc;

use sluice_otlp::Signal;

use super::deliveries::metadata_keys;
use super::{Engine, RunningDelivery};
use crate::ack::Awaited;
use crate::delivery::Policy;
use crate::entry::Origin;
use crate::intake::{Route, RouteDisk};
use crate::plan::{DeliveryPlan, Plan, Way};
use crate::steps::{self, Step};

impl Engine {
    pub(super) fn apply_routes(&self, plan: &Plan) {
        let grouped = crate::plan::by_receiver(&plan.ways);
        for (id, intake) in &self.intakes {
            let routes = Signal::ALL.into_iter().filter_map(|signal| {
                let ways = grouped.get(&(id.as_str(), signal))?;
                Some((signal, self.route(plan, id, signal, ways)))
            });
            intake.set_routes(routes);
        }
    }

    fn route(&self, plan: &Plan, receiver: &str, signal: Signal, ways: &[&Way]) -> Route {
        let chains: Vec<Vec<_>> = ways.iter().map(|way| plan.steps_of(way)).collect();
        let prefix = steps::common_prefix(&chains.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut running: Vec<&RunningDelivery> = Vec::new();
        for way in ways {
            let delivery = &self.deliveries[&way.delivery];
            if !running.iter().any(|known| known.plan.id == delivery.plan.id) {
                running.push(delivery);
            }
        }
        let cursors = |of: fn(&DeliveryPlan) -> bool| {
            running.iter().filter(|running| of(&running.plan)).map(|running| running.delivery.cursor).collect()
        };
        let origin =
            Origin { receiver: receiver.to_owned(), prepared: prefix.iter().map(|step| step.fingerprint).collect() };
        let disk = plan.disk.as_ref().map(|disk| RouteDisk {
            unwritten_limit_bytes: disk.tail_bytes,
            watch: self.storage.watches[signal as usize].clone(),
        });
        let metadata_keys = self.metadata_keys(&running, chains.iter().flatten());
        let passes_through = ways
            .iter()
            .zip(&chains)
            .filter(|(_, steps)| steps.is_empty())
            .filter_map(|(way, _)| self.exporters[&way.delivery.exporter].exporter.passes_through());
        Route {
            origin: Arc::new(origin),
            disk,
            awaited: Arc::new(awaited(plan, &running)),
            metadata_keys,
            passes_through: if prefix.is_empty() { passes_through.collect() } else { Vec::new() },
            prefix,
            log: self.storage.log(signal).clone(),
            deliveries: running.iter().map(|running| running.delivery.clone()).collect(),
            readers: running.iter().map(|running| running.delivery.cursor).collect(),
            refusing: cursors(|plan| plan.policy != Policy::DropOldest),
            backpressure: cursors(|plan| plan.policy == Policy::Backpressure),
        }
    }
}

impl Engine {
    /// What processors, batches and exporters of a route read of request metadata.
    fn metadata_keys<'a>(
        &self,
        running: &[&RunningDelivery],
        steps: impl Iterator<Item = &'a Arc<Step>>,
    ) -> Vec<String> {
        let mut keys: Vec<String> = steps.flat_map(|step| step.processor.metadata_keys()).collect();
        for running in running {
            let exporter = &self.exporters[&running.plan.id.exporter].exporter;
            keys.extend(metadata_keys(&running.plan, exporter.as_ref()));
        }
        keys.sort();
        keys.dedup();
        keys
    }
}

/// What senders wait for. Deliveries that may lose data hold nobody up.
fn awaited(plan: &Plan, deliveries: &[&RunningDelivery]) -> Awaited {
    let mut awaited = Awaited::default();
    for running in deliveries {
        if running.plan.senders_wait {
            awaited.delivered.push(running.delivery.cursor);
        } else if plan.ack.is_durable() && !running.plan.best_effort {
            awaited.unless_durable.push(running.delivery.cursor);
        }
    }
    awaited
}
