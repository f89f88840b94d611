//! Backends that do not answer large requests in time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use sluice_flow::dispatch::{Backoff, BatchPolicy, ConcurrencyLimits, DispatchPolicy, RetryPolicy};
use sluice_flow::{BoxFuture, Exporter, Frame, Metadata, Outcome, PackError, Packed, Payload};
use sluice_log::Log;
use sluice_net::compress::compress;
use sluice_otlp::{Encoding, Signal, count};
use sluice_processors::{Edited, Processor};
use tokio::time::timeout;

use super::Delivery;
use super::tests::{
    append_frame, delivery, frame, message, policy, start_with, until_all_is_resolved,
};
use crate::entry::Entry;
use crate::steps::Step;

const FRAMES: u32 = 3;
const SPANS: u32 = 8;
const TAKEN_MOST: u32 = 5;

/// Takes requests of a few items, and never answers others, for which it has no time at all. Notes
/// the items of each request.
struct Slow(Arc<Mutex<Vec<u32>>>);

impl Exporter for Slow {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((vec![chunks.concat().into()], Encoding::Gzip))
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        self.0.lock().push(request.items);
        match request.items > TAKEN_MOST {
            true => Box::pin(pending::<Outcome>()),
            false => Box::pin(async { Outcome::Delivered }),
        }
    }

    fn timeout(&self) -> Duration {
        Duration::ZERO
    }
}

/// A request of eight spans.
fn request() -> Vec<u8> {
    message(0x0a, &message(0x12, &[0x12, 0].repeat(SPANS as usize)))
}

const SOON: Duration = Duration::from_millis(1);

/// The first retry comes soon, and the others after this time.
fn retried(pause: Duration) -> DispatchPolicy {
    let backoff = Backoff { initial: SOON, max: pause, multiplier: 1e9, jitter: 0.0 };
    let retry = RetryPolicy::Explicit { backoff, max_elapsed: None };
    DispatchPolicy { retry, ..policy() }
}

/// Scenario: a batch of several frames, and each of these, is more than the backend takes in time.
/// Guarantee: all of it is delivered in parts, none of which is sent again once it was taken, and
/// no memory stays charged for copies of what was cut.
#[tokio::test]
async fn a_batch_that_is_late_again_and_again_is_cut() {
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("slow", &log);
    let payload = request().leak();
    for _ in 0..FRAMES {
        append_frame(&log, &[delivery.cursor], None, frame(SPANS, payload));
    }
    let all = (FRAMES * SPANS) as usize;
    let batch = BatchPolicy { max_items: all, full_items: all, ..policy().batch };
    let dispatch = DispatchPolicy { batch, least_items: Some(2), ..retried(SOON) };
    let seen = Arc::<Mutex<Vec<u32>>>::default();
    let _stop = start_with(&delivery, Slow(seen.clone()), Vec::new(), dispatch);
    let resolved = timeout(Duration::from_secs(60), until_all_is_resolved(&delivery)).await;
    resolved.expect("all is resolved");
    let seen = seen.lock();
    assert_eq!(seen[..3], [24, 24, 8], "{seen:?}");
    assert!(seen[2..].iter().all(|items| *items <= SPANS), "{seen:?}");
    let taken = seen.iter().filter(|items| **items <= TAKEN_MOST).sum::<u32>();
    assert_eq!(taken, FRAMES * SPANS, "{seen:?}");
    assert_eq!(delivery.stats.sent_items.load(Ordering::Relaxed), u64::from(taken));
    assert_eq!(delivery.dead_letters.totals().letters, 0);
    assert_eq!(delivery.private.used_bytes(), 0);
}

/// Notes the items of what it gets. It could make something else the next time.
struct Compares(Arc<Mutex<Vec<u32>>>);

impl Processor for Compares {
    fn process(&self, signal: Signal, request: &Bytes, _: &Metadata, _: usize) -> Edited {
        self.0.lock().extend(count(signal, request));
        Ok(Ok(None))
    }

