//! Every way in which a position ends, over a log in memory and one on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sluice_flow::source::{
    ArrivedBody, Ingress as _, IngressRoute, Permit, Position, Positions, Receipt, Request,
};
use sluice_flow::{Metadata, Payload, Refusal};
use sluice_log::disk::RealDisk;
use sluice_log::{CursorId, Keep, Log, OpenOptions, Subscription};
use sluice_net::server::ServerResources;
use sluice_otlp::Signal;
use sluice_processors::{Edited, Processor};
use tokio_util::sync::CancellationToken;

use super::{Door, ReceiverIngress, Route};
use crate::ack::Awaited;
use crate::backlog::Backlog;
use crate::entry::Entry;
use crate::hop::Known;
use crate::receiving::{ReceivingBudget, RouteMemory};
use crate::shared_work::SharedWorkMemory;
use crate::steps::Step;

/// A route to nowhere.
pub(super) fn empty_route() -> Route {
    Route {
        prefix: Vec::new(),
        origin: Arc::default(),
        log: Arc::default(),
        known: Arc::new(Known::in_memory(Signal::Logs, Default::default())),
        backlog: Backlog::new(Arc::default(), Default::default(), 1 << 30, || false),
        deliveries: Arc::new([]),
        readers: Arc::new([]),
        awaited: Arc::default(),
        disk: None,
        passes_through: Vec::new(),
        names_ranges: false,
        metadata_keys: Vec::new(),
    }
}

pub(super) fn ingress(receiving_bytes: usize) -> ReceiverIngress {
    ingress_with(ReceivingBudget::new(receiving_bytes))
}

pub(super) fn ingress_with(receiving: Arc<ReceivingBudget>) -> ReceiverIngress {
    ReceiverIngress::new(Door {
        receiver: 0,
        receiving,
        shared_work: Arc::new(SharedWorkMemory::new(0, Arc::default())),
        large_work: Arc::default(),
        resources: ServerResources::unlimited(),
        closed: AtomicBool::new(false),
        told_closed: CancellationToken::new(),
    })
}

/// A receiver that feeds two readers of a log, and its source.
struct Fixture {
    ingress: ReceiverIngress,
    log: Arc<Log<Entry>>,
    readers: [CursorId; 2],
    positions: Positions,
    submitted: u64,
}

impl Fixture {
    fn new(log: Log<Entry>) -> Self {
        let log = Arc::new(log);
        let readers = ["a", "b"].map(|name| log.subscribe(Subscription::new(name)));
        let fixture = Fixture {
            ingress: ingress(1 << 20),
            log,
            readers,
            positions: Positions::starting_at(0),
            submitted: 0,
        };
        fixture.ingress.set_routes([(Signal::Logs, fixture.to_both())]);
        fixture
    }

    fn in_memory() -> Self {
        Fixture::new(Log::default())
    }

    fn to_both(&self) -> Route {
        Route { log: self.log.clone(), readers: Arc::new(self.readers), ..empty_route() }
    }

    fn route(&self) -> Arc<dyn IngressRoute> {
        self.ingress.route(Signal::Logs).expect("there is one")
    }

    fn position(&mut self) -> Position {
        self.submitted += 1;
        self.positions.begin(self.submitted - 1..self.submitted)
    }

    /// Submits the next request of one item.
    async fn submit(&mut self) -> Result<Receipt, Refusal> {
        let route = self.route();
        let permit = route.admit(100, &ArrivedBody::default()).await?;
        let position = Some(self.position());
        let payload = Payload::identity(Bytes::from_static(b"payload"));
        route.submit(Request { position, ..Request::new(payload, 1) }, permit)
    }

    /// As a delivery does it when a frame is delivered, filtered out or among the dead letters.
    fn resolve_next(&self, reader: CursorId) {
        let (offset, entry) = self.log.read(reader).entry().expect("there is a frame");
        assert!(self.log.resolve(reader, offset));
        entry.resolve(reader, Ok(()));
    }

    fn lowest(&self) -> u64 {
        self.positions.lowest_unresolved()
    }
}

#[tokio::test]
async fn a_position_is_resolved_when_all_deliveries_have_resolved_it_and_not_when_it_is_accepted() {
    let mut fixture = Fixture::in_memory();
    let receipt = fixture.submit().await.expect("is taken");
    receipt.accepted().await.expect("under `ack: memory` that is at once");
    assert_eq!(fixture.lowest(), 0, "accepted comes before resolved");
    let [a, b] = fixture.readers;
    fixture.resolve_next(a);
    assert_eq!(fixture.lowest(), 0, "one has delivered, the other has not");
    fixture.resolve_next(b);
    assert_eq!(fixture.lowest(), 1);
}

