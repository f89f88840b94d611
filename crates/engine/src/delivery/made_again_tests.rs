//! The work of making a frame again for a small part of it, for requests and for dead letters.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use sluice_flow::dispatch::{Backoff, BatchPolicy, DispatchPolicy, RetryPolicy};
use sluice_flow::{BoxFuture, Exporter, Metadata, Outcome, PackError, Packed};
use sluice_log::Log;
use sluice_otlp::{
    AnyValue, Attributes, Encoding, ItemEditor, NewValue, Signal, View, edit_items_within,
};
use sluice_processors::{Edited, Processor};
use tokio::time::timeout;

use super::tests::{
    append_frame, delivery, frame, message, policy, start_with, until_all_is_resolved,
};
use crate::entry::Entry;
use crate::steps::Step;

const SPANS: u32 = 40;
const NAME_BYTES: usize = 30_000;
const BACKOFF: Backoff = Backoff {
    initial: Duration::from_millis(1),
    max: Duration::from_millis(2),
    multiplier: 1.0,
    jitter: 0.0,
};

#[derive(Default)]
struct Seen {
    runs: AtomicUsize,
    /// Those during which the runtime ran no other task.
    held_up: AtomicUsize,
    runs_at_last_request: AtomicUsize,
}

/// Adds an attribute to each item, once another task has run.
struct Watched(Arc<Seen>);

struct Adds;

impl ItemEditor for Adds {
    fn item(&mut self, _: View<'_>, attributes: &mut Attributes<'_>) {
        let value = AnyValue::String("v".to_owned()).encoded();
        attributes.add(b"k", NewValue::Encoded(&value));
    }
}

impl Processor for Watched {
    fn process(&self, signal: Signal, request: &Bytes, _: &Metadata, limit: usize) -> Edited {
        self.0.runs.fetch_add(1, Ordering::Relaxed);
        let (say, heard) = mpsc::channel();
        tokio::spawn(async move { say.send(()) });
        if heard.recv_timeout(Duration::from_millis(200)).is_err() {
            self.0.held_up.fetch_add(1, Ordering::Relaxed);
        }
        edit_items_within(signal, request, limit, &mut Adds)
    }

    fn fingerprint(&self) -> u64 {
        9
    }
}

/// Refuses each request for now, then for good.
struct Refuses {
    known: Mutex<HashSet<Vec<u8>>>,
    seen: Arc<Seen>,
}

impl Exporter for Refuses {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((chunks, Encoding::Identity))
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        let runs = self.seen.runs.load(Ordering::Relaxed);
        self.seen.runs_at_last_request.store(runs, Ordering::Relaxed);
        let reason = "refused".to_owned();
        let outcome = match self.known.lock().insert(request.chunks.concat()) {
            true => Outcome::RetryAfter { delay: None, reason },
            false => Outcome::Rejected { reason },
        };
        Box::pin(async { outcome })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// Scenario: a large frame is cut into parts of one item, memory is short, and the backend refuses
/// each part, at last for good. Guarantee: making the frame again for a part holds up no other
/// task; the letters of all parts need it made again once.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_large_frame_is_made_again_beside_other_tasks_and_once_for_its_dead_letters() {
    let spans = (0..SPANS).flat_map(|span| {
        let name = format!("{span:02}").repeat(NAME_BYTES / 2);
        message(0x12, &message(0x2a, name.as_bytes()))
    });
    let scope = message(0x12, &spans.collect::<Vec<_>>());
    let payload: &'static [u8] = message(0x0a, &scope).leak();
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("made", &log);
    delivery.dead_letters.set_limit(1 << 30);
    delivery.private_limits.set(u64::MAX, 1024, 1);
    append_frame(&log, &[delivery.cursor], None, frame(SPANS, payload));
    let seen = Arc::<Seen>::default();
    let step = Step {
        id: "watched".to_owned(),
        place: String::new(),
        fingerprint: 9,
        processor: Box::new(Watched(seen.clone())),
        counters: ArcSwap::default(),
    };
    let batch = BatchPolicy { max_items: 1, full_items: 1, ..policy().batch };
    let retry = RetryPolicy::Explicit { backoff: BACKOFF, max_elapsed: None };
    let dispatch = DispatchPolicy { batch, retry, ..policy() };
    let backend = Refuses { known: Mutex::default(), seen: seen.clone() };
    let _stop = start_with(&delivery, backend, vec![Arc::new(step)], dispatch);
    let resolved = timeout(Duration::from_secs(60), until_all_is_resolved(&delivery));
    resolved.await.expect("in time");
    assert_eq!(delivery.dead_letters.totals().letters, u64::from(SPANS));
    let runs = seen.runs.load(Ordering::Relaxed);
    assert!(runs > 2, "something was made again");
    let for_letters = runs - seen.runs_at_last_request.load(Ordering::Relaxed);
    let held_up = seen.held_up.load(Ordering::Relaxed);
    assert!(for_letters <= 1 && held_up == 0, "{for_letters} for letters, {held_up} of {runs}");
}