    fn fingerprint(&self) -> u64 {
        7
    }

    fn is_repeatable(&self) -> bool {
        false
    }
}

/// Scenario: requests get smaller because they are late, while frames still come that pass a step
/// that compares items. Guarantee: it sees each frame as a whole, and only requests are smaller.
#[tokio::test]
async fn steps_see_as_much_at_once_however_small_requests_are() {
    const MANY: u32 = 12;
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("slow", &log);
    let payload = request().leak();
    for _ in 0..MANY {
        append_frame(&log, &[delivery.cursor], None, frame(SPANS, payload));
    }
    let all = SPANS as usize;
    let batch = BatchPolicy { max_items: all, full_items: all, ..policy().batch };
    let concurrency = ConcurrencyLimits { initial: 1, max: 1 };
    let dispatch = DispatchPolicy { batch, concurrency, least_items: Some(2), ..retried(SOON) };
    let compared = Arc::<Mutex<Vec<u32>>>::default();
    let step = Step {
        id: "compares".to_owned(),
        place: String::new(),
        fingerprint: 7,
        processor: Box::new(Compares(compared.clone())),
        counters: ArcSwap::default(),
    };
    let seen = Arc::<Mutex<Vec<u32>>>::default();
    let _stop = start_with(&delivery, Slow(seen.clone()), vec![Arc::new(step)], dispatch);
    let resolved = timeout(Duration::from_secs(60), until_all_is_resolved(&delivery)).await;
    resolved.expect("all is resolved");
    assert_eq!(*compared.lock(), [SPANS; MANY as usize]);
    let sent = delivery.stats.sent_items.load(Ordering::Relaxed);
    assert_eq!((sent, delivery.dead_letters.totals().letters), (u64::from(MANY * SPANS), 0));
}

/// Never answers. When it gets its second request, memory is short.
struct Gone {
    delivery: Arc<Delivery>,
    requests: AtomicUsize,
}

impl Exporter for Gone {
    fn send<'a>(&'a self, _: &'a Packed) -> BoxFuture<'a, Outcome> {
        if self.requests.fetch_add(1, Ordering::Relaxed) == 1 {
            self.delivery.private_limits.set(u64::MAX, 1, 1);
        }
        Box::pin(pending())
    }

    fn timeout(&self) -> Duration {
        Duration::ZERO
    }
}

/// Scenario: a request of one inflated frame or of two is late twice and is cut, memory has become
/// short, and the parts wait for an hour. Guarantee: they keep no copies meanwhile.
#[tokio::test]
async fn parts_of_a_late_request_keep_no_copies_while_they_wait() {
    let inflated = request();
    let uncompressed_len_bytes = inflated.len();
    let bytes = compress(Encoding::Gzip, &[inflated.into()], None).expect("is compressed");
    let payload = Payload { bytes, encoding: Encoding::Gzip, uncompressed_len_bytes };
    for frames in [1, 2] {
        let log = Arc::<Log<Entry>>::default();
        let delivery = delivery("gone", &log);
        for _ in 0..frames {
            let frame = Frame { payload: payload.clone(), ..frame(SPANS, b"") };
            append_frame(&log, &[delivery.cursor], None, frame);
        }
        let all = frames * SPANS as usize;
        let batch = BatchPolicy { max_items: all, full_items: all, ..policy().batch };
        let hour = Duration::from_secs(3600);
        let dispatch = DispatchPolicy { batch, least_items: Some(2), ..retried(hour) };
        let backend = Gone { delivery: delivery.clone(), requests: AtomicUsize::default() };
        let _stop = start_with(&delivery, backend, Vec::new(), dispatch);
        let is_cut = async {
            while delivery.stats.waiting.load(Ordering::Relaxed) < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(60), is_cut).await.expect("is cut");
        assert_eq!(delivery.private.used_bytes(), 0, "{frames} frames");
    }
}
