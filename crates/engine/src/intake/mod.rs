//! The engine as a receiver sees it: admission, the steps that all share, one append, and the answer.

mod route;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
pub(crate) use route::{Route, RouteDisk, Routes};
use sluice_flow::intake::{Connection, Permit};
use sluice_flow::{BoxFuture, Frame, Intake, Metadata, Payload, Refusal};
use sluice_net::server::Turns;
use sluice_otlp::{Encoding, Signal};

use crate::ack::Ack;
use crate::delivery::{Delivery, inflated};
use crate::entry::{Entry, SharedWorkMemory};
use crate::receiving::ReceivingBudget;
use crate::refusals::overloaded;
use crate::steps;
use crate::storage::LogWatch;

/// How long a request may wait for memory before it is refused. HTTP/2 flow control holds its sender meanwhile.
const ADMISSION_WAIT: Duration = Duration::from_millis(250);
/// How long a request is paced, or its answer held back, if the delivery does not catch up. Then it is admitted as far as budgets
/// allow, or answered.
const PACE_WAIT: Duration = Duration::from_millis(750);
/// So often it is asked whether the CPU still is the bottleneck, and a backend still works.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// What a request that waits has sent already, at most: the window that every connection has. Larger ones have a share of memory of
/// their own.
const HELD_MAX_BYTES: usize = 64 * 1024;
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
        Box::pin(async move {
            let paced_until = Instant::now() + PACE_WAIT;
            let deadline = paced_until + ADMISSION_WAIT;
            let (mut waiting, mut place) = (None, None);
            loop {
                let is_paced = Instant::now() < paced_until && self.is_behind(signal);
                let admitted =
                    if is_paced { Err(overloaded("deliveries are behind")) } else { self.try_admit(signal, bytes) };
                let refusal = match admitted {
                    Ok(permit) => {
                        if waiting.is_some() {
                            self.receiving.note_freed(signal);
                        }
                        return Ok(permit);
                    }
                    Err(refusal) => refusal,
                };
                if !matches!(refusal, Refusal::Retry { .. }) || Instant::now() >= deadline {
                    return Err(refusal);
                }
                if !is_paced {
                    self.receiving.note_wanted();
                }
                if waiting.is_none() {
                    waiting = self.receiving.try_wait(bytes.min(HELD_MAX_BYTES));
                    if waiting.is_none() {
                        return if is_paced { self.try_admit(signal, bytes) } else { Err(refusal) };
                    }
                }
                // Memory may be what others of the connection hold who do not get on. Not where the CPU is the bottleneck: then
                // somebody gets on, and to refuse what has come already would only bring it again.
                if place.is_none() && !Turns::is_cpu_bound() {
                    place = connection.try_wait(bytes);
                    if place.is_none() {
                        return Err(refusal);
                    }
                }
                let until = match (is_paced, &place) {
                    (true, _) => paced_until,
                    (false, None) => deadline.min(Instant::now() + LOOK_AGAIN),
                    (false, Some(_)) => deadline,
                };
                let _ = tokio::time::timeout_at(until.into(), self.receiving.freed(signal).notified()).await;
            }
        })
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
    pub(crate) fn new(receiver: u16, receiving: Arc<ReceivingBudget>, shared_work: Arc<SharedWorkMemory>) -> Self {
        let closed = AtomicBool::new(false);
        ReceiverIntake { receiver, routes: ArcSwap::default(), receiving, shared_work, closed }
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

    /// Whether what comes now had better wait with its sender: receiving takes the CPU that sending needs.
    fn is_behind(&self, signal: Signal) -> bool {
        let is_behind = |delivery: &Delivery| delivery.is_behind() && !delivery.is_apart();
        Turns::is_cpu_bound()
            && self.routes.load().get(signal).is_some_and(|route| route.held_up_by(is_behind).is_some())
    }

    fn try_admit(&self, signal: Signal, bytes: usize) -> Result<Box<dyn Permit>, Refusal> {
        self.check_open()?;
        let routes = self.routes.load();
        let route = routes.get(signal).ok_or(Refusal::Unrouted)?;
        if bytes > self.receiving.limit_bytes() {
            let limit = self.receiving.limit_bytes();
            let reason = format!("a request of {bytes} bytes exceeds the memory for receiving ({limit} bytes)");
            return Err(Refusal::Invalid { reason });
        }
        // What others were admitted for and has not arrived yet counts too.
        let arriving = self.receiving.used_bytes() + bytes;
        if let Some(full) = route.held_up_by(|delivery| delivery.is_full(arriving as u64)) {
            return Err(overloaded(format!("the budget of delivery {} is spent", full.id)));
        }
        route.check_disk(arriving as u64)?;
        let Some(permit) = self.receiving.try_acquire(bytes) else {
            Turns::note_memory_short();
            return Err(overloaded("the memory for receiving is spent"));
        };
        Ok(Box::new(permit))
    }

    /// Holds an answer back while a delivery falls behind: senders that wait for their answers then send no faster than it takes.
    /// What they sent is in the log already, and no other delivery waits. Senders with a rate of their own are soon let go.
    async fn hold_back(&self, signal: Signal) {
        let began = Instant::now();
        let until = began + PACE_WAIT;
        let mut at_first = None;
        loop {
            let routes = self.routes.load_full();
            let Some(delivery) = routes.get(signal).and_then(Route::falls_behind) else { return };
            let (now, held_bytes) = (Instant::now(), delivery.log.held_bytes(delivery.cursor));
            let (cursor, bytes) = *at_first.get_or_insert_with(|| {
                delivery.stats.held_back_answers.fetch_add(1, Ordering::Relaxed);
                (delivery.cursor, held_bytes)
            });
            if self.is_closed() {
                return;
            }
            if now >= until {
                return delivery.pulse.note_waited(began, now, cursor == delivery.cursor && held_bytes > bytes);
            }
            delivery.wait_for_room(until.min(now + LOOK_AGAIN)).await;
        }
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

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    /// A connection with others that are being read, or without.
    struct Peer {
        lets_wait: bool,
    }

    impl Connection for Peer {
        fn try_wait(&self, _: usize) -> Option<Box<dyn Send>> {
            self.lets_wait.then(|| Box::new(()) as Box<dyn Send>)
        }
    }

    fn intake(receiving_bytes: usize) -> ReceiverIntake {
        let route = Route {
            prefix: Vec::new(),
            origin: Arc::default(),
            log: Arc::default(),
            deliveries: Arc::new([]),
            readers: Arc::new([]),
            refusing: Vec::new(),
            backpressure: Vec::new(),
            awaited: Arc::default(),
            disk: None,
            passes_through: Vec::new(),
        };
        let shared_work = Arc::new(SharedWorkMemory::new(0));
        let intake = ReceiverIntake::new(0, ReceivingBudget::new(receiving_bytes), shared_work);
        intake.routes.store(Arc::new(Routes::new([(Signal::Traces, route)])));
        intake
    }

    #[tokio::test]
    async fn a_request_waits_for_memory_if_its_connection_lets_it() {
        let intake = intake(400_000);
        let (waits, busy) = (Peer { lets_wait: true }, Peer { lets_wait: false });
        let admit = |connection| intake.admit(Signal::Traces, 300_000, connection);
        let Some(Ok(first)) = admit(&busy).now_or_never() else { panic!("there is memory") };
        let mut second = pin!(admit(&waits));
        assert!(second.as_mut().now_or_never().is_none());
        let Some(Err(Refusal::Retry { .. })) = admit(&busy).now_or_never() else { panic!("it is refused at once") };
        drop(first);
        assert!(second.now_or_never().expect("it was told").is_ok());
    }
}
