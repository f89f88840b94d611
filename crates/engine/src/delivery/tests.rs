//! The task of a delivery, over the real log.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sluice_flow::dispatch::{
    BatchPolicy, ConcurrencyLimits, DispatchPolicy, RetryPolicy, State, Trigger,
};
use sluice_flow::{
    BoxFuture, Exporter, Frame, Metadata, Outcome, PackError, Packed, Payload, Refusal,
};
use sluice_net::compress::compress;
use sluice_otlp::{Encoding, Signal};
use sluice_processors::{Edited, Processor};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;

use super::*;
use crate::ack::{Ack, Awaited};
use crate::shared_work::SharedWorkMemory;
use crate::steps::{Chain, Step};

/// A delivery from a log in memory.
pub(crate) fn delivery(name: &str, log: &Arc<Log<Entry>>) -> Arc<Delivery> {
    let id = DeliveryId { pipeline: "traces".to_owned(), exporter: name.to_owned() };
    let (letters, receiving) = (DeadLetters::in_memory(1 << 20), ReceivingBudget::new(0));
    let (private, sending) = Default::default();
    let memory = SharedMemory { receiving, private, sending };
    let delivery = Delivery::new(id, Signal::Traces, log.clone(), letters, memory, false);
    delivery.packed_limit_bytes.store(1 << 20, Ordering::Relaxed);
    Arc::new(delivery)
}

/// Appends a frame of one item.
pub(crate) fn append(log: &Log<Entry>, readers: &[CursorId], ack: Option<Ack>) {
    append_from(log, readers, ack, Arc::default());
}

fn append_from(log: &Log<Entry>, readers: &[CursorId], ack: Option<Ack>, metadata: Arc<Metadata>) {
    append_frame(log, readers, ack, Frame { metadata, ..frame(1, b"payload") });
}

pub(super) fn frame(items: u32, payload: &'static [u8]) -> Frame {
    Frame {
        signal: Signal::Traces,
        items,
        payload: Payload::identity(Bytes::from_static(payload)),
        receiver: 0,
        received_wall: SystemTime::now(),
        metadata: Arc::default(),
    }
}

/// A field of protobuf with a length.
pub(super) fn message(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    prost::encoding::encode_varint(content.len() as u64, &mut message);
    message.extend(content);
    message
}

pub(super) fn append_frame(log: &Log<Entry>, readers: &[CursorId], ack: Option<Ack>, frame: Frame) {
    let memory = Arc::new(SharedWorkMemory::new(0, Arc::default()));
    let entry = Arc::new(Entry::new(frame, Arc::default(), ack, memory));
    let charge = entry.charge();
    log.append(entry, charge, &readers.to_vec().into());
}

/// Answers every request alike, and refuses senders with metadata. What it packs is a copy.
pub(super) struct Backend(pub Outcome);

impl Exporter for Backend {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((vec![chunks.concat().into()], Encoding::Gzip))
    }

    fn send<'a>(&'a self, _: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(async { self.0.clone() })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn refuses(&self, metadata: &Metadata) -> Option<String> {
        (!metadata.headers.is_empty()).then(|| "two tenants".to_owned())
    }
}

struct DropsAll;

impl Processor for DropsAll {
    fn process(&self, _: Signal, _: &Bytes, _: &Metadata, _: usize) -> Edited {
        Ok(Ok(Some(Bytes::new())))
    }

    fn fingerprint(&self) -> u64 {
        7
    }
}

/// Runs the delivery's task until it is told otherwise.
pub(super) fn start(
    delivery: &Arc<Delivery>,
    backend: Outcome,
    steps: Vec<Arc<Step>>,
) -> watch::Sender<Stop> {
    start_with(delivery, Backend(backend), steps, policy())
}

pub(super) fn policy() -> DispatchPolicy {
    DispatchPolicy {
        batch: BatchPolicy {
            trigger: Trigger::Linger(Duration::ZERO),
            full_items: 0,
            full_bytes: 1 << 20,
            max_items: 0,
            max_bytes: 1 << 20,
            max_groups: 1,
        },
        retry: RetryPolicy::Disabled,
        concurrency: ConcurrencyLimits::default(),
        return_rejections: false,
        in_order: false,
        least_items: None,
    }
}

