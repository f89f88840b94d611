//! Copies that cannot be made again, of a backend that is away, and large frames of another.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use sluice_flow::dispatch::{Backoff, DispatchPolicy, RetryPolicy};
use sluice_flow::{BoxFuture, Exporter, Metadata, Outcome, PackError, Packed};
use sluice_log::Log;
use sluice_otlp::{
    AnyValue, Attributes, Encoding, ItemEditor, NewValue, Signal, View, edit_items_within,
};
use sluice_processors::{Edited, Processor};
use tokio::time::timeout;

use super::tests::{append_frame, frame, message, policy, start_with, until_all_is_resolved};
use super::{DeadLetters, Delivery, DeliveryId, SharedMemory};
use crate::entry::Entry;
use crate::private_memory::{CommonMemory, PrivateMemory};
use crate::receiving::ReceivingBudget;
use crate::steps::Step;

struct Adds;

impl ItemEditor for Adds {
    fn item(&mut self, _: View<'_>, attributes: &mut Attributes<'_>) {
        let value = AnyValue::String("v".to_owned()).encoded();
        attributes.add(b"k", NewValue::Encoded(&value));
    }
}

/// Adds an attribute. Whether that can be made again.
struct Once(bool);

impl Processor for Once {
    fn process(&self, signal: Signal, request: &Bytes, _: &Metadata, limit: usize) -> Edited {
        edit_items_within(signal, request, limit, &mut Adds)
    }
    fn fingerprint(&self) -> u64 {
        9
    }
    fn is_repeatable(&self) -> bool {
        self.0
    }
}

/// Takes everything; or refuses two items together for good, and is away otherwise.
struct Answers(bool);

impl Exporter for Answers {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((chunks, Encoding::Identity))
    }
    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        let outcome = match self.0 {
            true => Outcome::Delivered,
            false if request.items == 2 => Outcome::Rejected { reason: "bad".to_owned() },
            false => Outcome::RetryAfter { delay: None, reason: "away".to_owned() },
        };
        Box::pin(async { outcome })
    }
    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// Scenario: a backend is away that has refused requests, so that its delivery has large copies
/// that were cut and cannot be made again. Guarantee: a large frame of another delivery is
/// delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_are_kept_do_not_keep_out_large_frames_of_another_delivery() {
    let span = message(0x12, &message(0x2a, &[b'n'; 100_000]));
    let payload: &'static [u8] = message(0x0a, &message(0x12, &span)).leak();
    let two: &'static [u8] = message(0x0a, &message(0x12, &[&span[..], &span].concat())).leak();
    let all = Arc::<CommonMemory>::default();
    let log = Arc::<Log<Entry>>::default();
    let deliveries = ["sick", "well"].map(|name| {
        let id = DeliveryId { pipeline: "traces".to_owned(), exporter: name.to_owned() };
        let (receiving, private) = (ReceivingBudget::new(0), PrivateMemory::new(all.clone()));
        let memory = SharedMemory { receiving, private, sending: Arc::default() };
        let letters = DeadLetters::in_memory(1 << 20);
        let delivery =
            Arc::new(Delivery::new(id, Signal::Traces, log.clone(), letters, memory, false));
        // As the engine sets them: a delivery may have half of all, of which each has a tenth.
        delivery.private_limits.set(100_000, 200_000, 10);
        delivery
    });
    let [sick, well] = &deliveries;
    for _ in 0..2 {
        append_frame(&log, &[sick.cursor], None, frame(2, two));
    }
    let backoff = Backoff {
        initial: Duration::from_millis(1),
        max: Duration::from_millis(2),
        multiplier: 1.0,
        jitter: 0.0,
    };
    let retry = RetryPolicy::Explicit { backoff, max_elapsed: None };
    let dispatch = DispatchPolicy { retry, ..policy() };
    let step = |again| {
        let (id, processor) = ("adds".to_owned(), Box::new(Once(again)));
        let (place, counters) = (String::new(), ArcSwap::default());
        vec![Arc::new(Step { id, place, fingerprint: 9, processor, counters })]
    };
    let _sick = start_with(sick, Answers(false), step(false), dispatch);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(all.used_bytes() > 200_000, "its copies are kept: {all:?}");
    append_frame(&log, &[well.cursor], None, frame(1, payload));
    let _well = start_with(well, Answers(true), step(true), dispatch);
    let resolved = timeout(Duration::from_secs(10), until_all_is_resolved(well)).await;
    assert!(resolved.is_ok(), "{all:?} of a limit of 200000 are used");
}
