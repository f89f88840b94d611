//! Backends that do not answer large requests in time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_flow::dispatch::{Backoff, BatchPolicy, DispatchPolicy, RetryPolicy};
use sluice_flow::{BoxFuture, Exporter, Outcome, PackError, Packed};
use sluice_log::Log;
use sluice_otlp::{Encoding, Signal};
use tokio::time::timeout;

use super::tests::{
    append_frame, delivery, frame, message, policy, start_with, until_all_is_resolved,
};
use crate::entry::Entry;

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

/// Scenario: a batch of several frames, and each of these, is more than the backend takes in time.
/// Guarantee: all of it is delivered in parts, none of which is sent again once it was taken, and
/// no memory stays charged for copies of what was cut.
#[tokio::test]
async fn a_batch_that_is_late_again_and_again_is_cut() {
    let scope = message(0x12, &[0x12, 0].repeat(SPANS as usize));
    let payload: &'static [u8] = message(0x0a, &scope).leak();
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("slow", &log);
    for _ in 0..FRAMES {
        append_frame(&log, &[delivery.cursor], None, frame(SPANS, payload));
    }
    let all = (FRAMES * SPANS) as usize;
    let batch = BatchPolicy { max_items: all, full_items: all, ..policy().batch };
    let pause = Duration::from_millis(1);
    let backoff = Backoff { initial: pause, max: pause, multiplier: 1.0, jitter: 0.0 };
    let retry = RetryPolicy::Explicit { backoff, max_elapsed: None };
    let dispatch = DispatchPolicy { batch, retry, least_items: Some(2), ..policy() };
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
