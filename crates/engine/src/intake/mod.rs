//! The engine as a receiver sees it: admission, steps that all deliveries share, append, receipt.

mod admission;
mod emission;
#[cfg(test)]
mod hop_tests;
mod route;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
pub(crate) use emission::Emitting;
pub(crate) use route::{Route, RouteDisk};
use sluice_flow::overload::disk;
use sluice_flow::source::{
    ArrivedBody, Ingress, IngressRoute, MemoryPool, Permit, Position, Receipt, Request,
};
use sluice_flow::{BoxFuture, Frame, Payload, Refusal, fitted};
use sluice_net::server::ServerResources;
use sluice_otlp::{Encoding, Halving, Signal, SplitLimits};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::ack::Ack;
use crate::delivery::Delivery;
use crate::entry::{Entry, Source};
use crate::hop::Asked;
use crate::large_work::LargeWork;
use crate::receiving::{ReceivingBudget, RouteMemory, WaitingMemory};
use crate::shared_work::{Processed, SharedWorkMemory};
use crate::steps::{self, Failure, Step, next_slice};

/// Compressed frames of this inflated size go out as they came; smaller ones are worth merging.
const ALONE_FROM_BYTES: usize = 16 * 1024;
/// The buffer for a request that its processors make much larger grows by this.
const SLICES_STEP_BYTES: usize = 1024 * 1024;

/// One receiver's door to the engine. Outlives reloads: the routes behind it are exchanged.
pub(crate) struct ReceiverIngress {
    door: Arc<Door>,
    routes: ArcSwap<[Option<Arc<ReceiverRoute>>; 3]>,
}

/// State that all routes of a receiver share.
pub(crate) struct Door {
    /// Index of the receiver in this run.
    pub receiver: u16,
    pub receiving: Arc<ReceivingBudget>,
    pub shared_work: Arc<SharedWorkMemory>,
    pub large_work: Arc<LargeWork>,
    pub resources: ServerResources,
    /// Set before the deliveries end: from then on nothing may be answered OK.
    pub closed: AtomicBool,
    /// Cancelled right after that.
    pub told_closed: CancellationToken,
}

/// The route of one receiver's data of one signal, as of one configuration.
pub(crate) struct ReceiverRoute {
    signal: Signal,
    door: Arc<Door>,
    memory: Arc<RouteMemory>,
    route: Route,
}

impl ReceiverIngress {
    pub(crate) fn new(door: Door) -> Self {
        ReceiverIngress { door: Arc::new(door), routes: ArcSwap::default() }
    }

    pub(crate) fn receiver(&self) -> u16 {
        self.door.receiver
    }

    /// The way from a processor that gives out points by itself to the deliveries behind it. It
    /// stays open when the receiver is closed.
    pub(crate) fn emitting(&self, signal: Signal, step: Arc<Step>, route: Route) -> Emitting {
        let Door { receiver, receiving, shared_work, large_work, resources, .. } = &*self.door;
        let door = Arc::new(Door {
            receiver: *receiver,
            receiving: receiving.clone(),
            shared_work: shared_work.clone(),
            large_work: large_work.clone(),
            resources: resources.clone(),
            closed: AtomicBool::new(false),
            told_closed: CancellationToken::new(),
        });
        let memory = RouteMemory::new(receiving.clone());
        Emitting::new(step, ReceiverRoute { signal, door, memory, route })
    }

    /// Requests that begin from now on take these routes.
    pub(crate) fn set_routes(&self, routes: impl IntoIterator<Item = (Signal, Route)>) {
        let mut all = <[Option<Arc<ReceiverRoute>>; 3]>::default();
        let before = self.routes.load();
        for (signal, route) in routes {
            // Requests that are on their way still count.
            let memory = before[signal as usize].as_ref().map(|route| route.memory.clone());
            let memory = memory.unwrap_or_else(|| RouteMemory::new(self.door.receiving.clone()));
            let door = self.door.clone();
            all[signal as usize] = Some(Arc::new(ReceiverRoute { signal, door, memory, route }));
        }
        self.routes.store(Arc::new(all));
    }

    /// The deliveries of each signal's route.
    pub(crate) fn deliveries(&self) -> Vec<Arc<[Arc<Delivery>]>> {
        self.routes.load().iter().flatten().map(|route| route.route.deliveries.clone()).collect()
    }

    /// Refuses everything from now on: the process ends.
    pub(crate) fn close(&self) {
        self.door.closed.store(true, Ordering::SeqCst);
        self.door.told_closed.cancel();
    }
}

impl Ingress for ReceiverIngress {
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>> {
        let route = self.routes.load()[signal as usize].clone()?;
        Some(route)
    }

