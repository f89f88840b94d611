//! Deliveries with steps of their own, whose copies of large frames do not fit into memory
//! together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use sluice_flow::dispatch::{Backoff, BatchPolicy, DispatchPolicy, RetryPolicy};
use sluice_flow::{BoxFuture, Exporter, Metadata, Outcome, PackError, Packed};
use sluice_log::Log;
use sluice_otlp::{
    AnyValue, Attributes, Encoding, ItemEditor, NewValue, Signal, SplitLimits, View,
    edit_items_within, split,
};
use sluice_processors::{Edited, Processor};
use tokio::time::timeout;

use super::tests::{append_frame, frame, message, policy, start_with, until_all_is_resolved};
use super::{DeadLetters, Delivery, DeliveryId, SharedMemory};
use crate::entry::Entry;
use crate::private_memory::{CommonMemory, PrivateMemory};
use crate::receiving::ReceivingBudget;
use crate::steps::Step;

const DELIVERIES: usize = 12;
const SPANS: u32 = 50;
const NAME_BYTES: usize = 2_000;
const BACKOFF: Backoff = Backoff {
    initial: Duration::from_millis(5),
    max: Duration::from_millis(20),
    multiplier: 2.0,
    jitter: 0.25,
};

/// Adds an attribute to each item.
struct Adds;

impl ItemEditor for Adds {
    fn item(&mut self, _: View<'_>, attributes: &mut Attributes<'_>) {
        let value = AnyValue::String("v".repeat(100)).encoded();
        attributes.add(b"k", NewValue::Encoded(&value));
    }
}

impl Processor for Adds {
    fn process(&self, signal: Signal, request: &Bytes, _: &Metadata, limit: usize) -> Edited {
        edit_items_within(signal, request, limit, &mut Adds)
    }

    fn fingerprint(&self) -> u64 {
        9
    }
}

/// Refuses so many requests for now, then takes all.
struct Recovers {
    refusals_left: AtomicUsize,
    taken: Arc<Mutex<Vec<Bytes>>>,
}

impl Exporter for Recovers {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((chunks, Encoding::Identity))
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        let one_less = |left: usize| left.checked_sub(1);
        let left = &self.refusals_left;
        let outcome = match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
            Ok(_) => Outcome::RetryAfter { delay: None, reason: "away".to_owned() },
            Err(_) => {
                self.taken.lock().push(request.chunks.concat().into());
                Outcome::Delivered
            }
        };
        Box::pin(async { outcome })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// A resource with an attribute, and a scope with spans that have long names.
fn request() -> Vec<u8> {
    let resource = message(0x0a, &message(0x0a, &message(0x0a, &[b'r'; 3_000])));
    let spans = (0..SPANS).flat_map(|span| {
        let name = format!("{span:02}").repeat(NAME_BYTES / 2);
        message(0x12, &message(0x2a, name.as_bytes()))
    });
    let scope = message(0x12, &spans.collect::<Vec<_>>());
    message(0x0a, &[resource, scope].concat())
}

/// The request as the steps make it, in parts of one item.
fn items(request: &Bytes) -> Vec<Bytes> {
    let limits = SplitLimits { max_items: 1, max_bytes: usize::MAX };
    let parts = split(Signal::Traces, request, limits).expect("is valid");
    parts.into_iter().map(|part| part.bytes).collect()
}

/// Scenario: large frames come while all backends are away, and each delivery makes copies of its
/// own, some cut into parts. Guarantee: together they keep few copies; when the backends are back,
/// each gets every item once, as its steps make it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_let_go_of_while_backends_are_away_and_made_again() {
    for max_items in [0, 20] {
        let log = Arc::<Log<Entry>>::default();
        let request: &'static [u8] = request().leak();
        let all = Arc::<CommonMemory>::default();
        let deliveries = std::array::from_fn::<_, DELIVERIES, _>(|number| {
            let id = DeliveryId { pipeline: "traces".to_owned(), exporter: number.to_string() };
            let (receiving, private) = (ReceivingBudget::new(0), PrivateMemory::new(all.clone()));
            let memory = SharedMemory { receiving, private, sending: Arc::default() };
            let letters = DeadLetters::in_memory(1 << 20);
            let delivery = Delivery::new(id, Signal::Traces, log.clone(), letters, memory, false);
            delivery.private_limits.set(u64::MAX, 3 * request.len() as u64, DELIVERIES);
            Arc::new(delivery)
        });
        let cursors = deliveries.each_ref().map(|delivery| delivery.cursor);
        for _ in 0..3 {
            append_frame(&log, &cursors, None, frame(SPANS, request));
        }
        let watched = all.clone();
        let most = tokio::spawn(async move {
            let mut most_bytes = 0;
            for _ in 0..1_500 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                most_bytes = watched.used_bytes().max(most_bytes);
            }
            most_bytes
        });
        let batch = BatchPolicy { max_items, full_items: max_items, ..policy().batch };
        let retry = RetryPolicy::Explicit { backoff: BACKOFF, max_elapsed: None };
        let dispatch = DispatchPolicy { batch, retry, ..policy() };
        let started = deliveries.each_ref().map(|delivery| {
            let step = Step {
                id: "adds".to_owned(),
                place: String::new(),
                fingerprint: 9,
                processor: Box::new(Adds),
                counters: ArcSwap::default(),
            };
            let taken = Arc::<Mutex<Vec<Bytes>>>::default();
            let backend = Recovers { refusals_left: AtomicUsize::new(34), taken: taken.clone() };
            (start_with(delivery, backend, vec![Arc::new(step)], dispatch), taken)
        });
        for delivery in &deliveries {
            let resolved = timeout(Duration::from_secs(60), until_all_is_resolved(delivery));
            resolved.await.expect("in time");
        }
        let mut expected = match Adds.process(
            Signal::Traces,
            &Bytes::from_static(request),
            &Metadata::default(),
            usize::MAX,
        ) {
            Ok(Ok(Some(made))) => [(); 3].map(|()| items(&made)).concat(),
            _ => panic!("has a result"),
        };
        expected.sort();
        for (_, taken) in &started {
            let mut taken: Vec<_> = taken.lock().iter().flat_map(items).collect();
            taken.sort();
            assert_eq!(taken.len(), expected.len(), "{max_items} items a request");
            assert!(taken == expected, "{max_items} items a request");
        }
        let (most_bytes, request_bytes) = (most.await.expect("ends"), request.len() as u64);
        assert!(
            most_bytes <= 6 * request_bytes,
            "{max_items} items a request: {most_bytes} bytes, a request has {request_bytes}"
        );
        assert_eq!(all.used_bytes(), 0);
    }
}
