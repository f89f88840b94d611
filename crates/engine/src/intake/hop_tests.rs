//! Requests of another Sluice, over a log on disk that is killed and opened again.

mod gated_disk;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_flow::hop::{Place, Ranges, Source};
use sluice_flow::source::{ArrivedBody, Ingress as _, Receipt, Request};
use sluice_flow::{Payload, Refusal};
use sluice_log::disk::{Disk, RealDisk};
use sluice_log::{CursorId, Keep, Log, OpenOptions, Subscription};
use sluice_otlp::Signal;
use tempfile::TempDir;

use self::gated_disk::{Gate, GatedDisk};
use super::tests::{empty_route, ingress};
use super::{ReceiverIngress, Route, RouteDisk};
use crate::ack::Awaited;
use crate::entry::Entry;
use crate::hop::Known;

const NEVER: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(10);

/// The event that senders wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ack {
    Memory,
    Durable,
    Delivered,
}

struct World {
    ack: Ack,
    flush_after: Duration,
    folder: TempDir,
    log: Arc<Log<Entry>>,
    known: Arc<Known>,
    reader: CursorId,
    ingress: ReceiverIngress,
}

impl World {
    fn new(ack: Ack, flush_after: Duration) -> World {
        World::open(Arc::new(RealDisk), tempfile::tempdir().expect("a folder"), ack, flush_after)
    }

    fn open(disk: Arc<dyn Disk>, folder: TempDir, ack: Ack, flush_after: Duration) -> World {
        let directory = folder.path().join("logs");
        let known = Known::open(&*disk, &directory, Signal::Logs, Default::default());
        let options = OpenOptions {
            flush_after,
            keep_interval: Duration::from_millis(10),
            companion: Some(known.clone()),
            ..OpenOptions::new(disk.clone(), &directory, "logs")
        };
        let (log, _) = Log::open(options).expect("opens");
        let (log, ingress) = (Arc::new(log), ingress(1 << 20));
        let reader = log.subscribe(Subscription::new("a"));
        let mut awaited = Awaited::default();
        match ack {
            Ack::Memory => {}
            Ack::Durable => awaited.unless_durable.push(reader),
            Ack::Delivered => awaited.delivered.push(reader),
        }
        let route = Route {
            log: log.clone(),
            known: known.clone(),
            readers: Arc::new([reader]),
            awaited: Arc::new(awaited),
            disk: Some(RouteDisk { unwritten_limit_bytes: 1 << 20, watch: Arc::default() }),
            ..empty_route()
        };
        ingress.set_routes([(Signal::Logs, route)]);
        World { ack, flush_after, folder, log, known, reader, ingress }
    }

    /// As SIGKILL does: nothing more is written.
    fn killed(self) -> World {
        self.killed_before(|_| {})
    }

    fn killed_before(self, change: impl FnOnce(&Path)) -> World {
        let World { ack, flush_after, folder, log, known, ingress, .. } = self;
        drop(ingress);
        drop(known);
        drop(Arc::into_inner(log).expect("nothing else has it"));
        change(&folder.path().join("logs"));
        World::open(Arc::new(RealDisk), folder, ack, flush_after)
    }

    async fn send(&self, ranges: impl Into<Option<Ranges>>) -> Result<Receipt, Refusal> {
        let route = self.ingress.route(Signal::Logs).expect("there is one");
        let permit = route.admit(100, &ArrivedBody::default()).await?;
        let payload = Payload::identity(Bytes::from_static(b"payload"));
        let ranges = ranges.into();
        route.submit(Request { ranges, ..Request::new(payload, 1) }, permit)
    }

    async fn is_answered(&self, ranges: Ranges) -> Result<(), Refusal> {
        tokio::time::timeout(SOON, self.send(ranges).await?.accepted()).await.expect("an answer")
    }

    /// True if the request is acknowledged and not stored.
    async fn knows(&self, ranges: Ranges) -> bool {
        let head = self.log.head();
        let answer = self.is_answered(ranges).await;
        assert_eq!(answer, Ok(()));
        self.log.head() == head
    }