    fn waiting(&self, is_sender_known: bool) -> Arc<dyn MemoryPool> {
        Arc::new(WaitingMemory { receiving: self.door.receiving.clone(), is_sender_known })
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.door.told_closed.clone().cancelled_owned())
    }
}

impl Door {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn check_open(&self) -> Result<(), Refusal> {
        if self.is_closed() { Err(Refusal::overloaded("shutting down")) } else { Ok(()) }
    }
}

impl IngressRoute for ReceiverRoute {
    fn admit<'a>(
        &'a self,
        bytes: usize,
        arrived: &'a ArrivedBody,
    ) -> BoxFuture<'a, Result<Permit, Refusal>> {
        Box::pin(self.admit_or_wait(bytes, arrived))
    }

    fn admit_at_once(&self, bytes: usize) -> Result<Permit, Refusal> {
        Ok(self.try_admit(bytes, None, false, Instant::now())?)
    }

    fn judge_again(&self, permit: &Permit) -> Result<(), Refusal> {
        ReceiverRoute::judge_again(self, permit)
    }

    fn keeps_compressed(&self, encoding: Encoding, uncompressed_len_bytes: usize) -> bool {
        uncompressed_len_bytes >= ALONE_FROM_BYTES && self.route.passes_through.contains(&encoding)
    }

    fn names_ranges(&self) -> bool {
        self.route.names_ranges
    }

    fn metadata_keys(&self) -> &[String] {
        &self.route.metadata_keys
    }

    fn submit(self: Arc<Self>, request: Request, mut permit: Permit) -> Result<Receipt, Refusal> {
        let (answer, is_tight) = steps::in_turn(&self.route.prefix, || {
            let appended = self.append(request, &mut permit);
            // A request that is refused comes again: its steps must find what they found.
            (appended.is_ok(), appended)
        })?;
        // From here on the frame is charged to its deliveries.
        drop(permit);
        let pace = is_tight.then(|| -> BoxFuture<'static, ()> {
            let route = self.clone();
            Box::pin(async move { route.delay_answer().await })
        });
        let answer = answer.map(|answer| -> BoxFuture<'static, _> {
            Box::pin(async move { self.route.answered(answer).await })
        });
        Ok(Receipt { pace, answer })
    }
}

/// The answer to a sender, once it is known.
type Answer = oneshot::Receiver<Result<(), Refusal>>;

impl ReceiverRoute {
    /// Puts a frame into the log. Returns the answer to wait for, and whether to slow down.
    fn append(
        &self,
        mut request: Request,
        permit: &mut Permit,
    ) -> Result<(Option<Answer>, bool), Refusal> {
        // A request that is refused and tried again is not in the log meanwhile.
        self.door.check_open()?;
        let (bytes, items) = (request.payload.uncompressed_len_bytes, request.items as usize);
        let mark = match request.ranges.take().map(|ranges| self.route.arrive(ranges)) {
            None => None,
            Some(Ok(Asked::New(mark))) => Some(Arc::new(mark)),
            Some(Ok(Asked::Known)) => return Ok((None, false)),
            Some(Err(refusal)) => return Err(refusal),
        };
        if !self.route.prefix.is_empty() {
            let admitted_bytes = permit.bytes();
            let large_work = &self.door.large_work;
            large_work.on(bytes, items, || self.prepare(&mut request, permit))?;
            if permit.bytes() > admitted_bytes {
                self.judge_again(permit)?;
            }
        }
        self.check_storable(request.payload.bytes.len())?;
        let Request { payload, items, metadata, position, fetched, .. } = request;
        if items == 0 {
            // Nothing is left of it that could be lost.
            position.iter().for_each(Position::resolve);
            mark.iter().for_each(|mark| mark.keep());
            return Ok((None, false));
        }
        let frame = Frame {
            signal: self.signal,
            items,
            payload,
            receiver: self.door.receiver,
            received_wall: SystemTime::now(),
            metadata,
        };
        let route = &self.route;
        let (mut ack, answer) = route.waits().then(|| Ack::new(route.awaited.clone())).unzip();
        let of_source = mark.clone().filter(|_| ack.is_none());
        ack.iter_mut().for_each(|ack| ack.settles(mark.clone()));
        let has_source = position.is_some() || of_source.is_some();
        let entry = Arc::new(Entry {
            receiving: route.disk.as_ref().map(|_| self.door.receiving.clone()),
            source: has_source.then(|| Source::new(position, of_source, route.readers.len())),
            mark: mark.clone(),
            fetched: fetched.map(Box::new),
            ..Entry::new(frame, route.origin.clone(), ack, self.door.shared_work.clone())
        });
        let charge = entry.charge();
        let appended = route.log.append(entry.clone(), charge, &route.readers);
        let has_readers = appended.gone.len() < route.readers.len();
        let is_refused = !has_readers && !route.readers.is_empty();
        if is_refused {
            // The log keeps nothing of it: its sender has to come again.
            mark.iter().for_each(|mark| mark.forget());
        } else {
            mark.iter().for_each(|mark| mark.note_appended(appended.offset));
        }
        drop(mark);
        entry.not_appended_for(&appended.gone);
        drop(entry);
        let is_tight = route.appended(appended, Instant::now());
        if is_refused {
            return Err(Refusal::overloaded(
                "a reload has removed all pipelines that the request was for",
            ));
        }
        // Looked at after the append: the frame is in the log, and there may be no time to deliver
        // it. A sender that waits is told what became of it.
        let answer = match answer {
            None if self.door.is_closed() => Some(unconfirmed("shutting down")),
            answer => answer,
        };
        Ok((answer, is_tight))
    }