pub(super) fn start_with(
    delivery: &Arc<Delivery>,
    backend: impl Exporter,
    steps: Vec<Arc<Step>>,
    dispatch: DispatchPolicy,
) -> watch::Sender<Stop> {
    start_beside(delivery, backend, steps, dispatch, Arc::default())
}

/// The same for deliveries that share the turns of large work.
pub(super) fn start_beside(
    delivery: &Arc<Delivery>,
    backend: impl Exporter,
    steps: Vec<Arc<Step>>,
    dispatch: DispatchPolicy,
    large_work: Arc<crate::large_work::LargeWork>,
) -> watch::Sender<Stop> {
    let preparer = Preparer {
        names: Names::of(delivery.id.to_string()),
        exporter: Arc::new(backend),
        account: delivery.account.clone(),
        memory: delivery.private.clone(),
        large_work,
        metadata_keys: Vec::new(),
        chains: HashMap::new(),
        receivers: HashMap::new(),
        orphans: [Chain { steps: steps.into(), sharers: 1 }],
    };
    let (stop, stopped) = watch::channel(Stop::No);
    tokio::spawn(run(delivery.clone(), dispatch, preparer, stopped));
    stop
}

pub(super) async fn until_all_is_resolved(delivery: &Delivery) {
    while delivery.log.held(delivery.cursor).frames > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Scenario: one delivery of a frame filters all of it out; the other fails, and may drop frames
/// that another delivery has taken. Guarantee: it keeps this frame, which no backend has.
#[tokio::test]
async fn what_a_delivery_filters_out_is_not_taken_for_the_other_one() {
    let step = Step {
        id: "filter".to_owned(),
        place: String::new(),
        fingerprint: 7,
        processor: Box::new(DropsAll),
        counters: Default::default(),
    };
    for (steps, is_taken) in [(vec![Arc::new(step)], false), (Vec::new(), true)] {
        let log = Arc::<Log<Entry>>::default();
        let (healthy, sick) = (delivery("healthy", &log), delivery("sick", &log));
        (0..2).for_each(|_| append(&log, &[healthy.cursor, sick.cursor], None));
        let _stop = start(&healthy, Outcome::Delivered, steps);
        until_all_is_resolved(&healthy).await;
        sick.gauges.allow(Sheds::Taken);
        assert_eq!(sick.shed_alone(1) > 0, is_taken);
    }
}

/// Scenario: a request is not taken, and is not tried again. Guarantee: the copy that was packed
/// for another attempt is charged to the delivery no longer.
#[tokio::test]
async fn copies_for_an_attempt_that_never_comes_are_not_charged() {
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("sick", &log);
    append(&log, &[delivery.cursor], None);
    let refused = Outcome::RetryAfter { delay: None, reason: "busy".to_owned() };
    let _stop = start(&delivery, refused, Vec::new());
    until_all_is_resolved(&delivery).await;
    assert_eq!(delivery.dead_letters.totals().letters, 1);
    assert_eq!(delivery.private.used_bytes(), 0);
}

/// Appends a frame whose sender waits for this delivery alone.
fn append_awaited(delivery: &Delivery) -> oneshot::Receiver<Result<(), Refusal>> {
    let awaited = Awaited { delivered: vec![delivery.cursor], unless_durable: Vec::new() };
    let (ack, answer) = Ack::new(awaited.into());
    append(&delivery.log, &[delivery.cursor], Some(ack));
    answer
}

/// Scenario: the backend refuses the credentials, while a sender waits for it alone. Guarantee: the
/// sender gets a retryable refusal, at once and every time; acknowledged data stays.
#[tokio::test]
async fn senders_that_wait_are_told_that_the_backend_cannot_be_used() {
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("sick", &log);
    let unusable = Outcome::Misconfigured { reason: "401".to_owned() };
    let dispatch = DispatchPolicy { return_rejections: true, ..policy() };
    let _stop = start_with(&delivery, Backend(unusable), Vec::new(), dispatch);
    for _ in 0..3 {
        let answer = append_awaited(&delivery);
        delivery.wake.notify_one();
        let answer = timeout(Duration::from_secs(10), answer).await.expect("is answered");
        assert!(matches!(answer, Ok(Err(Refusal::Retry { .. }))), "{answer:?}");
    }
    until_all_is_resolved(&delivery).await;

    append(&log, &[delivery.cursor], None);
    delivery.wake.notify_one();
    while *delivery.stats.state.lock() == State::Open {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(log.held(delivery.cursor).frames, 1);
}

/// Scenario: senders wait for a delivery, and it has a backlog from a time when they did not.
/// Guarantee: what the backend refuses of it is no sender's any more, and becomes a dead letter.
#[tokio::test]
async fn what_was_acknowledged_is_not_left_to_its_sender() {
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("sick", &log);
    append(&log, &[delivery.cursor], None);
    let answer = append_awaited(&delivery);
    let dispatch = DispatchPolicy { return_rejections: true, ..policy() };
    let refuses = Outcome::Rejected { reason: "no".to_owned() };
    let _stop = start_with(&delivery, Backend(refuses), Vec::new(), dispatch);
    assert!(matches!(answer.await, Ok(Err(Refusal::Rejected { .. }))));
    until_all_is_resolved(&delivery).await;
    assert_eq!(delivery.dead_letters.totals().letters, 1);
    assert_eq!(delivery.stats.returned_items.load(Ordering::Relaxed), 1);
}

/// Is out of order for a while. Counts the items that it takes.
struct Recovers {
    at: Instant,
    taken: Arc<AtomicUsize>,
}

impl Exporter for Recovers {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((chunks, Encoding::Identity))
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(async {
            if Instant::now() < self.at {
                return Outcome::RetryAfter { delay: None, reason: "503".to_owned() };
            }
            self.taken.fetch_add(request.items as usize, Ordering::Relaxed);
            Outcome::Delivered
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// Scenario: a sender waits for a backend that is out of order, gives up and sends again, eight
/// times. Guarantee: the backend gets one copy, for the request that is waited for.
#[tokio::test]
async fn what_senders_have_left_is_not_sent() {
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("slow", &log);
    let dispatch =
        DispatchPolicy { return_rejections: true, retry: RetryPolicy::default(), ..policy() };
    let taken = Arc::<AtomicUsize>::default();
    let backend =
        Recovers { at: Instant::now() + Duration::from_millis(400), taken: taken.clone() };
    let _stop = start_with(&delivery, backend, Vec::new(), dispatch);
    for _ in 0..7 {
        let answer = append_awaited(&delivery);
        delivery.wake.notify_one();
        assert!(timeout(Duration::from_millis(50), answer).await.is_err(), "waits");
    }
    let last = append_awaited(&delivery);
    delivery.wake.notify_one();
    let answer = timeout(Duration::from_secs(60), last).await.expect("is answered");
    assert_eq!(answer, Ok(Ok(())));
    until_all_is_resolved(&delivery).await;
    assert_eq!(taken.load(Ordering::Relaxed), 1);
}

/// Scenario: nothing can be sent for one sender. Guarantee: its data is a dead letter at once, and
/// that of another sender is delivered.
#[tokio::test]
async fn what_cannot_be_sent_for_its_sender_is_a_dead_letter() {
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("tenants", &log);
    let headers = vec![("tenant".to_owned(), b"t1".to_vec())];
    append_from(&log, &[delivery.cursor], None, Arc::new(Metadata { peer: None, headers }));
    append(&log, &[delivery.cursor], None);
    let _stop = start(&delivery, Outcome::Delivered, Vec::new());
    until_all_is_resolved(&delivery).await;
    assert_eq!(delivery.dead_letters.listing(1).newest[0].reason, "two tenants");
    assert_eq!(delivery.dead_letters.totals().letters, 1);
    assert_eq!(delivery.stats.sent_items.load(Ordering::Relaxed), 1);
}

/// Scenario: nothing is retried, and a sender waits. Guarantee: it gets the backend's answer: a
/// failure of its own, or when to come back.
#[tokio::test]
async fn senders_that_wait_are_told_what_the_backend_said() {
    let reason = || "no".to_owned();
    let seconds = Duration::from_secs(7);
    let busy = "not retried (retry_on_failure is disabled): no".to_owned();
    for (outcome, expected) in [
        (Outcome::Failed { reason: reason() }, Refusal::Failed { reason: reason() }),
        (Outcome::Rejected { reason: reason() }, Refusal::Rejected { reason: reason() }),
        (
            Outcome::RetryAfter { delay: Some(seconds), reason: reason() },
            Refusal::Retry { delay: seconds, reason: busy },
        ),
    ] {
        let log = Arc::<Log<Entry>>::default();
        let delivery = delivery("sick", &log);
        let answer = append_awaited(&delivery);
        let dispatch = DispatchPolicy { return_rejections: true, ..policy() };
        let _stop = start_with(&delivery, Backend(outcome), Vec::new(), dispatch);
        assert_eq!(answer.await, Ok(Err(expected)));
    }
}

/// Refuses the first request for an hour, and takes later ones once they may pass.
struct Halfway {
    requests: AtomicUsize,
    may_pass: Arc<Notify>,
}

impl Exporter for Halfway {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((chunks, Encoding::Identity))
    }

    fn send<'a>(&'a self, _: &'a Packed) -> BoxFuture<'a, Outcome> {
        let is_first = self.requests.fetch_add(1, Ordering::Relaxed) == 0;
        Box::pin(async move {
            if is_first {
                let (delay, reason) = (Some(Duration::from_secs(3_600)), "busy".to_owned());
                return Outcome::RetryAfter { delay, reason };
            }
            self.may_pass.notified().await;
            Outcome::Delivered
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// Scenario: a frame goes out in two parts; one waits for its retry and is shed, then the other one
/// is delivered. Guarantee: the frame was not taken. No other delivery gives it up for that, and if
/// none has it any more its sender gets a retryable refusal.
#[tokio::test]
async fn a_frame_of_which_a_part_was_shed_is_not_taken() {
    /// A request with two spans.
    const TWO_SPANS: &[u8] = &[0x0a, 6, 0x12, 4, 0x12, 0, 0x12, 0];
    for has_another in [true, false] {
        let log = Arc::<Log<Entry>>::default();
        let (halfway, sick) = (delivery("halfway", &log), delivery("sick", &log));
        let readers = [halfway.cursor, sick.cursor];
        let readers = if has_another { &readers[..] } else { &readers[..1] };
        let awaited = Awaited { delivered: vec![halfway.cursor], unless_durable: Vec::new() };
        let (ack, answer) = Ack::new(awaited.into());
        append_frame(&log, readers, Some(ack), frame(2, TWO_SPANS));
        append(&log, &[sick.cursor], None);
        let may_pass = Arc::new(Notify::new());
        let backend = Halfway { requests: AtomicUsize::new(0), may_pass: may_pass.clone() };
        let batch = BatchPolicy { max_items: 1, ..policy().batch };
        let dispatch = DispatchPolicy { batch, retry: RetryPolicy::default(), ..policy() };
        let _stop = start_with(&halfway, backend, Vec::new(), dispatch);
        while halfway.stats.waiting.load(Ordering::Relaxed) < 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        halfway.gauges.allow(Sheds::Everything);
        while halfway.stats.dropped_items.load(Ordering::Relaxed) < 1 {
            halfway.shed_wanted_bytes.store(1, Ordering::Relaxed);
            halfway.wake.notify_one();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        may_pass.notify_one();
        let answer = timeout(Duration::from_secs(60), answer).await.expect("is answered");
        if has_another {
            assert_eq!(answer, Ok(Ok(())), "the other delivery still has it");
            sick.gauges.allow(Sheds::Taken);
            assert_eq!(sick.shed_alone(1), 0);
        } else {
            assert!(matches!(answer, Ok(Err(Refusal::Unconfirmed { .. }))), "{answer:?}");
        }
    }
}

/// Refuses every second request for an hour.
struct EverySecond(AtomicUsize);

impl Exporter for EverySecond {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((chunks, Encoding::Identity))
    }

    fn send<'a>(&'a self, _: &'a Packed) -> BoxFuture<'a, Outcome> {
        let is_taken = self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        let (delay, reason) = (Some(Duration::from_secs(3_600)), "busy".to_owned());
        let refused = Outcome::RetryAfter { delay, reason };
        Box::pin(async move { if is_taken { Outcome::Delivered } else { refused } })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// Scenario: payloads are inflated for a backend that refuses some, and wait for a retry.
/// Guarantee: inflated payloads that wait stay within the limit, and any limit lets it begin.
#[tokio::test]
async fn what_is_inflated_and_waits_is_bounded() {
    const LEN_BYTES: usize = 10_000;
    let packed = compress(Encoding::Gzip, &[Bytes::from(vec![7; LEN_BYTES])], None).unwrap();
    let payload =
        Payload { bytes: packed, encoding: Encoding::Gzip, uncompressed_len_bytes: LEN_BYTES };
    for may_wait in [0, 8] {
        let log = Arc::<Log<Entry>>::default();
        let delivery = delivery("busy", &log);
        let limit_bytes = may_wait * LEN_BYTES as u64;
        delivery.private_limits.set(limit_bytes, u64::MAX, 1);
        for _ in 0..200 {
            let frame = Frame { payload: payload.clone(), ..frame(1, b"") };
            append_frame(&log, &[delivery.cursor], None, frame);
        }
        let batch = BatchPolicy { max_items: 1, ..policy().batch };
        let dispatch = DispatchPolicy { batch, retry: RetryPolicy::default(), ..policy() };
        let _stop = start_with(&delivery, EverySecond(AtomicUsize::new(0)), Vec::new(), dispatch);
        while delivery.stats.waiting.load(Ordering::Relaxed) < may_wait.max(1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let used_bytes = delivery.private.used_bytes();
        assert!(used_bytes <= limit_bytes + LEN_BYTES as u64, "{used_bytes} of {limit_bytes}");
    }
}

/// Packs to a part of the size, and answers when it may.
struct Hangs {
    divisor: usize,
    may_answer: Arc<Semaphore>,
}

impl Exporter for Hangs {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        let packed = chunks.iter().map(|chunk| vec![7; chunk.len() / self.divisor].into());
        Ok((packed.collect(), Encoding::Gzip))
    }

    fn send<'a>(&'a self, _: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(async {
            self.may_answer.acquire().await.expect("is open").forget();
            Outcome::Delivered
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// Scenario: requests are packed for a backend that hangs, and later answers. Guarantee: packed
/// copies in flight stay within the share, or the common part, and one request; any share lets one
/// be sent, and all the requests arrive.
#[tokio::test]
async fn copies_in_flight_stay_within_the_share_and_one_request() {
    const FRAMES: usize = 20;
    static PAYLOAD: [u8; 10_000] = [7; 10_000];
    for (limit_bytes, common_bytes, divisor, in_flight) in [
        (0, 0, 1, 1),
        (25_000, 0, 1, 3),
        (0, 25_000, 1, 3),
        (25_000, 35_000, 1, 4),
        (25_000, 0, 10, 8),
    ] {
        let log = Arc::<Log<Entry>>::default();
        let delivery = delivery("hangs", &log);
        delivery.sending_limit_bytes.store(limit_bytes, Ordering::Relaxed);
        delivery.common_sending_limit_bytes.store(common_bytes, Ordering::Relaxed);
        for _ in 0..FRAMES {
            append_frame(&log, &[delivery.cursor], None, frame(1, &PAYLOAD));
        }
        let batch = BatchPolicy { max_items: 1, ..policy().batch };
        let may_answer = Arc::new(Semaphore::new(0));
        let backend = Hangs { divisor, may_answer: may_answer.clone() };
        let dispatch = DispatchPolicy { batch, ..policy() };
        let _stop = start_with(&delivery, backend, Vec::new(), dispatch);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(delivery.stats.in_flight.load(Ordering::Relaxed), in_flight);
        let copied_bytes = in_flight * (PAYLOAD.len() / divisor) as u64;
        assert_eq!(delivery.sending.used_bytes(), copied_bytes);
        may_answer.add_permits(FRAMES);
        timeout(Duration::from_secs(10), until_all_is_resolved(&delivery))
            .await
            .expect("all arrive");
        assert_eq!(delivery.sending.used_bytes(), 0);
    }
}

/// Scenario: the backend refuses items in a row that are larger together than what the delivery may
/// lease. Guarantee: they become dead letters, and the delivery goes on.
#[tokio::test]
async fn refused_items_that_fill_the_lease_become_dead_letters() {
    const FRAMES: u64 = 10;
    static PAYLOAD: [u8; 10_000] = [7; 10_000];
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("refuses", &log);
    delivery.set_bounds(delivery.bounds(), 25_000);
    (0..FRAMES).for_each(|_| append_frame(&log, &[delivery.cursor], None, frame(1, &PAYLOAD)));
    let batch = BatchPolicy { max_items: 1, ..policy().batch };
    let refused = Backend(Outcome::Rejected { reason: "too old".to_owned() });
    let dispatch = DispatchPolicy { batch, ..policy() };
    let _stop = start_with(&delivery, refused, Vec::new(), dispatch);
    let resolved = timeout(Duration::from_secs(10), until_all_is_resolved(&delivery)).await;
    resolved.expect("none is left");
    assert_eq!(delivery.dead_letters.totals().letters, FRAMES);
}

/// Takes all, and notes the most memory that its delivery had in use.
struct Notes {
    memory: [Arc<PrivateMemory>; 2],
    most_bytes: Arc<AtomicU64>,
}

impl Exporter for Notes {
    fn send<'a>(&'a self, _: &'a Packed) -> BoxFuture<'a, Outcome> {
        let used_bytes = self.memory.iter().map(|memory| memory.used_bytes()).sum();
        self.most_bytes.fetch_max(used_bytes, Ordering::Relaxed);
        Box::pin(async { Outcome::Delivered })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// Scenario: a request of 1000 items below one large resource is cut into its items. Guarantee: all
/// are delivered, and the resource is not copied into all parts at once.
#[tokio::test]
async fn a_header_is_not_in_memory_once_for_each_part() {
    const ITEMS: u32 = 1000;
    // A resource of 16,384 bytes, and a scope of 2,000.
    let resource = [&[0x0a, 0x80, 0x80, 0x01][..], &[0xff; 16_384]].concat();
    let scope = [&[0x12, 0xd0, 0x0f][..], &[0x12, 0].repeat(ITEMS as usize)].concat();
    let head = [0x0a, 0xd7, 0x8f, 0x01];
    let request = [&head[..], &resource, &scope].concat();
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("cuts", &log);
    delivery.sending_limit_bytes.store(100_000, Ordering::Relaxed);
    delivery.common_sending_limit_bytes.store(0, Ordering::Relaxed);
    append_frame(&log, &[delivery.cursor], None, frame(ITEMS, request.leak()));
    let most_bytes = Arc::<AtomicU64>::default();
    let memory = [delivery.private.clone(), delivery.sending.clone()];
    let backend = Notes { memory, most_bytes: most_bytes.clone() };
    let batch = BatchPolicy { max_items: 1, ..policy().batch };
    let _stop = start_with(&delivery, backend, Vec::new(), DispatchPolicy { batch, ..policy() });
    timeout(Duration::from_secs(60), until_all_is_resolved(&delivery)).await.expect("all arrive");
    assert_eq!(delivery.stats.sent_items.load(Ordering::Relaxed), u64::from(ITEMS));
    let most_bytes = most_bytes.load(Ordering::Relaxed);
    assert!((16_384..200_000).contains(&most_bytes), "{most_bytes}");
    assert_eq!((delivery.private.used_bytes(), delivery.sending.used_bytes()), (0, 0));
}