    async fn next(&self) -> (u64, Arc<Entry>) {
        let began = Instant::now();
        // After a kill the log looks on disk first.
        loop {
            if let Some(next) = self.log.read(self.reader).entry() {
                return next;
            }
            assert!(began.elapsed() < SOON, "there is a frame");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// As a delivery does it.
    async fn resolve_next(&self, result: Result<(), Refusal>) {
        let (offset, entry) = self.next().await;
        if result.is_ok() {
            assert!(self.log.resolve(self.reader, offset));
        }
        entry.resolve(self.reader, result.clone());
        if result.is_err() {
            self.log.resolve_unwanted(self.reader, offset);
        }
    }
}

fn remove_segments(directory: &Path) {
    let entries = std::fs::read_dir(directory).expect("can be listed");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let segments = paths.filter(|path| path.extension().is_some_and(|it| it == "seg"));
    segments.for_each(|path| std::fs::remove_file(path).expect("is removed"));
}

/// These frames of a sender's log.
fn frames(frames: std::ops::Range<u64>) -> Ranges {
    let source = Source(1 << 90);
    Ranges::new([(source, Place::new(frames.start, 0)..Place::new(frames.end, 0))])
}

async fn eventually(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_on_disk_is_known_after_a_kill_and_its_parts_too() {
    let world = World::new(Ack::Durable, Duration::ZERO);
    assert!(!world.knows(frames(3..6)).await);
    assert!(world.knows(frames(3..6)).await);
    let world = world.killed();
    assert!(world.knows(frames(3..6)).await);
    assert!(world.knows(frames(4..5)).await, "packed otherwise");
    assert_eq!(world.is_answered(frames(5..7)).await, Err(Refusal::Overlaps));
    assert!(!world.knows(frames(6..7)).await);
    let world = world.killed();
    assert!(world.knows(frames(3..7)).await);
    assert_eq!(world.known.totals().repeated_requests, 1, "since the start");
}

/// Scenario: everything is delivered and its segments are gone. Guarantee: what it was is still
/// known after a kill, also if offsets are given again and it happens twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_delivered_is_known_after_a_kill_although_its_segment_is_gone() {
    let mut world = World::new(Ack::Durable, Duration::ZERO);
    for round in 0..3 {
        let first = 10 * round;
        assert!(!world.knows(frames(first..first + 2)).await);
        world.resolve_next(Ok(())).await;
        use sluice_log::companion::Companion as _;
        eventually(|| !world.known.is_changed()).await;
        world = world.killed_before(remove_segments);
        for known in (0..=round).map(|round| 10 * round) {
            assert!(world.knows(frames(known..known + 2)).await, "{round}");
        }
    }
}

/// Guarantee: under `ack: memory` a repeat is acknowledged as the first was. If a kill lost the
/// frame, a repeat is stored: to acknowledge it would lose it for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_kill_has_lost_is_not_known() {
    let world = World::new(Ack::Memory, NEVER);
    assert!(!world.knows(frames(0..1)).await);
    assert!(world.knows(frames(0..1)).await);
    let world = world.killed();
    assert!(!world.knows(frames(0..1)).await);
    world.resolve_next(Ok(())).await;
    assert!(world.knows(frames(0..1)).await);
}

/// Scenario: a sender tries again while its first attempt is not answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_repeat_waits_for_the_end_of_the_first_attempt() {
    for ack in [Ack::Durable, Ack::Delivered] {
        let world = World::new(ack, NEVER);
        let first = world.send(frames(0..2)).await.expect("is taken");
        let again = world.is_answered(frames(1..2)).await;
        assert!(matches!(again, Err(Refusal::Retry { .. })), "{ack:?} {again:?}");
        world.resolve_next(Ok(())).await;
        assert_eq!(first.accepted().await, Ok(()));
        assert!(world.knows(frames(0..2)).await);
    }
}

/// Scenario: the backend refuses, and the sender gets the refusal. Guarantee: what it sends again
/// is new, also if a kill leaves the frame on disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_refused_is_not_known() {
    let world = World::new(Ack::Delivered, Duration::ZERO);
    let first = world.send(frames(0..2)).await.expect("is taken");
    eventually(|| world.log.stats().commits > 0).await;
    let refusal = Refusal::Rejected { reason: "no".to_owned() };
    world.resolve_next(Err(refusal.clone())).await;
    assert_eq!(first.accepted().await, Err(refusal));
    let again = world.send(frames(0..2)).await.expect("is taken");
    drop(again);
    let world = world.killed();
    assert!(world.send(frames(0..2)).await.expect("is taken").answer.is_some(), "it is new");
}

/// Scenario: a reload has removed the only delivery before the frame is appended. Guarantee: the
/// request is refused, and is not known when it comes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_no_delivery_takes_is_not_known() {
    for ack in [Ack::Durable, Ack::Delivered, Ack::Memory] {
        let world = World::new(ack, NEVER);
        world.log.unsubscribe(world.reader, Keep::Nothing);
        for attempt in 0..2 {
            let answer = world.is_answered(frames(0..1)).await;
            assert!(matches!(answer, Err(Refusal::Retry { .. })), "{ack:?} {attempt} {answer:?}");
        }
    }
}

/// Scenario: the sender has gone before its frame was on disk. Guarantee: the frame stays, and a
/// repeat is acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_repeat_is_known_although_nothing_waited_for_the_first() {
    let world = World::new(Ack::Durable, Duration::from_millis(100));
    drop(world.send(frames(0..1)).await.expect("is taken"));
    eventually(|| world.log.stats().commits > 0).await;
    eventually(|| world.known.totals().ranges == 1).await;
    assert!(world.knows(frames(0..1)).await);
}

/// Scenario: a policy gives a frame up while the disk is slow to take it, its sender is told to
/// come again, and the process is killed before that. Guarantee: what it sends again is stored,
/// although the frame came to the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_given_up_while_it_was_written_is_not_known() {
    let gate = Arc::new(Gate::default());
    let (disk, folder) = (Arc::new(GatedDisk(gate.clone())), tempfile::tempdir());
    let world = World::open(disk, folder.expect("a folder"), Ack::Durable, Duration::ZERO);
    let first = world.send(frames(0..1)).await.expect("is taken");
    eventually(|| gate.is_waited_at()).await;
    let (offset, entry) = world.next().await;
    let is_lost = world.log.give_up(world.reader, offset).expect("it waits");
    entry.given_up(world.reader, is_lost);
    drop(entry);
    assert!(matches!(first.accepted().await, Err(Refusal::Unconfirmed { .. })));
    gate.open();
    // Its segment stays for one of another sender.
    let other = world.send(None::<Ranges>).await.expect("is taken");
    assert_eq!(other.accepted().await, Ok(()));
    // The cursor is stored.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let world = world.killed();
    assert!(!world.knows(frames(0..1)).await);
}