    /// Runs the steps that all deliveries share. A request that they make larger needs the memory
    /// for that, and may not become larger than any request may be.
    fn prepare(&self, request: &mut Request, permit: &mut Permit) -> Result<(), Refusal> {
        let prefix = &self.route.prefix;
        let invalid = |reason| Refusal::Invalid { reason };
        let bytes = steps::inflated(&request.payload).map_err(invalid)?;
        let run = |bytes| steps::run(prefix, self.signal, bytes, request.items, &request.metadata);
        let (payload, items) = match run(bytes.clone()) {
            Ok(Processed { payload, items, .. }) => {
                permit.grow_to(payload.bytes.len()).map_err(grows)?;
                (payload, items)
            }
            Err(Failure::Step(reason)) => return Err(invalid(reason)),
            Err(Failure::Grows) => self.prepare_in_slices(&bytes, request, permit)?,
        };
        (request.payload, request.items) = (payload, items);
        Ok(())
    }

    fn prepare_in_slices(
        &self,
        bytes: &Bytes,
        request: &Request,
        permit: &mut Permit,
    ) -> Result<(Payload, u32), Refusal> {
        let invalid = |reason| Refusal::Invalid { reason };
        let (mut out, mut items) = (Vec::new(), 0);
        let (signal, prefix) = (self.signal, &self.route.prefix);
        let slices = Halving::new(signal, bytes, SplitLimits::half_of(request.items));
        let mut slices = slices.map_err(|error| invalid(error.to_string()))?;
        while let Some(slice) = next_slice(&mut slices, None, prefix, signal, &request.metadata) {
            let (_, slice) = slice.map_err(|slice| invalid(slice.reason))?;
            let room_bytes = out.capacity() - out.len();
            if slice.payload.bytes.len() > room_bytes {
                let more_bytes = slice.payload.bytes.len().max(SLICES_STEP_BYTES);
                permit.grow(more_bytes).map_err(grows)?;
                out.reserve_exact(more_bytes);
            }
            out.extend_from_slice(&slice.payload.bytes);
            items += slice.items;
        }
        Ok((Payload::identity(fitted(out)), items))
    }
}

/// Says that processors are the reason for the request's size.
fn grows(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::TooLarge { reason } => {
            Refusal::TooLarge { reason: format!("after its processors: {reason}") }
        }
        refusal => refusal,
    }
}

/// An answer that is known: the request is in the log, and may be lost with it.
fn unconfirmed(reason: &str) -> Answer {
    let (sender, answer) = oneshot::channel();
    let _ = sender.send(Err(Refusal::unconfirmed(reason)));
    answer
}

impl Route {
    /// Waits until the answer to the sender is known.
    async fn answered(&self, mut answer: Answer) -> Result<(), Refusal> {
        let disk = self.disk.as_ref().filter(|_| !self.awaited.unless_durable.is_empty());
        let result = loop {
            let Some(RouteDisk { watch, .. }) = disk else { break answer.await };
            match tokio::time::timeout(disk::ANSWER_WAIT, &mut answer).await {
                Ok(result) => break result,
                Err(_) if watch.has_lasting_trouble() => {
                    self.backlog.give_up_unwritten(&self.deliveries, Instant::now());
                    // The frame stays, and may be delivered. But nothing tells when it is safe.
                    let trouble = || Refusal::unconfirmed(watch.trouble().unwrap_or_default());
                    break answer.try_recv().or_else(|_| Ok(Err(trouble())));
                }
                Err(_) => {}
            }
        };
        // The log dropped the entry: the process is shutting down before the backend took the
        // frame, or the frame is on disk while the sender waits for the delivery.
        result.unwrap_or_else(|_| Err(Refusal::unconfirmed("given up before it was delivered")))
    }
}