#[tokio::test]
async fn a_position_is_resolved_when_a_policy_drops_its_frame() {
    let mut fixture = Fixture::in_memory();
    let [a, b] = fixture.readers;
    for _ in 0..3 {
        fixture.submit().await.expect("is taken").accepted().await.expect("is accepted");
    }
    (0..3).for_each(|_| fixture.resolve_next(a));
    fixture.log.set_limits(b, 0, u64::MAX);
    let (dropped, entries) = fixture.log.drop_oldest_unread(b);
    entries.iter().for_each(|entry| entry.entry.given_up(b, entry.is_lost));
    assert_eq!((dropped.frames, fixture.lowest()), (2, 2), "the newest stays");
}

#[tokio::test]
async fn a_position_that_is_refused_stays_and_so_does_everything_behind_it() {
    let mut fixture = Fixture::in_memory();
    fixture.ingress.close();
    assert!(matches!(fixture.submit().await, Err(Refusal::Retry { .. })));
    let route = fixture.route();
    let memory = RouteMemory::new(ReceivingBudget::new(100));
    let permit = Permit::take(memory, 1).expect("there is memory");
    let (payload, position) =
        (Payload::identity(Bytes::from_static(b"payload")), Some(fixture.position()));
    let request = Request { position, ..Request::new(payload, 1) };
    assert!(matches!(route.submit(request, permit), Err(Refusal::Retry { .. })));
    assert_eq!(fixture.lowest(), 0);
}

#[tokio::test]
async fn a_position_whose_process_ends_first_stays() {
    let mut fixture = Fixture::in_memory();
    let [a, b] = fixture.readers;
    fixture.submit().await.expect("is taken").accepted().await.expect("is accepted");
    fixture.resolve_next(a);
    fixture.log.unsubscribe(b, Keep::Nothing);
    assert_eq!(fixture.lowest(), 0);
    assert!(fixture.positions.is_interrupted());
    assert_eq!(fixture.positions.rewind(), 0, "the source reads it again");
}

#[tokio::test]
async fn nothing_is_left_of_a_position_that_the_shared_steps_filtered_out() {
    let mut fixture = Fixture::in_memory();
    let route = fixture.route();
    let permit = route.admit(1, &ArrivedBody::default()).await.expect("there is memory");
    let position = Some(fixture.position());
    let payload = Payload::identity(Bytes::new());
    let request = Request { position, ..Request::new(payload, 0) };
    route.submit(request, permit).expect("is taken").accepted().await.expect("is accepted");
    assert_eq!(fixture.lowest(), 1);
}

/// Leaves as a reload makes a delivery leave, whose log is in memory.
fn leave(fixture: &Fixture, reader: CursorId) {
    while let Some((_, entry)) = fixture.log.read(reader).entry() {
        entry.abandoned(reader, false);
    }
    fixture.log.rewind(reader);
    fixture.log.unsubscribe(reader, Keep::Nothing);
}

#[tokio::test]
async fn a_delivery_that_a_reload_removes_holds_up_no_position() {
    let mut fixture = Fixture::in_memory();
    let [a, b] = fixture.readers;
    for _ in 0..2 {
        fixture.submit().await.expect("is taken").accepted().await.expect("is accepted");
    }
    fixture.resolve_next(a);
    leave(&fixture, b);
    assert_eq!(fixture.lowest(), 1, "the first is resolved by all that are left");
    fixture.resolve_next(a);
    assert_eq!(fixture.lowest(), 2);
}

#[tokio::test]
async fn a_position_that_no_delivery_resolved_before_all_left_is_read_again() {
    let mut fixture = Fixture::in_memory();
    fixture.submit().await.expect("is taken").accepted().await.expect("is accepted");
    fixture.readers.iter().for_each(|reader| leave(&fixture, *reader));
    assert_eq!(fixture.lowest(), 0);
    assert!(fixture.positions.is_interrupted());
}

/// Scenario: a request begins, a reload removes its only pipeline, then the request is submitted.
#[tokio::test]
async fn a_request_whose_deliveries_have_all_gone_is_refused_and_not_answered_ok() {
    let mut fixture = Fixture::in_memory();
    let route = fixture.route();
    let permit = route.admit(100, &ArrivedBody::default()).await.expect("there is memory");
    fixture.ingress.set_routes([]);
    assert!(fixture.ingress.route(Signal::Logs).is_none());
    fixture.readers.iter().for_each(|reader| leave(&fixture, *reader));
    let payload = Payload::identity(Bytes::from_static(b"payload"));
    let position = Some(fixture.position());
    let refused = route.submit(Request { position, ..Request::new(payload, 1) }, permit);
    assert!(matches!(refused, Err(Refusal::Retry { .. })));
    assert_eq!(fixture.lowest(), 0);
}

/// The same with one pipeline left: the request takes the route that it found when it began.
#[tokio::test]
async fn a_request_goes_where_its_snapshot_says_as_far_as_that_is_still_there() {
    let mut fixture = Fixture::in_memory();
    let [a, b] = fixture.readers;
    let route = fixture.route();
    let permit = route.admit(100, &ArrivedBody::default()).await.expect("there is memory");
    let only_a = Route { readers: Arc::new([a]), ..fixture.to_both() };
    fixture.ingress.set_routes([(Signal::Logs, only_a)]);
    leave(&fixture, b);
    let payload = Payload::identity(Bytes::from_static(b"payload"));
    let position = Some(fixture.position());
    let request = Request { position, ..Request::new(payload, 1) };
    route.submit(request, permit).expect("is taken").accepted().await.expect("is accepted");
    fixture.resolve_next(a);
    assert_eq!(fixture.lowest(), 1);
}

