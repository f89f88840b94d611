//! A task that waits: how often it looks for something to do.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_flow::dispatch::{Backoff, DispatchPolicy, RetryPolicy, State};
use sluice_flow::overload::Sheds;
use sluice_flow::{BoxFuture, Exporter, Frame, Outcome, Packed, Payload};
use sluice_log::Log;
use sluice_net::compress::compress;
use sluice_otlp::Encoding;
use tokio::sync::watch;

use super::tests::{append, append_frame, delivery, frame, policy, start_with};
use super::{Delivery, Stop};
use crate::entry::Entry;
use crate::private_memory::ChargedMemory;

const COPY_BYTES: usize = 10_000;

/// Takes none of so many requests, then hangs.
struct Dead {
    refusals: usize,
    requests: AtomicUsize,
}

impl Exporter for Dead {
    fn send<'a>(&'a self, _: &'a Packed) -> BoxFuture<'a, Outcome> {
        let is_refused = self.requests.fetch_add(1, Ordering::Relaxed) < self.refusals;
        Box::pin(async move {
            if !is_refused {
                pending::<()>().await;
            }
            Outcome::RetryAfter { delay: None, reason: "503".to_owned() }
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(3600)
    }
}

/// A delivery with a frame, and memory that others use.
fn delivery_without_memory() -> (Arc<Delivery>, ChargedMemory) {
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("dead", &log);
    delivery.private_limits.set(u64::MAX, 1_000, 10);
    append(&log, &[delivery.cursor], None);
    let used = delivery.private.charge(1_000);
    (delivery, used)
}

/// A frame of which a copy is needed, for which there is no memory.
fn append_large(delivery: &Delivery) {
    let bytes = compress(Encoding::Gzip, &[Bytes::from(vec![7; COPY_BYTES])], None);
    let bytes = bytes.expect("is compressed");
    let payload = Payload { bytes, encoding: Encoding::Gzip, uncompressed_len_bytes: COPY_BYTES };
    append_frame(&delivery.log, &[delivery.cursor], None, Frame { payload, ..frame(1, b"") });
    delivery.wake.notify_one();
}

/// Starts it, and waits until its backend is in an outage.
async fn start(delivery: &Arc<Delivery>, refusals: usize) -> watch::Sender<Stop> {
    let pause = Duration::from_millis(1);
    let backoff = Backoff { initial: pause, max: pause, multiplier: 1.0, jitter: 0.0 };
    let retry = RetryPolicy::Explicit { backoff, max_elapsed: None };
    let backend = Dead { refusals, requests: AtomicUsize::default() };
    let stop = start_with(delivery, backend, Vec::new(), DispatchPolicy { retry, ..policy() });
    while *delivery.stats.state.lock() == State::Open {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop
}

/// A task that waits for memory looks again each 50 ms; one that is kept busy, thousands of times.
async fn turns_are_few(delivery: &Delivery) {
    let turns = || delivery.stats.turns.load(Ordering::Relaxed);
    let (before, began) = (turns(), Instant::now());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (turns, elapsed) = (turns() - before, began.elapsed());
    assert!(u128::from(turns) <= 20 + elapsed.as_millis() / 40, "{turns} in {elapsed:?}");
}

/// Scenario: a backend is dead, what its delivery had to send was shed, and another frame waits for
/// memory. Guarantee: the task is not busy once the time of the next probe has passed.
#[tokio::test]
async fn a_task_that_has_nothing_to_probe_with_is_not_busy() {
    let (delivery, _used) = delivery_without_memory();
    let _stop = start(&delivery, usize::MAX).await;
    delivery.gauges.allow(Sheds::Everything);
    while delivery.log.held(delivery.cursor).frames > 0 {
        delivery.shed_wanted_bytes.store(u64::MAX, Ordering::Relaxed);
        delivery.wake.notify_one();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    append_large(&delivery);
    turns_are_few(&delivery).await;
    assert_eq!(delivery.log.held(delivery.cursor).frames, 1);
}

/// Scenario: a frame waits for memory, and meanwhile a probe of a dead backend hangs. Guarantee:
/// the task is not busy once the time has passed at which it wanted to look for memory.
#[tokio::test]
async fn a_task_that_waits_for_memory_and_an_answer_is_not_busy() {
    let (delivery, _used) = delivery_without_memory();
    append_large(&delivery);
    let _stop = start(&delivery, 32).await;
    while delivery.stats.sent_at.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    turns_are_few(&delivery).await;
    assert_eq!(delivery.log.held(delivery.cursor).frames, 2);
}
