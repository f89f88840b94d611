//! Deliveries at start and at a reload. Unchanged deliveries continue, changed ones hand over to
//! another setup, and removed ones send their remaining data.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_flow::Exporter;
use sluice_flow::dispatch::DispatchPolicy;
use sluice_flow::overload::budget;
use sluice_log::{Holding, Keep};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout_at;

use super::{Engine, RunningDelivery, RunningExporter, Undelivered};
use crate::backlog::Backlog;
use crate::delivery::{
    self, Bounds, DeadLetters, Delivery, DeliveryId, Names, Preparer, SharedMemory, Stop,
};
use crate::error::Result;
use crate::plan::{DeliveryPlan, ExporterPlan, MemoryPlan, Path, Plan};
use crate::steps::{self, Chain, Step};

/// A removed delivery may go on sending for this long.
const LEAVING_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between checks of a removed delivery.
const LEAVING_PAUSE: Duration = Duration::from_millis(10);
/// A delivery that hands over waits this long for requests in flight. Then they are sent again.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything that a delivery's task runs with until it is stopped.
pub(super) struct Setup {
    dispatch: DispatchPolicy,
    preparer: Preparer,
    stop: watch::Sender<Stop>,
}

impl RunningDelivery {
    fn new(plan: DeliveryPlan, delivery: Arc<Delivery>) -> Self {
        let (setups, coming) = mpsc::unbounded_channel();
        let task = tokio::spawn(run(delivery.clone(), coming));
        let stop = watch::Sender::new(Stop::No);
        RunningDelivery { plan, fingerprint: None, delivery, stop, setups, task }
    }

    /// The task continues with this setup once it has handed over its current one.
    fn set_up(&mut self, dispatch: DispatchPolicy, preparer: Preparer) {
        self.stop.send_replace(Stop::HandOver);
        self.stop = watch::Sender::new(Stop::No);
        // A task that failed unexpectedly has said so.
        let _ = self.setups.send(Setup { dispatch, preparer, stop: self.stop.clone() });
    }

    /// Ends the task, which may send, and then wait for requests in flight, until these times.
    pub(super) async fn end(
        self,
        stop: Stop,
        sending_until: Instant,
        answers_until: Instant,
    ) -> Arc<Delivery> {
        let RunningDelivery { delivery, stop: told, setups, mut task, .. } = self;
        drop(setups);
        told.send_replace(stop);
        if timeout_at(sending_until.into(), &mut task).await.is_err() {
            told.send_replace(Stop::HandOver);
            if timeout_at(answers_until.into(), &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
                delivery.log.rewind(delivery.cursor);
            }
        }
        delivery
    }
}

/// A delivery whose task has ended gives up its place in the log. Returns its backlog.
pub(super) fn release(backlog: &Backlog, delivery: &Arc<Delivery>, keep: Keep) -> Undelivered {
    let Holding { items, bytes, .. } = delivery.log.held(delivery.cursor);
    delivery.log.unsubscribe(delivery.cursor, keep);
    backlog.left(delivery);
    Undelivered { delivery: delivery.id.clone(), items, bytes }
}

/// Runs a delivery with one setup after the other, until no further one can come.
async fn run(delivery: Arc<Delivery>, mut setups: mpsc::UnboundedReceiver<Setup>) {
    while let Some(Setup { dispatch, preparer, stop }) = setups.recv().await {
        let overdue = async {
            let _ = stop.subscribe().wait_for(|stop| *stop == Stop::HandOver).await;
            tokio::time::sleep(HAND_OVER_TIMEOUT).await;
        };
        tokio::select! {
            () = delivery::run(delivery.clone(), dispatch, preparer, stop.subscribe()) => {}
            () = overdue => delivery.log.rewind(delivery.cursor),
        }
    }
}

