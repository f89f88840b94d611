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
const FRAMES: usize = 3;
const BACKOFF: Backoff = Backoff {
    initial: Duration::from_millis(5),
    max: Duration::from_millis(20),
    multiplier: 2.0,
    jitter: 0.25,
};

/// Adds an attribute to each item: always the same value, or another one for each request.
struct Adds {
    value_bytes: usize,
    is_repeatable: bool,
    requests: AtomicUsize,
}

struct AddsValue(String);

impl ItemEditor for AddsValue {
    fn item(&mut self, _: View<'_>, attributes: &mut Attributes<'_>) {
        let value = AnyValue::String(self.0.clone()).encoded();
        attributes.add(b"k", NewValue::Encoded(&value));
    }
}

impl Processor for Adds {
    fn process(&self, signal: Signal, request: &Bytes, _: &Metadata, limit: usize) -> Edited {
        let letter = match self.is_repeatable {
            true => "v",
            false => ["a", "b", "c"][self.requests.fetch_add(1, Ordering::Relaxed) % 3],
        };
        let mut adds = AddsValue(letter.repeat(self.value_bytes));
        edit_items_within(signal, request, limit, &mut adds)
    }

    fn fingerprint(&self) -> u64 {
        9
    }

    fn is_repeatable(&self) -> bool {
        self.is_repeatable
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

/// A resource with an attribute, and a scope with spans that have names.
fn request(spans: u32, name_bytes: usize) -> Vec<u8> {
    let resource = message(0x0a, &message(0x0a, &message(0x0a, &[b'r'; 3_000])));
    let spans = (0..spans).flat_map(|span| {
        let name = format!("{span:02}").repeat(name_bytes / 2);
        message(0x12, &message(0x2a, name.as_bytes()))
    });
    let scope = message(0x12, &spans.collect::<Vec<_>>());
    message(0x0a, &[resource, scope].concat())
}

/// The request as the steps make it, in parts of one item, whatever values they added.
fn items(request: &Bytes) -> Vec<Vec<u8>> {
    let limits = SplitLimits { max_items: 1, max_bytes: usize::MAX };
    let parts = split(Signal::Traces, request, limits).expect("is valid");
    let any_value = |byte: &u8| if b"abc".contains(byte) { b'v' } else { *byte };
    parts.into_iter().map(|part| part.bytes.iter().map(any_value).collect()).collect()
}

struct Case {
    max_items: usize,
    is_repeatable: bool,
    spans: u32,
    name_bytes: usize,
    value_bytes: usize,
    /// The memory for copies, in results of the steps for one frame.
    limit_results: f64,
    /// The most that is used of it, in the same.
    most_results: f64,
}

const LONG_NAMES: Case = Case {
    max_items: 0,
    is_repeatable: true,
    spans: 50,
    name_bytes: 2_000,
    value_bytes: 100,
    limit_results: 3.0,
    most_results: 6.0,
};
/// The steps make forty times as much of it, so that it passes them in slices.
const GROWS: Case = Case {
    spans: 12_000,
    name_bytes: 2,
    value_bytes: 300,
    limit_results: 0.5,
    most_results: 2.0,
    ..LONG_NAMES
};

/// Scenario: large frames come while all backends are away, and each delivery makes copies of its
/// own, some cut into parts. Guarantee: together they keep few copies; when the backends are back,
/// each gets every item once, as its steps make it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_let_go_of_while_backends_are_away_and_made_again() {
    let_go_and_make_again(LONG_NAMES).await;
    let_go_and_make_again(Case { max_items: 20, ..LONG_NAMES }).await;
}

/// The same for steps that make something else each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_are_made_in_another_way_the_next_time_are_let_go_of() {
    let changes = Case { is_repeatable: false, ..LONG_NAMES };
    let_go_and_make_again(Case { max_items: 20, ..changes }).await;
    let_go_and_make_again(changes).await;
}

/// The same for frames that grow so much that they pass the steps in slices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_slices_are_let_go_of() {
    let_go_and_make_again(GROWS).await;
    let_go_and_make_again(Case { is_repeatable: false, max_items: 5_000, ..GROWS }).await;
}

async fn let_go_and_make_again(case: Case) {
    let Case { max_items, is_repeatable, value_bytes, spans, .. } = case;
    let adds = || Adds { value_bytes, is_repeatable, requests: AtomicUsize::default() };
    let log = Arc::<Log<Entry>>::default();
    let request: &'static [u8] = request(spans, case.name_bytes).leak();
    let (whole, metadata) = (Bytes::from_static(request), Metadata::default());
    let Ok(Ok(Some(made))) = adds().process(Signal::Traces, &whole, &metadata, usize::MAX) else {
        panic!("has a result")
    };
    let results_bytes = |count: f64| (count * made.len() as f64) as u64;
    let all = Arc::<CommonMemory>::default();
    let deliveries = std::array::from_fn::<_, DELIVERIES, _>(|number| {
        let id = DeliveryId { pipeline: "traces".to_owned(), exporter: number.to_string() };
        let (receiving, private) = (ReceivingBudget::new(0), PrivateMemory::new(all.clone()));
        let memory = SharedMemory { receiving, private, sending: Arc::default() };
        let letters = DeadLetters::in_memory(1 << 20);
        let delivery = Delivery::new(id, Signal::Traces, log.clone(), letters, memory, false);
        let limit_bytes = results_bytes(case.limit_results);
        delivery.private_limits.set(u64::MAX, limit_bytes, DELIVERIES);
        Arc::new(delivery)
    });
    let cursors = deliveries.each_ref().map(|delivery| delivery.cursor);
    for _ in 0..FRAMES {
        append_frame(&log, &cursors, None, frame(spans, request));
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
            processor: Box::new(adds()),
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
    let mut expected = vec![items(&made); FRAMES].concat();
    expected.sort();
    for (_, taken) in &started {
        let mut taken: Vec<_> = taken.lock().iter().flat_map(items).collect();
        taken.sort();
        assert_eq!(taken.len(), expected.len());
        assert!(taken == expected);
    }
    let most_bytes = most.await.expect("ends");
    assert!(
        most_bytes <= results_bytes(case.most_results),
        "{most_bytes} bytes, the steps make {} bytes of a frame",
        made.len()
    );
    assert_eq!(all.used_bytes(), 0);
}