/// The same where the sender waits for both. Guarantee: it is answered when the one that is left
/// has taken the request.
#[tokio::test]
async fn a_delivery_that_was_gone_before_the_append_is_not_awaited() {
    for is_durable in [false, true] {
        let mut fixture = Fixture::in_memory();
        let [a, b] = fixture.readers;
        let awaited = match is_durable {
            false => Awaited { delivered: vec![a, b], ..Awaited::default() },
            true => Awaited { unless_durable: vec![a, b], ..Awaited::default() },
        };
        let both = Route { awaited: Arc::new(awaited), ..fixture.to_both() };
        fixture.ingress.set_routes([(Signal::Logs, both)]);
        let route = fixture.route();
        let permit = route.admit(100, &ArrivedBody::default()).await.expect("there is memory");
        leave(&fixture, b);
        let payload = Payload::identity(Bytes::from_static(b"payload"));
        let position = Some(fixture.position());
        let request = Request { position, ..Request::new(payload, 1) };
        let receipt = route.submit(request, permit).expect("is taken");
        fixture.resolve_next(a);
        receipt.accepted().await.expect("has delivered it");
    }
}

/// Guarantee: a durable frame belongs to the log, whichever delivery resolves it; only then is the
/// sender answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_position_is_resolved_when_its_frame_is_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk: Arc<dyn sluice_log::disk::Disk> = Arc::new(RealDisk);
    let (log, _) =
        Log::open(OpenOptions::new(disk, folder.path().join("logs"), "logs")).expect("opens");
    let mut fixture = Fixture::new(log);
    let awaited = Awaited { delivered: Vec::new(), unless_durable: fixture.readers.to_vec() };
    let route = Route { awaited: Arc::new(awaited), ..fixture.to_both() };
    fixture.ingress.set_routes([(Signal::Logs, route)]);
    let receipt = fixture.submit().await.expect("is taken");
    let accepted = tokio::time::timeout(Duration::from_secs(20), receipt.accepted()).await;
    accepted.expect("the disk answers").expect("is accepted");
    assert_eq!(fixture.lowest(), 1);
    let [a, b] = fixture.readers;
    [a, b].iter().for_each(|reader| fixture.resolve_next(*reader));
    assert!(!fixture.positions.is_interrupted());
}

/// Scenario: a receiver that was admitted before the process ends submits afterwards, as often as
/// it is told to. Guarantee: the log has none of it, so that nothing is sent twice.
#[tokio::test]
async fn an_intake_that_is_closed_keeps_nothing() {
    let fixture = Fixture::in_memory();
    let route = fixture.route();
    let permit = route.admit(100, &ArrivedBody::default()).await.expect("is admitted");
    fixture.ingress.close();
    fixture.ingress.closed().await;
    let payload = Payload::identity(Bytes::from_static(b"payload"));
    let refused = route.submit(Request::new(payload, 1), permit).err();
    assert!(matches!(refused, Some(Refusal::Retry { .. })), "{refused:?}");
    let [a, b] = fixture.readers;
    assert!([a, b].iter().all(|reader| fixture.log.read(*reader).entry().is_none()));
}

/// Ends the process, as it were, while a request is processed.
struct Closes(Arc<Door>);

impl Processor for Closes {
    fn process(&self, _: Signal, _: &Bytes, _: &Metadata, _: usize) -> Edited {
        self.0.closed.store(true, Ordering::SeqCst);
        Ok(Ok(None))
    }

    fn fingerprint(&self) -> u64 {
        7
    }
}

/// Scenario: the process ends while a request is on its way into the log. Guarantee: a sender is
/// not told to send again as if nothing were kept, nor that all is well; a source's position
/// depends on the deliveries.
#[tokio::test]
async fn what_came_in_as_the_intake_closed_is_not_refused() {
    let mut fixture = Fixture::in_memory();
    let step = Step {
        id: "closes".to_owned(),
        place: String::new(),
        fingerprint: 7,
        processor: Box::new(Closes(fixture.ingress.door.clone())),
        counters: Default::default(),
    };
    let route = Route { prefix: vec![Arc::new(step)], ..fixture.to_both() };
    fixture.ingress.set_routes([(Signal::Logs, route)]);
    let receipt = fixture.submit().await.expect("is in the log");
    let accepted = receipt.accepted().await;
    assert!(matches!(accepted, Err(Refusal::Unconfirmed { .. })), "{accepted:?}");
    assert_eq!((fixture.lowest(), fixture.positions.is_interrupted()), (0, false));
    let [a, b] = fixture.readers;
    [a, b].iter().for_each(|reader| fixture.resolve_next(*reader));
    assert_eq!((fixture.lowest(), fixture.positions.is_interrupted()), (1, false));
}