impl Engine {
    /// Waits for nothing: a changed delivery continues when its requests in flight are answered.
    pub(super) fn apply_deliveries(
        &mut self,
        plan: &Plan,
        exporters: &HashMap<String, RunningExporter>,
        mut dead_letters: HashMap<DeliveryId, DeadLetters>,
    ) {
        for planned in &plan.deliveries {
            let fingerprint = Some(delivery_fingerprint(plan, &planned.id, exporters));
            let mut running = self.deliveries.remove(&planned.id).unwrap_or_else(|| {
                let delivery = Delivery::new(
                    planned.id.clone(),
                    planned.signal,
                    self.storage.log(planned.signal).clone(),
                    dead_letters.remove(&planned.id).unwrap_or_else(|| DeadLetters::in_memory(0)),
                    SharedMemory {
                        receiving: self.receiving.clone(),
                        private: self.backlog.private_memory(),
                        sending: self.sending.clone(),
                    },
                    planned.best_effort,
                );
                let names = exporters[&planned.id.exporter].exporter.item_names();
                let reserved = names.map(|names| names.reserved()).unwrap_or_default();
                let delivery = delivery.with_rows(reserved);
                RunningDelivery::new(planned.clone(), Arc::new(delivery))
            });
            set_bounds(plan, planned, &running.delivery);
            running.delivery.private_limits.stored.get_or_init(|| self.storage.memory.clone());
            let is_same = running.fingerprint == fingerprint
                && running.plan.dispatch == planned.dispatch
                && running.plan.metadata_keys == planned.metadata_keys;
            if !is_same {
                let exporter = exporters[&planned.id.exporter].exporter.clone();
                let receivers = self.intakes.iter().map(|(id, it)| (id.clone(), it.receiver()));
                let preparer = Preparer {
                    names: Names::of(planned.id.to_string()),
                    account: running.delivery.account.clone(),
                    memory: running.delivery.private.clone(),
                    large_work: self.large_work.clone(),
                    metadata_keys: metadata_keys(planned, exporter.as_ref()).into_iter().collect(),
                    exporter,
                    chains: self.chains(plan, &planned.id),
                    receivers: receivers.collect(),
                    orphans: [own_chain(plan, planned)],
                };
                running.set_up(planned.dispatch, preparer);
            }
            // The backlog may be of receivers that a configuration before had.
            let is_read_again = running.plan.is_read_again && planned.is_read_again;
            running.plan = DeliveryPlan { is_read_again, ..planned.clone() };
            running.fingerprint = fingerprint;
            self.deliveries.insert(planned.id.clone(), running);
        }
    }

    pub(super) async fn wait_while_leaving(&self, is_meant: impl Fn(&DeliveryId) -> bool) {
        while self.backlog.leaving().iter().any(|delivery| is_meant(&delivery.id)) {
            tokio::time::sleep(LEAVING_PAUSE).await;
        }
    }

    /// The dead letters of new deliveries, opened before anything is changed. A delivery that
    /// returns continues its letters and its backlog on disk when its predecessor has left both.
    pub(super) async fn open_dead_letters(
        &self,
        plan: &Plan,
    ) -> Result<HashMap<DeliveryId, DeadLetters>> {
        let mut opened = HashMap::new();
        for DeliveryPlan { id, signal, .. } in &plan.deliveries {
            if self.deliveries.contains_key(id) {
                continue;
            }
            if self.storage.directory().is_some() {
                self.wait_while_leaving(|leaving| leaving == id).await;
            }
            opened.insert(id.clone(), self.storage.dead_letters(plan, id, *signal).await?);
        }
        Ok(opened)
    }

