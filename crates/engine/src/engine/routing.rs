//! The ways from receivers to deliveries, as receivers see them.

use std::sync::Arc;

use sluice_otlp::Signal;

use super::{Engine, RunningDelivery};
use crate::delivery::Policy;
use crate::intake::{Route, Routes};
use crate::plan::{Plan, Way};
use crate::steps;

impl Engine {
    pub(super) fn apply_routes(&self, plan: &Plan) {
        let grouped = crate::plan::by_receiver(&plan.ways);
        for (id, intake) in &self.intakes {
            let routes = Signal::ALL.into_iter().filter_map(|signal| {
                let ways = grouped.get(&(id.as_str(), signal))?;
                Some((signal, self.route(plan, signal, ways)))
            });
            intake.routes.store(Arc::new(Routes::new(routes)));
        }
    }

    fn route(&self, plan: &Plan, signal: Signal, ways: &[&Way]) -> Route {
        let chains: Vec<Vec<_>> = ways.iter().map(|way| plan.steps_of(way)).collect();
        let prefix = steps::common_prefix(&chains.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut running: Vec<&RunningDelivery> = Vec::new();
        for way in ways {
            let delivery = &self.deliveries[&way.delivery];
            if !running.iter().any(|known| known.plan.id == delivery.plan.id) {
                running.push(delivery);
            }
        }
        let refusing = |running: &&&RunningDelivery| running.plan.policy == Policy::Backpressure;
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
}
