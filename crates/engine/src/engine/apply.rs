//! Applies a plan to the running engine.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_config::Class;
use sluice_exporters::BuildContext;

use super::{Engine, RunningExporter};
use crate::error::StartError;
use crate::extensions::Extensions;
use crate::intake::ReceiverIngress;
use crate::plan::Plan;
use crate::status::Shown;

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
        let (connections_bytes, windows_bytes) =
            (plan.memory.connections_bytes as usize, plan.memory.windows_bytes as usize);
        self.resources.connections.set_limits(connections_bytes, windows_bytes);
        self.extensions = extensions;
        self.open_intakes(plan);
        let gone = self.apply_deliveries(plan, &exporters, dead_letters).await;
        self.exporters = exporters;
        let leaving: Vec<_> = gone.iter().map(|(_, running)| running.delivery.clone()).collect();
        self.apply_routes(plan, &leaving);
        // Only now no receiver submits to them any more.
        for (id, running) in gone {
            self.leave(id, running);
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
            let fingerprint = planned.fingerprint;
            let kept = self.exporters.get(id).filter(|kept| kept.fingerprint == fingerprint);
            let exporter = match kept {
                Some(running) => running.exporter.clone(),
                None => {
                    let context = BuildContext {
                        name: id,
                        authenticators: &extensions.clients,
                        user_agent: USER_AGENT,
                        files: &self.files,
                    };
                    let built = planned.config.build(&context);
                    built.map_err(|error| StartError::of(Class::Exporter, id, error))?
                }
            };
            exporters.insert(id.clone(), RunningExporter { fingerprint, exporter });
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
        let deliveries = self.deliveries.values();
        let receivers = self.receivers.iter();
        self.status.shown.store(Arc::new(Shown {
            deliveries: deliveries.map(|it| (it.plan.clone(), it.delivery.clone())).collect(),
            receivers: receivers.map(|it| (it.id.clone(), it.handle.counters())).collect(),
            metrics: plan.metrics.clone(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use sluice_config::SystemEnvironment;

    use super::*;

    fn plan(limit_mib: u64, pipelines: &[&str]) -> Plan {
        let pipelines: String = pipelines
            .iter()
            .map(|id| format!("    {id}: {{receivers: [otlp], exporters: [otlp]}}\n"))
            .collect();
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
        for (limit_mib, pipelines) in
            [(256, vec!["traces"]), (256, vec!["traces", "traces/second"])]
        {
            engine.reload(plan(limit_mib, &pipelines)).await.expect("reloads");
            let memory = engine.plan.as_ref().expect("is applied").memory;
            assert_eq!(engine.receiving.limit_bytes() as u64, memory.receiving_bytes);
            assert_eq!(engine.backlog.state().limit_bytes, memory.backlog_bytes);
            assert_eq!(engine.shared_work.limit_bytes() as u64, memory.shared_work_bytes);
            for running in engine.deliveries.values() {
                assert_eq!(
                    running.delivery.packed_limit_bytes.load(Ordering::Relaxed),
                    memory.packed_bytes
                );
            }
        }
        engine.shutdown(Duration::ZERO).await;
    }
}