    /// A delivery that the new configuration does not have. Its backlog on disk stays. Frames in
    /// memory, and frames whose senders wait, are sent for a bounded time.
    pub(super) fn leave(&self, running: RunningDelivery) {
        let backlog = self.backlog.clone();
        let stays = self.storage.directory().is_some();
        tokio::spawn(async move {
            let drains = !stays || running.plan.senders_wait;
            let stop = if drains { Stop::Drain } else { Stop::HandOver };
            let sending_until = Instant::now() + LEAVING_TIMEOUT;
            let answers_until = sending_until + HAND_OVER_TIMEOUT;
            let delivery = running.end(stop, sending_until, answers_until).await;
            abandon(&delivery, stays);
            let keep = if stays { Keep::Backlog } else { Keep::Nothing };
            let Undelivered { items, bytes, .. } = release(&backlog, &delivery, keep);
            let DeliveryId { pipeline, exporter } = &delivery.id;
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
        let last = last_step(plan, &id.exporter);
        let has_none =
            |path: &Path| plan.exporters[&path.delivery.exporter].config.last_step().is_none();
        let mut chains: HashMap<u16, Vec<Chain>> = HashMap::new();
        for path in plan.paths.iter().filter(|path| path.delivery == *id) {
            let does_the_same = |other: &&Path| {
                (&other.receiver, other.signal, &other.processors)
                    == (&path.receiver, path.signal, &path.processors)
            };
            // A result with a step of its own behind it is shared by none.
            let sharers = match &last {
                None => plan.paths.iter().filter(does_the_same).filter(|it| has_none(it)).count(),
                Some(_) => 1,
            };
            let receiver = self.intakes[&path.receiver].receiver();
            let steps = plan.steps_of(path).into_iter().chain(last.clone()).collect();
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

/// Tells senders and sources of frames in memory that the delivery's task has ended.
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
    let bounds = Bounds { policy: planned.policy, limit_bytes: planned.budget_bytes };
    delivery.set_bounds(bounds, planned.lease_bytes);
    delivery.packed_limit_bytes.store(plan.memory.packed_bytes, Ordering::Relaxed);
    let MemoryPlan { sending_bytes, common_sending_bytes, .. } = plan.memory;
    delivery.sending_limit_bytes.store(sending_bytes, Ordering::Relaxed);
    delivery.common_sending_limit_bytes.store(common_sending_bytes, Ordering::Relaxed);
    let private_bytes = (plan.memory.backlog_bytes / 2).min(planned.lease_bytes) / 2;
    let all_bytes = plan.memory.backlog_bytes / 2;
    delivery.private_limits.set(private_bytes, all_bytes, plan.deliveries.len());
    let pool_bytes = budget::high_water(plan.memory.backlog_bytes);
    delivery.private_limits.pool_bytes.store(pool_bytes, Ordering::Relaxed);
    let dead_letters_bytes =
        plan.disk.as_ref().map_or(plan.memory.dead_letters_bytes, |disk| disk.dead_letters_bytes);
    delivery.dead_letters.set_limit(dead_letters_bytes);
}

/// The step that the exporter has behind all others.
fn last_step(plan: &Plan, exporter: &str) -> Option<Arc<Step>> {
    let ExporterPlan { config, place, .. } = &plan.exporters[exporter];
    steps::last_step(exporter, place, &**config)
}

/// The steps of the delivery's own pipeline.
fn own_chain(plan: &Plan, planned: &DeliveryPlan) -> Chain {
    let pipeline = plan.pipelines.iter().find(|pipeline| pipeline.id == planned.id.pipeline);
    let processors = pipeline.map(|pipeline| pipeline.processors.as_slice()).unwrap_or_default();
    let last = last_step(plan, &planned.id.exporter);
    Chain { steps: plan.steps(processors, planned.signal).chain(last).collect(), sharers: 1 }
}

/// The request metadata that the exporter reads or by which the pipeline batches.
pub(super) fn metadata_keys(planned: &DeliveryPlan, exporter: &dyn Exporter) -> BTreeSet<String> {
    exporter.metadata_keys().iter().chain(&planned.metadata_keys).cloned().collect()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use bytes::Bytes;
    use sluice_config::SystemEnvironment;
    use sluice_flow::Payload;
    use sluice_flow::source::{ArrivedBody, Ingress as _, Request};
    use sluice_log::Log;
    use sluice_otlp::Signal;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::ack::{Ack, Awaited};
    use crate::delivery::tests::{append, delivery};
    use crate::entry::Entry;

    /// Scenario: a reload removes a delivery that may lease one frame at a time, while the senders
    /// of many wait for it. Guarantee: all of them get their answer at once.
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

    /// Answers 400 to as many requests as it is told to.
    async fn refusing_backend(answers: Arc<Semaphore>) -> std::net::SocketAddr {
        let answer = async move || {
            answers.acquire().await.expect("is open").forget();
            StatusCode::BAD_REQUEST
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async { axum::serve(listener, Router::new().fallback(answer)).await });
        address
    }

    async fn submit(engine: &Engine) {
        let route = engine.intakes["otlp"].route(Signal::Traces).expect("there is one");
        let permit = route.admit(100, &ArrivedBody::default()).await.expect("there is memory");
        let payload = Payload::identity(Bytes::from_static(b"payload"));
        let request = Request::new(payload, 1);
        route.submit(request, permit).expect("is taken").accepted().await.expect("is accepted");
    }

    async fn until(holds: impl Fn() -> bool) {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Scenario: a removed delivery returns while a request of it is in flight, which then becomes
    /// a dead letter. Guarantee: the letters before, of, and after the return are all kept.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_delivery_that_returns_has_the_dead_letters_of_the_one_that_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let answers = Arc::new(Semaphore::new(1));
        let address = refusing_backend(answers.clone()).await;
        let plan = |exporter: &str| {
            let text = format!(
                "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}}}\n\
                 exporters: {{otlphttp: {{endpoint: 'http://{address}'}}, nop: {{}}}}\n\
                 buffer: {{directory: '{}', ack: memory}}\n\
                 service:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n\
                 \x20   traces: {{receivers: [otlp], exporters: [{exporter}]}}\n",
                folder.path().display()
            );
            let text = format!("yaml:{text}");
            let (plan, diagnostics) = crate::plan::load(&[text], &SystemEnvironment);
            plan.unwrap_or_else(|| panic!("{}", diagnostics.render(false)))
        };
        let id = DeliveryId { pipeline: "traces".to_owned(), exporter: "otlphttp".to_owned() };
        let mut engine = Engine::start(plan("otlphttp"), None).await.expect("starts");
        submit(&engine).await;
        let running = engine.deliveries[&id].delivery.clone();
        until(|| running.dead_letters.totals().letters == 1).await;
        submit(&engine).await;
        until(|| running.stats.in_flight.load(Ordering::Relaxed) == 1).await;
        engine.reload(plan("nop")).await.expect("reloads");
        let answered = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            answers.add_permits(2);
        };
        let (reloaded, ()) = tokio::join!(engine.reload(plan("otlphttp")), answered);
        reloaded.expect("reloads");
        let returned = engine.deliveries[&id].delivery.clone();
        assert_eq!(returned.dead_letters.totals().letters, 2);
        submit(&engine).await;
        until(|| returned.dead_letters.totals().letters == 3).await;
        assert_eq!(returned.dead_letters.listing(0).items, 3);
        engine.shutdown(Duration::ZERO).await;
    }
}
