//! Applies a plan to the running engine.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_exporters::BuildContext;

use super::status::Shown;
use super::{Engine, RunningExporter};
use crate::error::StartError;
use crate::extensions::Extensions;
use crate::intake::ReceiverIngress;
use crate::plan::Plan;

const USER_AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

impl Engine {
    pub(super) async fn apply(&mut self, plan: &Plan) -> Result<(), StartError> {
        let extensions = Extensions::build(&plan.extensions)?;
        let exporters = self.build_exporters(plan, &extensions)?;
        let dead_letters = self.open_dead_letters(plan).await?;
        let bound = self.bind_receivers(plan).await?;
        self.apply_admin(plan).await?;
        self.receiving.set_limit(plan.memory.receiving_bytes as usize);
        self.backlog.set_limit(plan.pool_bytes());
        self.shared_work.set_limit(plan.memory.shared_work_bytes as usize);
        self.storage.apply(plan);
        self.resources
            .connections
            .set_limits(plan.memory.connections_bytes as usize, plan.memory.windows_bytes as usize);
        self.extensions = extensions;
        self.open_intakes(plan);
        let gone = self.apply_deliveries(plan, &exporters, dead_letters).await;
        self.exporters = exporters;
        self.apply_routes(plan);
        // Only now no receiver submits to them any more.
        for (id, running) in gone {
            self.leave(id, running, plan.drain_timeout);
        }
        self.apply_receivers(plan, bound).await?;
        self.show(plan);
        Ok(())
    }

    /// Exporters with an unchanged configuration keep their connections.
    fn build_exporters(
        &self,
        plan: &Plan,
        extensions: &Extensions,
    ) -> Result<HashMap<String, RunningExporter>, StartError> {
        let mut exporters = HashMap::new();
        for (id, planned) in &plan.exporters {
            let context = BuildContext {
                name: id,
                authenticators: &extensions.clients,
                user_agent: USER_AGENT,
                files: &self.files,
            };
            let kept = self.exporters.get(id).filter(|running| running.fingerprint == planned.fingerprint);
            let exporter = match kept {
                Some(running) => running.exporter.clone(),
                None => planned
                    .config
                    .build(&context)
                    .map_err(|error| StartError::Exporter { id: id.clone(), reason: error.to_string() })?,
            };
            exporters.insert(id.clone(), RunningExporter { fingerprint: planned.fingerprint, exporter });
        }
        Ok(exporters)
    }

    fn open_intakes(&mut self, plan: &Plan) {
        for receiver in &plan.receivers {
            let index = self.intakes.len() as u16;
            self.intakes.entry(receiver.id.clone()).or_insert_with(|| {
                Arc::new(ReceiverIngress::new(
                    index,
                    self.receiving.clone(),
                    self.shared_work.clone(),
                    self.resources.clone(),
                ))
            });
        }
    }

    fn show(&self, plan: &Plan) {
        let deliveries =
            self.deliveries.values().map(|running| (running.plan.clone(), running.delivery.clone())).collect();
        let receivers = self.receivers.iter().map(|running| (running.id.clone(), running.handle.counters())).collect();
        self.status.shown.store(Arc::new(Shown { deliveries, receivers, metrics: plan.metrics.clone() }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use sluice_config::SystemEnvironment;

    use super::*;

    fn plan(limit_mib: u64, pipelines: &[&str]) -> Plan {
        let pipelines: String =
            pipelines.iter().map(|id| format!("    {id}: {{receivers: [otlp], exporters: [otlp]}}\n")).collect();
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
        for (limit_mib, pipelines) in [(256, vec!["traces"]), (256, vec!["traces", "traces/second"])] {
            engine.reload(plan(limit_mib, &pipelines)).await.expect("reloads");
            let memory = engine.plan.memory;
            assert_eq!(engine.receiving.limit_bytes() as u64, memory.receiving_bytes);
            assert_eq!(engine.backlog.state().limit_bytes, memory.backlog_bytes);
            assert_eq!(engine.shared_work.limit_bytes() as u64, memory.shared_work_bytes);
            for running in engine.deliveries.values() {
                assert_eq!(running.delivery.packed_limit_bytes.load(Ordering::Relaxed), memory.packed_bytes);
            }
        }
        engine.shutdown(Duration::ZERO).await;
    }
}
