//! Brings what runs into line with a plan.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_exporters::BuildContext;

use super::status::Shown;
use super::{Engine, RunningExporter, RunningReceiver};
use crate::admin;
use crate::error::StartError;
use crate::extensions::Extensions;
use crate::intake::ReceiverIntake;
use crate::plan::Plan;
use crate::status::Status;

const USER_AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

impl Engine {
    pub(super) async fn apply(&mut self, plan: &Plan) -> Result<(), StartError> {
        let extensions = Extensions::build(&plan.extensions)?;
        let exporters = self.build_exporters(plan, &extensions)?;
        self.receiving.set_limit(plan.memory.receiving_bytes as usize);
        self.extensions = extensions;
        self.open_intakes(plan);
        let gone = self.apply_deliveries(plan, &exporters).await;
        self.exporters = exporters;
        self.apply_routes(plan);
        // Only now does nobody hand them anything any more.
        for (id, running) in gone {
            self.leave(id, running, plan.drain_timeout);
        }
        self.apply_receivers(plan).await?;
        self.apply_admin(plan).await?;
        self.show(plan);
        Ok(())
    }

    /// Exporters whose configuration is unchanged keep their connections.
    fn build_exporters(
        &self,
        plan: &Plan,
        extensions: &Extensions,
    ) -> Result<HashMap<String, RunningExporter>, StartError> {
        let mut exporters = HashMap::new();
        for (id, planned) in &plan.exporters {
            let kept = self.exporters.get(id).filter(|running| running.fingerprint == planned.fingerprint);
            let exporter = match kept {
                Some(running) => running.exporter.clone(),
                None => planned
                    .config
                    .build(&BuildContext { name: id, authenticators: &extensions.requests, user_agent: USER_AGENT })
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
                Arc::new(ReceiverIntake::new(index, self.receiving.clone(), self.shared_work.clone()))
            });
        }
    }

    async fn apply_receivers(&mut self, plan: &Plan) -> Result<(), StartError> {
        let (kept, ended): (Vec<_>, Vec<_>) = std::mem::take(&mut self.receivers).into_iter().partition(|running| {
            plan.receivers.iter().any(|planned| planned.id == running.id && planned.fingerprint == running.fingerprint)
        });
        self.receivers = kept;
        // All at once: their listeners close first, then what is in flight ends.
        futures_util::future::join_all(ended.into_iter().map(|running| running.handle.shutdown())).await;
        for planned in &plan.receivers {
            if self.receivers.iter().any(|running| running.id == planned.id) {
                continue;
            }
            let intake = self.intakes[&planned.id].clone();
            let handle = planned
                .config
                .start(intake, &self.extensions.senders)
                .await
                .map_err(|error| StartError::Receiver { id: planned.id.clone(), reason: error.to_string() })?;
            self.receivers.push(RunningReceiver { id: planned.id.clone(), fingerprint: planned.fingerprint, handle });
        }
        Ok(())
    }

    async fn apply_admin(&mut self, plan: &Plan) -> Result<(), StartError> {
        let status: Arc<dyn Status> = self.status.clone();
        if self.metrics_server.as_ref().map(|(plan, _)| &plan.endpoint)
            != plan.metrics.as_ref().map(|plan| &plan.endpoint)
        {
            self.metrics_server = None;
            if let Some(metrics) = &plan.metrics {
                let server = admin::serve_metrics(&metrics.endpoint, status.clone()).await?;
                self.metrics_server = Some((metrics.clone(), server));
            }
        }
        let planned: Vec<(String, String)> = plan
            .extensions
            .values()
            .filter_map(|extension| extension.health_check())
            .map(|(endpoint, path)| (endpoint.to_owned(), path.to_owned()))
            .collect();
        self.health_servers.retain(|running, _| planned.contains(running));
        for (endpoint, path) in planned {
            if !self.health_servers.contains_key(&(endpoint.clone(), path.clone())) {
                let server = admin::serve_health(&endpoint, &path, status.clone()).await?;
                self.health_servers.insert((endpoint, path), server);
            }
        }
        Ok(())
    }

    fn show(&self, plan: &Plan) {
        let deliveries =
            self.deliveries.values().map(|running| (running.plan.clone(), running.delivery.clone())).collect();
        let receivers = self.receivers.iter().map(|running| (running.id.clone(), running.handle.counters())).collect();
        self.status.shown.store(Arc::new(Shown { deliveries, receivers, metrics: plan.metrics.clone() }));
    }
}
