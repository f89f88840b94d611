//! A delivery that is stopped amid its requests and sends them anew, packed and cut otherwise, to a
//! receiver that knows what it has had.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_flow::dispatch::{Backoff, BatchPolicy, DispatchPolicy, RetryPolicy};
use sluice_flow::hop::{Found, OVERLAP, Ranges, Window};
use sluice_flow::{BoxFuture, Exporter, Outcome, Packed};
use sluice_log::{CursorId, Log};
use tokio::time::timeout;

use super::Stop;
use super::tests::{delivery, frame, policy, start_with, until_all_is_resolved};
use crate::entry::{Entry, Origin};
use crate::shared_work::SharedWorkMemory;

const FRAMES: u64 = 12;
const ITEMS: u32 = 5;

/// Knows what it has had, as another Sluice does.
#[derive(Default)]
struct Receiver {
    window: Mutex<Window>,
    stored_items: AtomicU64,
    overlaps: AtomicU64,
    unnamed: AtomicU64,
    /// It stores what is new, and gives no answer.
    is_silent: AtomicBool,
}

#[derive(Clone, Default)]
struct ToReceiver(Arc<Receiver>);

impl Receiver {
    fn take(&self, request: &Packed) -> Outcome {
        let Some(ranges) = &request.ranges else {
            self.unnamed.fetch_add(1, Ordering::Relaxed);
            return Outcome::Delivered;
        };
        let ranges = Ranges::parse(ranges).expect("ranges");
        let found = self.window.lock().arrive(&ranges, false);
        match found {
            Found::Known => Outcome::Delivered,
            Found::New(floor) => {
                self.window.lock().keep(&ranges, floor);
                self.stored_items.fetch_add(request.items.into(), Ordering::Relaxed);
                Outcome::Delivered
            }
            Found::Overlaps => {
                self.overlaps.fetch_add(1, Ordering::Relaxed);
                Outcome::Overlaps { reason: OVERLAP.to_owned() }
            }
            Found::Arriving => panic!("nothing arrives for long"),
        }
    }
}

impl Exporter for ToReceiver {
    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(async {
            let outcome = self.0.take(request);
            if self.0.is_silent.load(Ordering::Relaxed) {
                std::future::pending().await
            } else {
                outcome
            }
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(10)
    }

    fn names_ranges(&self) -> bool {
        true
    }
}

fn append(log: &Log<Entry>, reader: CursorId, has_identity: bool) {
    append_items(log, reader, has_identity, ITEMS);
}

fn append_items(log: &Log<Entry>, reader: CursorId, has_identity: bool, items: u32) {
    // A resource with a scope of empty spans.
    let spans = [0x12, 0].repeat(items as usize);
    let scope = [&[0x12, spans.len() as u8][..], &spans].concat();
    let payload = [&[0x0a, scope.len() as u8][..], &scope].concat().leak();
    let origin = Origin { log: has_identity.then(|| log.instance()), ..Origin::default() };
    let memory = Arc::new(SharedWorkMemory::new(0, Arc::default()));
    let entry = Entry::new(frame(items, payload), Arc::new(origin), None, memory);
    let (entry, readers) = (Arc::new(entry), vec![reader].into());
    let charge = entry.charge();
    log.append(entry, charge, &readers);
}

/// Batches of at most this many items.
fn dispatch(max_items: usize) -> DispatchPolicy {
    let hour = Duration::from_secs(3600);
    let backoff = Backoff { initial: hour, max: hour, multiplier: 1.0, jitter: 0.0 };
    DispatchPolicy {
        batch: BatchPolicy { max_items, ..policy().batch },
        retry: RetryPolicy::Explicit { backoff, max_elapsed: None },
        ..policy()
    }
}

/// Guarantee: whatever was stored before the end is not stored again, and all else is, for every
/// two ways to pack and to cut the frames.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_anew_is_stored_once_however_it_is_cut() {
    let mut overlaps = 0;
    for (before, after) in
        [(0, 0), (0, 3), (3, 0), (4, 3), (3, 4), (1, 0), (0, 1), (12, 7), (7, 12), (2, 100)]
    {
        let log = Arc::<Log<Entry>>::default();
        let (delivery, to) = (delivery("a", &log), ToReceiver::default());
        (0..FRAMES / 2).for_each(|_| append(&log, delivery.cursor, true));
        to.0.is_silent.store(true, Ordering::Relaxed);
        let stop = start_with(&delivery, to.clone(), Vec::new(), dispatch(before));
        let stored = || to.0.stored_items.load(Ordering::Relaxed);
        let some = async {
            while stored() == 0 {
                tokio::task::yield_now().await
            }
        };
        timeout(Duration::from_secs(10), some).await.expect("something is stored");
        tokio::time::sleep(Duration::from_millis(30)).await;
        stop.send(Stop::HandOver).expect("it runs");
        timeout(Duration::from_secs(10), stop.closed()).await.expect("it ends");
        (FRAMES / 2..FRAMES).for_each(|_| append(&log, delivery.cursor, true));
        to.0.is_silent.store(false, Ordering::Relaxed);
        let _stop = start_with(&delivery, to.clone(), Vec::new(), dispatch(after));
        let all = timeout(Duration::from_secs(20), until_all_is_resolved(&delivery)).await;
        all.expect("all is resolved");
        let case = format!("{before}, then {after}");
        assert_eq!(stored(), FRAMES * u64::from(ITEMS), "{case}");
        assert_eq!(delivery.dead_letters.totals().letters, 0, "{case}");
        assert_eq!(to.0.unnamed.load(Ordering::Relaxed), 0, "{case}");
        overlaps += to.0.overlaps.load(Ordering::Relaxed);
    }
    assert!(overlaps > 0, "the test is about requests that are known in part");
}

