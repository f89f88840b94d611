//! The engine as a receiver sees it: admission, the steps that all share, one append, and the answer.

mod admission;
mod route;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
pub(crate) use route::{Route, RouteDisk, Routes};
use sluice_flow::intake::{Connection, Permit};
use sluice_flow::{BoxFuture, Frame, Intake, Metadata, Payload, Refusal};
use sluice_net::server::ServerResources;
use sluice_otlp::{Encoding, Signal};

use crate::ack::Ack;
use crate::delivery::{Delivery, inflated};
use crate::entry::{Entry, SharedWorkMemory};
use crate::receiving::ReceivingBudget;
use crate::refusals::overloaded;
use crate::steps;
use crate::storage::LogWatch;

/// Compressed frames from this inflated size on go out as they came; smaller ones are worth merging.
const ALONE_FROM_BYTES: usize = 16 * 1024;
/// How long a sender waits for a disk before it is asked whether the disk works at all.
const DISK_PATIENCE: Duration = Duration::from_secs(1);

/// One receiver's door to the engine. Outlives reloads: the routes behind it are exchanged.
pub(crate) struct ReceiverIntake {
    pub receiver: u16,
    pub routes: ArcSwap<Routes>,
    pub receiving: Arc<ReceivingBudget>,
    pub shared_work: Arc<SharedWorkMemory>,
    resources: ServerResources,
    /// Set before the deliveries end: from then on nothing may be answered OK.
    closed: AtomicBool,
}

impl Intake for ReceiverIntake {
    fn takes(&self, signal: Signal) -> bool {
        self.routes.load().get(signal).is_some()
    }

    fn admit<'a>(
        &'a self,
        signal: Signal,
        bytes: usize,
        connection: &'a dyn Connection,
    ) -> BoxFuture<'a, Result<Box<dyn Permit>, Refusal>> {
        Box::pin(self.admit_soon(signal, bytes, connection))
    }

    fn keeps_compressed(&self, signal: Signal, encoding: Encoding, uncompressed_len_bytes: usize) -> bool {
        uncompressed_len_bytes >= ALONE_FROM_BYTES
            && self.routes.load().get(signal).is_some_and(|route| route.passes_through.contains(&encoding))
    }

    fn accept(
        &self,
        signal: Signal,
        items: u32,
        payload: Payload,
        metadata: Arc<Metadata>,
        permit: Box<dyn Permit>,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let Appended { waits, over_half } = self.append(signal, items, payload, metadata)?;
            // From here on the frame is charged to its deliveries.
            drop(permit);
            if over_half {
                self.hold_back(signal).await;
            }
            match waits {
                Some(waits) => waits.answered().await,
                None => Ok(()),
            }
        })
    }
}

/// What came of an append.
#[derive(Default)]
struct Appended {
    waits: Option<Waits>,
    /// Half of some delivery's budget is spent.
    over_half: bool,
}

/// A sender that waits for its answer.
struct Waits {
    answer: tokio::sync::oneshot::Receiver<Result<(), Refusal>>,
    disk: Option<WaitsForDisk>,
}

/// The disk that may have to answer, and who may make that unnecessary.
struct WaitsForDisk {
    watch: Arc<LogWatch>,
    deliveries: Arc<[Arc<Delivery>]>,
}

impl Waits {
    async fn answered(self) -> Result<(), Refusal> {
        let Waits { mut answer, disk } = self;
        let result = match disk {
            None => answer.await,
            Some(WaitsForDisk { watch, deliveries }) => loop {
                match tokio::time::timeout(DISK_PATIENCE, &mut answer).await {
                    Ok(result) => break result,
                    Err(_) if watch.has_lasting_trouble() => {
                        deliveries.iter().for_each(|delivery| delivery.give_way());
                        // The frame stays, and may be delivered. But nobody knows when it is safe.
                        break answer.try_recv().or_else(|_| Ok(Err(overloaded(watch.trouble().unwrap_or_default()))));
                    }
                    Err(_) => {}
                }
            },
        };
        // The log let go of the entry: the process is shutting down before the backend took the frame, or it is on disk while
        // the sender waits for the delivery.
        result.unwrap_or_else(|_| Err(overloaded("given up before it was delivered")))
    }
}

impl ReceiverIntake {
    pub(crate) fn new(
        receiver: u16,
        receiving: Arc<ReceivingBudget>,
        shared_work: Arc<SharedWorkMemory>,
        resources: ServerResources,
    ) -> Self {
        let closed = AtomicBool::new(false);
        ReceiverIntake { receiver, routes: ArcSwap::default(), receiving, shared_work, resources, closed }
    }

    /// Refuses everything from now on: the process ends.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn check_open(&self) -> Result<(), Refusal> {
        if self.is_closed() { Err(overloaded("shutting down")) } else { Ok(()) }
    }

    /// Puts a frame into the log. Says what the sender has to wait for.
    fn append(
        &self,
        signal: Signal,
        items: u32,
        payload: Payload,
        metadata: Arc<Metadata>,
    ) -> Result<Appended, Refusal> {
        let routes = self.routes.load();
        let route = routes.get(signal).ok_or(Refusal::Unrouted)?;
        let (payload, items) = prepare(route, signal, payload, items, &metadata)?;
        let frame = Frame {
            signal,
            items,
            payload,
            receiver: self.receiver,
            received: Instant::now(),
            received_wall: SystemTime::now(),
            metadata,
        };
        if frame.items == 0 {
            return Ok(Appended::default());
        }
        let (ack, waits) = if route.awaited.is_nothing() {
            (None, None)
        } else {
            let (ack, answer) = Ack::new(route.awaited.clone());
            let disk = route.disk.as_ref().filter(|_| !route.awaited.unless_durable.is_empty());
            (
                Some(ack),
                Some(Waits {
                    answer,
                    disk: disk
                        .map(|disk| WaitsForDisk { watch: disk.watch.clone(), deliveries: route.deliveries.clone() }),
                }),
            )
        };
        let entry = Entry::new(frame, route.origin.clone(), ack, self.shared_work.clone())
            .makes_room_in(route.disk.as_ref().map(|_| self.receiving.clone()));
        let entry = Arc::new(entry);
        let charge = entry.charge();
        let appended = route.log.append(entry, charge, &route.readers);
        for delivery in route.deliveries.iter() {
            if appended.over_budget {
                delivery.enforce_budget();
            }
            delivery.appended();
        }
        // Looked at after the append: a frame that no delivery was there to take is not answered OK.
        self.check_open()?;
        Ok(Appended { waits, over_half: appended.over_half })
    }
}

/// Runs the steps that all deliveries share.
fn prepare(
    route: &Route,
    signal: Signal,
    payload: Payload,
    items: u32,
    metadata: &Metadata,
) -> Result<(Payload, u32), Refusal> {
    if route.prefix.is_empty() {
        return Ok((payload, items));
    }
    // Compressed only if a reload brought steps while the request was read.
    let bytes = inflated(&payload).map_err(|error| Refusal::Invalid { reason: error.to_string() })?;
    steps::run(&route.prefix, signal, bytes, items, metadata)
        .map(|processed| (processed.payload, processed.items))
        .map_err(|error| Refusal::Invalid { reason: error.to_string() })
}
