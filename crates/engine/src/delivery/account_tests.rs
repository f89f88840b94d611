//! The account of a delivery while its backend takes only parts of frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sluice_flow::dispatch::{BatchPolicy, RetryPolicy};
use sluice_flow::{BoxFuture, Exporter, ItemNames, Outcome, PackError, Packed, Taken};
use sluice_log::Log;
use sluice_otlp::{Encoding, Signal};

use super::tests::{append_frame, delivery, frame, message, policy, start_with};
use super::{Delivery, Stop};
use crate::entry::Entry;

/// Takes so many requests, and then none. Each item has the name `span`.
#[derive(Clone)]
struct Takes {
    left: Arc<AtomicU32>,
    refusal: Outcome,
}

impl Takes {
    fn new(requests: u32, refusal: Outcome) -> Takes {
        Takes { left: Arc::new(AtomicU32::new(requests)), refusal }
    }
}

impl Exporter for Takes {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((chunks, Encoding::Identity))
    }

    fn send<'a>(&'a self, _: &'a Packed) -> BoxFuture<'a, Outcome> {
        let one_less = |left: u32| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        let outcome = if left.is_ok() { Outcome::Delivered } else { self.refusal.clone() };
        Box::pin(async { outcome })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn item_names(&self) -> Option<&dyn ItemNames> {
        Some(self)
    }
}

impl ItemNames for Takes {
    fn of_packed(&self, request: &Packed, count: &mut dyn FnMut(&[u8], Taken)) {
        count(b"span", Taken { items: u64::from(request.items), left_out: 0 });
    }

    fn of_request(&self, request: &[u8], count: &mut dyn FnMut(&[u8], u64)) {
        count(b"span", sluice_otlp::count(Signal::Traces, request).map_or(0, u64::from));
    }
}

/// Written and dead by name, and waiting.
fn figures(delivery: &Delivery) -> [u64; 3] {
    let account = &delivery.account;
    let held = delivery.log.held(delivery.cursor).items;
    let [written, dead] = [&account.of_now.written, &account.of_now.dead].map(|it| it.read());
    [written.of("span"), dead.of("span"), account.waiting(held)]
}

async fn becomes(delivery: &Delivery, expected: [u64; 3]) {
    for _ in 0..5_000 {
        if figures(delivery) == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{:?}, not {expected:?}", figures(delivery));
}

/// A delivery with a frame of four items, each of which is sent alone.
fn with_frame() -> (Arc<Log<Entry>>, Arc<Delivery>) {
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("a", &log);
    let spans = message(0x12, &message(0x2a, b"name")).repeat(4);
    let payload = message(0x0a, &message(0x12, &spans)).leak();
    append_frame(&log, &[delivery.cursor], None, frame(4, payload));
    (log, delivery)
}

fn one_by_one(retry: RetryPolicy) -> sluice_flow::dispatch::DispatchPolicy {
    let batch = BatchPolicy { max_items: 1, full_items: 1, ..policy().batch };
    sluice_flow::dispatch::DispatchPolicy { batch, retry, in_order: true, ..policy() }
}

/// Scenario: of a frame two parts are taken, then the backend is away; the delivery hands over and
/// all of the frame is sent again. Guarantee: parts that were taken do not wait; what is sent again
/// is told, so that the sum is right at each moment.
#[tokio::test]
async fn parts_that_were_taken_do_not_wait() {
    let (_log, delivery) = with_frame();
    let away = Outcome::RetryAfter { delay: None, reason: "away".to_owned() };
    let stop =
        start_with(&delivery, Takes::new(2, away), Vec::new(), one_by_one(RetryPolicy::default()));
    becomes(&delivery, [2, 0, 2]).await;
    assert_eq!(delivery.account.again.load(Ordering::Relaxed), 0);
    stop.send_replace(Stop::HandOver);
    becomes(&delivery, [2, 0, 4]).await;
    assert_eq!(delivery.account.again.load(Ordering::Relaxed), 2);
    let all = Takes::new(9, Outcome::Delivered);
    let _stop = start_with(&delivery, all, Vec::new(), one_by_one(RetryPolicy::default()));
    becomes(&delivery, [6, 0, 0]).await;
}

/// Scenario: of a frame a part is taken, and the others are refused for good. Guarantee: they are
/// dead, by name.
#[tokio::test]
async fn parts_that_are_refused_are_dead() {
    let (_log, delivery) = with_frame();
    let refused = Outcome::Rejected { reason: "bad".to_owned() };
    let _stop = start_with(
        &delivery,
        Takes::new(1, refused),
        Vec::new(),
        one_by_one(RetryPolicy::Disabled),
    );
    becomes(&delivery, [1, 3, 0]).await;
    assert_eq!(delivery.account.dead_items.load(Ordering::Relaxed), 3);
}