/// Scenario: frames of an older release have no identity. Guarantee: they are sent without ranges,
/// and never in a request that has some: its repeat could pass for known.
#[tokio::test]
async fn a_frame_without_an_identity_is_sent_by_itself() {
    let log = Arc::<Log<Entry>>::default();
    let (delivery, to) = (delivery("a", &log), ToReceiver::default());
    (0..FRAMES).for_each(|frame| append(&log, delivery.cursor, frame % 3 > 0));
    let _stop = start_with(&delivery, to.clone(), Vec::new(), dispatch(0));
    timeout(Duration::from_secs(10), until_all_is_resolved(&delivery)).await.expect("resolved");
    let named = FRAMES - FRAMES / 3;
    assert_eq!(to.0.stored_items.load(Ordering::Relaxed), named * u64::from(ITEMS));
    assert!(to.0.unnamed.load(Ordering::Relaxed) > 0);
}

/// Guarantee: a request whose ranges make a long header goes out in parts, each of them named.
#[tokio::test]
async fn a_request_with_too_many_ranges_is_cut() {
    let log = Arc::<Log<Entry>>::default();
    let (delivery, to) = (delivery("a", &log), ToReceiver::default());
    let (named, other) = (delivery.cursor, super::tests::delivery("b", &log).cursor);
    for at in 0..3000 {
        append(&log, if at % 2 == 0 { named } else { other }, true);
    }
    let wide = BatchPolicy { full_bytes: 1 << 20, ..policy().batch };
    let dispatch = DispatchPolicy { batch: wide, ..dispatch(0) };
    let _stop = start_with(&delivery, to.clone(), Vec::new(), dispatch);
    timeout(Duration::from_secs(20), until_all_is_resolved(&delivery)).await.expect("resolved");
    let stored = to.0.stored_items.load(Ordering::Relaxed);
    assert_eq!((stored, to.0.unnamed.load(Ordering::Relaxed)), (1500 * u64::from(ITEMS), 0));
    assert_eq!(to.0.window.lock().totals().ranges, 1500);
}

/// A receiver that says of its first requests that it knows a part, and what it was sent.
#[derive(Clone, Default)]
struct Stubborn {
    refusals: usize,
    asked: Arc<Mutex<Vec<Option<Arc<str>>>>>,
}

impl Exporter for Stubborn {
    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        let mut asked = self.asked.lock();
        asked.push(request.ranges.clone());
        let outcome = match asked.len() > self.refusals {
            true => Outcome::Delivered,
            false => Outcome::Overlaps { reason: OVERLAP.to_owned() },
        };
        Box::pin(async { outcome })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn names_ranges(&self) -> bool {
        true
    }
}

/// Scenario: the receiver has had the only item of a frame as a part of it. Guarantee: the item is
/// named so too, and if that is in vain, it is sent without a name. It is not given up.
#[tokio::test]
async fn a_single_item_that_is_known_in_part_is_named_otherwise() {
    for refusals in 0..3 {
        let log = Arc::<Log<Entry>>::default();
        let delivery = delivery("a", &log);
        let backend = Stubborn { refusals, ..Stubborn::default() };
        append_items(&log, delivery.cursor, true, 1);
        let at_once = Duration::from_millis(1);
        let backoff = Backoff { initial: at_once, max: at_once, multiplier: 1.0, jitter: 0.0 };
        let retry = RetryPolicy::Explicit { backoff, max_elapsed: None };
        let dispatch = DispatchPolicy { retry, ..dispatch(0) };
        let _stop = start_with(&delivery, backend.clone(), Vec::new(), dispatch);
        timeout(Duration::from_secs(10), until_all_is_resolved(&delivery)).await.expect("resolved");
        let asked = backend.asked.lock();
        let ends: Vec<_> =
            asked.iter().map(|it| it.as_deref().map(|it| &it[it.len() - 4..])).collect();
        assert_eq!(ends, [Some(":0+1"), Some("+0.1"), None][..=refusals], "{asked:?}");
        assert_eq!(delivery.stats.sent_items.load(Ordering::Relaxed), 1);
    }
}
