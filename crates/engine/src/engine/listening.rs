//! Receivers, and the servers for metrics and health. A reload opens new listeners before it closes
//! old ones: if another process has a port, the reload fails and everything goes on as it was.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluice_config::Class;
use sluice_receivers::{BindContext, BoundReceiver, ReceiverContext, ReceiverCounters};

use super::{Engine, RunningReceiver, USER_AGENT, shut_down};
use crate::admin::{AdminPlan, AdminServer};
use crate::error::StartError;
use crate::plan::{Plan, ReceiverPlan};

/// How often a port is tried that one of our own servers is about to leave, and the pause between
/// two tries.
const PORT_TRIES: usize = 100;
const PORT_PAUSE: Duration = Duration::from_millis(10);
/// How long a reload waits for requests in flight at receivers that it ends. They are answered
/// nevertheless, later.
const ENDING_TIMEOUT: Duration = Duration::from_secs(10);

/// Receivers with their ports, by id. `None`: a port of the old ones has to be closed first.
pub(super) type BoundReceivers = BTreeMap<String, Option<Box<dyn BoundReceiver>>>;

/// Of receivers that end, by id.
type CountersBefore = HashMap<String, Arc<dyn ReceiverCounters>>;

impl Engine {
    /// Binds the ports of receivers that are new or changed. Nothing that runs is touched:
    /// listeners whose address stays are shared with their successors.
    pub(super) async fn bind_receivers(&self, plan: &Plan) -> Result<BoundReceivers, StartError> {
        let ending = self.receivers.iter().filter(|running| !running.is_in(plan));
        let held: Vec<_> = ending.flat_map(|running| running.handle.listeners()).collect();
        let mut bound = BoundReceivers::new();
        for planned in plan.receivers.iter().filter(|planned| !self.has_receiver(planned)) {
            let receiver =
                match planned.config.bind(BindContext { id: &planned.id, held: &held }).await {
                    Ok(receiver) => Some(receiver),
                    Err(error) if error.waits_for_held() => None,
                    Err(error) => return Err(StartError::of(Class::Receiver, &planned.id, error)),
                };
            bound.insert(planned.id.clone(), receiver);
        }
        Ok(bound)
    }

    /// Ends receivers that the plan no longer has or has changed, and serves those that are bound.
    pub(super) async fn apply_receivers(
        &mut self,
        plan: &Plan,
        mut bound: BoundReceivers,
    ) -> Result<(), StartError> {
        let (kept, ended): (Vec<_>, Vec<_>) = std::mem::take(&mut self.receivers)
            .into_iter()
            .partition(|running| running.is_in(plan));
        self.receivers = kept;
        let counters: CountersBefore =
            ended.iter().map(|running| (running.id.clone(), running.handle.counters())).collect();
        for planned in &plan.receivers {
            if let Some(receiver) = bound.get_mut(&planned.id).and_then(Option::take) {
                self.serve_receiver(planned, receiver, &counters);
            }
        }
        self.ending.spawn(shut_down(ended));
        let all_ended = async { while self.ending.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(ENDING_TIMEOUT, all_ended).await;
        for planned in plan.receivers.iter().filter(|planned| bound.contains_key(&planned.id)) {
            if !self.has_receiver(planned) {
                let context = BindContext { id: &planned.id, held: &[] };
                let receiver = planned.config.bind(context).await;
                let failed = |error| StartError::of(Class::Receiver, &planned.id, error);
                self.serve_receiver(planned, receiver.map_err(failed)?, &counters);
            }
        }
        Ok(())
    }

    fn has_receiver(&self, planned: &ReceiverPlan) -> bool {
        self.receivers.iter().any(|running| running.is(planned))
    }

    /// Counters go on where a receiver of the same name was.
    fn serve_receiver(
        &mut self,
        planned: &ReceiverPlan,
        receiver: Box<dyn BoundReceiver>,
        before: &CountersBefore,
    ) {
        let handle = receiver.serve(ReceiverContext {
            ingress: self.intakes[&planned.id].clone(),
            authenticators: self.extensions.servers.clone(),
            client_authenticators: self.extensions.clients.clone(),
            user_agent: USER_AGENT,
            resources: self.resources.clone(),
            counters: before.get(&planned.id).cloned(),
        });
        self.receivers.push(RunningReceiver {
            id: planned.id.clone(),
            fingerprint: planned.fingerprint,
            has_senders: planned.config.has_senders(),
            handle,
        });
    }

    pub(super) async fn apply_admin(&mut self, plan: &Plan) -> Result<(), StartError> {
        let planned = AdminPlan::all(plan);
        let status = self.status.clone();
        for wanted in &planned {
            if self.admin.contains_key(wanted) {
                continue;
            }
            let start = async || wanted.serve(&status).await;
            let ends_for_it = |(running, server): (&AdminPlan, &AdminServer)| {
                !planned.contains(running) && server.is_in_the_way_of(&wanted.endpoint)
            };
            let server = match start().await {
                Err(error) if self.admin.iter().any(ends_for_it) => {
                    self.admin.retain(|running, _| planned.contains(running));
                    started_soon(error, start).await?
                }
                started => started?,
            };
            self.admin.insert(wanted.clone(), server);
        }
        self.admin.retain(|running, _| planned.contains(running));
        Ok(())
    }
}

/// Tries again until a server that was just ended has let go of its port.
async fn started_soon(
    mut error: StartError,
    start: impl AsyncFn() -> Result<AdminServer, StartError>,
) -> Result<AdminServer, StartError> {
    for _ in 0..PORT_TRIES {
        tokio::time::sleep(PORT_PAUSE).await;
        match start().await {
            Ok(server) => return Ok(server),
            Err(again) => error = again,
        }
    }
    Err(error)
}
