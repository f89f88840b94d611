//! The paths from receivers to deliveries, as receivers see them.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_otlp::Signal;

use super::deliveries::metadata_keys;
use super::{Engine, RunningDelivery};
use crate::ack::Awaited;
use crate::delivery::Delivery;
use crate::entry::Origin;
use crate::intake::{Route, RouteDisk};
use crate::ledger::{Fed, Inflow};
use crate::plan::{Path, Plan};
use crate::steps;

impl Engine {
    /// `gone`: deliveries that the plan no longer has and that still have a backlog.
    pub(super) fn apply_routes(&self, plan: &Plan, gone: &[Arc<Delivery>]) {
        let grouped = crate::plan::by_receiver(&plan.paths);
        for (id, intake) in &self.intakes {
            let routes = Signal::ALL.into_iter().filter_map(|signal| {
                let paths = grouped.get(&(id.as_str(), signal))?;
                Some((signal, self.route(plan, id, signal, paths)))
            });
            intake.set_routes(routes);
        }
        let routes: Vec<_> = self.intakes.values().flat_map(|intake| intake.deliveries()).collect();
        self.backlog.set_routes(&routes, gone);
    }

    /// All that leads to each delivery, for the ledger, which learns of changes here.
    pub(super) fn fed(&self, plan: &Plan) -> Vec<Fed> {
        let is_start = self.plan.is_none();
        let mut all = Vec::new();
        for running in self.deliveries.values() {
            let delivery = running.delivery.clone();
            let paths = plan.paths.iter().filter(|path| path.delivery == delivery.id);
            let inflows = paths.filter_map(|path| {
                let receiver = self.receivers.iter().find(|it| it.id == path.receiver)?;
                let counters = receiver.handle.counters();
                let (receiver, steps) = (path.receiver.clone(), plan.steps_of(path));
                Some(Inflow { receiver, counters, steps })
            });
            let exporter = &self.exporters[&delivery.id.exporter].exporter;
            let has_names = exporter.item_names().is_some();
            let fed = Fed { inflows: inflows.collect(), delivery, has_names };
            fed.delivery.account.note_fed_by(fed.digest(), is_start);
            all.push(fed);
        }
        all
    }

    pub(super) fn route(
        &self,
        plan: &Plan,
        receiver: &str,
        signal: Signal,
        paths: &[&Path],
    ) -> Route {
        let chains: Vec<Vec<_>> = paths.iter().map(|path| plan.steps_of(path)).collect();
        let prefix = steps::common_prefix(&chains);
        let mut known = BTreeSet::new();
        let first_paths = paths.iter().filter(|path| known.insert(&path.delivery));
        let running: Vec<_> = first_paths.map(|path| &self.deliveries[&path.delivery]).collect();
        let origin = Origin {
            receiver: receiver.to_owned(),
            prepared: prefix.iter().map(|step| step.fingerprint).collect(),
            log: Some(self.storage.log(signal).instance()),
        };
        let disk = plan.disk.as_ref().map(|disk| RouteDisk {
            unwritten_limit_bytes: disk.tail_bytes,
            watch: self.storage.watches[signal as usize].clone(),
        });
        // Request metadata that processors, batches and exporters of the route read.
        let of_steps = chains.iter().flatten().flat_map(|step| step.processor.metadata_keys());
        let of_deliveries = running.iter().flat_map(|running| {
            let exporter = &self.exporters[&running.plan.id.exporter].exporter;
            metadata_keys(&running.plan, exporter.as_ref())
        });
        let names_ranges = running
            .iter()
            .any(|running| self.exporters[&running.plan.id.exporter].exporter.names_ranges());
        let metadata_keys: BTreeSet<String> = of_steps.chain(of_deliveries).collect();
        let unchanged = paths.iter().zip(&chains).filter(|(_, steps)| steps.is_empty());
        let passes_through = unchanged.filter_map(|(path, _)| {
            self.exporters[&path.delivery.exporter].exporter.passes_through()
        });
        Route {
            origin: Arc::new(origin),
            disk,
            awaited: Arc::new(awaited(plan, &running)),
            names_ranges,
            metadata_keys: metadata_keys.into_iter().collect(),
            passes_through: passes_through.filter(|_| prefix.is_empty()).collect(),
            prefix,
            log: self.storage.log(signal).clone(),
            known: self.storage.known[signal as usize].clone(),
            backlog: self.backlog.clone(),
            deliveries: running.iter().map(|running| running.delivery.clone()).collect(),
            readers: running.iter().map(|running| running.delivery.cursor).collect(),
        }
    }
}

/// Deliveries that senders wait for. They do not wait for deliveries that may lose data.
fn awaited(plan: &Plan, deliveries: &[&RunningDelivery]) -> Awaited {
    let mut awaited = Awaited::default();
    for running in deliveries {
        if running.plan.senders_wait {
            awaited.delivered.push(running.delivery.cursor);
        } else if plan.is_ack_durable() && !running.plan.best_effort {
            awaited.unless_durable.push(running.delivery.cursor);
        }
    }
    awaited
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_config::SystemEnvironment;
    use sluice_flow::source::Ingress as _;

    use super::*;

    /// Guarantee: of a request's headers only those are kept that a processor, a batch or an
    /// exporter names, on the routes that lead there. Frames are named where one leads to an
    /// exporter that sends their names.
    #[tokio::test]
    async fn a_route_knows_the_metadata_that_something_reads() {
        let text = "\
receivers: {otlp: {protocols: {grpc: {endpoint: '127.0.0.1:0', include_metadata: true}}}}
processors:
  attributes: {actions: [{key: region, action: insert, from_context: metadata.X-Region}]}
  batch: {metadata_keys: [X-Tenant]}
exporters:
  otlp: {endpoint: 'localhost:1', tls: {insecure: true}, auth: {authenticator: headers_setter}}
  otlp/plain: {endpoint: 'localhost:1', tls: {insecure: true}, idempotent: true}
extensions: {headers_setter: {headers: [{key: x-org, from_context: X-Org}]}}
service:
  extensions: [headers_setter]
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], processors: [attributes, batch], exporters: [otlp]}
    traces/2: {receivers: [otlp], exporters: [otlp/plain]}
    metrics: {receivers: [otlp], exporters: [otlp]}
    logs: {receivers: [otlp], exporters: [otlp/plain]}
";
        let (plan, diagnostics) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
        let plan = plan.unwrap_or_else(|| panic!("{}", diagnostics.render(false)));
        let engine = Engine::start(plan, None).await.expect("starts");
        let route = |signal| engine.intakes["otlp"].route(signal).expect("there is one");
        assert_eq!(route(Signal::Traces).metadata_keys(), ["x-org", "x-region", "x-tenant"]);
        assert!(route(Signal::Logs).metadata_keys().is_empty());
        let names =
            [Signal::Traces, Signal::Metrics, Signal::Logs].map(|it| route(it).names_ranges());
        assert_eq!(names, [true, false, true]);
        engine.shutdown(Duration::ZERO).await;
    }
}
