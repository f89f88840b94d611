//! Receivers, and the servers for metrics and health. A reload opens new listeners before it closes old ones: if another
//! process has a port, the reload fails and everything goes on as it was.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluice_receivers::{BoundReceiver, ReceiverContext, ReceiverCounters};

use super::{Engine, RunningReceiver};
use crate::admin::{self, AdminError, AdminServer};
use crate::error::StartError;
use crate::plan::{Plan, ReceiverPlan};
use crate::status::Status;

/// How often a port is tried that one of our own servers is about to leave, and the pause between two tries.
const PORT_TRIES: usize = 100;
const PORT_PAUSE: Duration = Duration::from_millis(10);

/// Receivers with their ports, by id. `None`: a port of the old ones has to be closed first.
pub(super) type BoundReceivers = BTreeMap<String, Option<Box<dyn BoundReceiver>>>;

/// Of receivers that end, by id.
type CountersBefore = HashMap<String, Arc<dyn ReceiverCounters>>;

impl Engine {
    /// Binds the ports of receivers that are new or changed. Nothing that runs is touched: listeners whose address stays are
    /// shared with their successors.
    pub(super) async fn bind_receivers(&self, plan: &Plan) -> Result<BoundReceivers, StartError> {
        let ending = self.receivers.iter().filter(|running| !running.is_in(plan));
        let held: Vec<_> = ending.flat_map(|running| running.handle.listeners()).collect();
        let mut bound = BoundReceivers::new();
        for planned in plan.receivers.iter().filter(|planned| !self.has_receiver(planned)) {
            let receiver = match planned.config.bind(&held).await {
                Ok(receiver) => Some(receiver),
                Err(error) if error.waits_for_held() => None,
                Err(error) => return Err(refused(planned, &error)),
            };
            bound.insert(planned.id.clone(), receiver);
        }
        Ok(bound)
    }

    /// Ends receivers that the plan no longer has or has changed, and serves those that are bound.
    pub(super) async fn apply_receivers(&mut self, plan: &Plan, mut bound: BoundReceivers) -> Result<(), StartError> {
        let (kept, ended): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.receivers).into_iter().partition(|running| running.is_in(plan));
        self.receivers = kept;
        let counters: CountersBefore =
            ended.iter().map(|running| (running.id.clone(), running.handle.counters())).collect();
        for planned in &plan.receivers {
            if let Some(receiver) = bound.get_mut(&planned.id).and_then(Option::take) {
                self.serve_receiver(planned, receiver, &counters);
            }
        }
        // All at once: their listeners close first, then what is in flight ends.
        futures_util::future::join_all(ended.into_iter().map(|running| running.handle.shutdown())).await;
        for planned in plan.receivers.iter().filter(|planned| bound.contains_key(&planned.id)) {
            if !self.has_receiver(planned) {
                let receiver = planned.config.bind(&[]).await.map_err(|error| refused(planned, &error))?;
                self.serve_receiver(planned, receiver, &counters);
            }
        }
        Ok(())
    }

    fn has_receiver(&self, planned: &ReceiverPlan) -> bool {
        self.receivers.iter().any(|running| running.is(planned))
    }

    /// Counters go on where a receiver of the same name was.
    fn serve_receiver(&mut self, planned: &ReceiverPlan, receiver: Box<dyn BoundReceiver>, before: &CountersBefore) {
        let handle = receiver.serve(ReceiverContext {
            ingress: self.intakes[&planned.id].clone(),
            authenticators: self.extensions.servers.clone(),
            resources: self.resources.clone(),
            counters: before.get(&planned.id).cloned(),
        });
        self.receivers.push(RunningReceiver { id: planned.id.clone(), fingerprint: planned.fingerprint, handle });
    }

    pub(super) async fn apply_admin(&mut self, plan: &Plan) -> Result<(), StartError> {
        self.apply_metrics(plan).await?;
        self.apply_health(plan).await
    }

    async fn apply_metrics(&mut self, plan: &Plan) -> Result<(), StartError> {
        let Some(metrics) = &plan.metrics else {
            self.metrics_server = None;
            return Ok(());
        };
        if self.metrics_server.as_ref().is_some_and(|(running, _)| running.endpoint == metrics.endpoint) {
            return Ok(());
        }
        let status: Arc<dyn Status> = self.status.clone();
        let start = async || admin::serve_metrics(&metrics.endpoint, status.clone()).await;
        let started = match start().await {
            Err(error)
                if self.metrics_server.as_ref().is_some_and(|(_, old)| old.is_in_the_way_of(&metrics.endpoint)) =>
            {
                self.metrics_server = None;
                started_soon(error, start).await?
            }
            started => started?,
        };
        self.metrics_server = Some((metrics.clone(), started));
        Ok(())
    }

    async fn apply_health(&mut self, plan: &Plan) -> Result<(), StartError> {
        let planned: Vec<(String, String)> = plan
            .extensions
            .values()
            .filter_map(|extension| extension.health_check())
            .map(|health_check| (health_check.endpoint.clone(), health_check.path.clone()))
            .collect();
        for key in &planned {
            if self.health_servers.contains_key(key) {
                continue;
            }
            let (endpoint, path) = key;
            let status: Arc<dyn Status> = self.status.clone();
            let start = async || admin::serve_health(endpoint, path, status.clone()).await;
            let leaving = |(running, old): (&(String, String), &AdminServer)| {
                !planned.contains(running) && old.is_in_the_way_of(endpoint)
            };
            let server = match start().await {
                Err(error) if self.health_servers.iter().any(leaving) => {
                    self.health_servers.retain(|running, _| planned.contains(running));
                    started_soon(error, start).await?
                }
                started => started?,
            };
            self.health_servers.insert(key.clone(), server);
        }
        self.health_servers.retain(|running, _| planned.contains(running));
        Ok(())
    }
}

/// Tries again until a server that was just ended has let go of its port.
async fn started_soon(
    mut error: AdminError,
    start: impl AsyncFn() -> Result<AdminServer, AdminError>,
) -> Result<AdminServer, AdminError> {
    for _ in 0..PORT_TRIES {
        tokio::time::sleep(PORT_PAUSE).await;
        match start().await {
            Ok(server) => return Ok(server),
            Err(again) => error = again,
        }
    }
    Err(error)
}

fn refused(planned: &ReceiverPlan, error: &dyn std::fmt::Display) -> StartError {
    StartError::Receiver { id: planned.id.clone(), reason: error.to_string() }
}
