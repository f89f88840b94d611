//! Requests of which no part gets small enough, as all of them share a long resource.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_flow::dispatch::{BatchPolicy, DispatchPolicy};
use sluice_flow::{BoxFuture, Exporter, Outcome, PackError, Packed};
use sluice_log::Log;
use sluice_otlp::{Encoding, Signal};
use tokio::time::timeout;

use super::stats::CAUSES;
use super::tests::{
    append_frame, delivery, frame, message, policy, start_with, until_all_is_resolved,
};
use crate::entry::Entry;

const LIMIT_BYTES: usize = 4_000_000;

/// Takes requests up to a limit, which its encoder has or its backend.
struct Limited {
    is_local: bool,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    requests: usize,
    bytes: usize,
}

impl Exporter for Limited {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        let len_bytes = chunks.iter().map(Bytes::len).sum::<usize>();
        let mut seen = self.seen.lock();
        (seen.requests, seen.bytes) = (seen.requests + 1, seen.bytes + len_bytes);
        if self.is_local && len_bytes > LIMIT_BYTES {
            return Err(PackError::TooLarge("too large".to_owned()));
        }
        Ok((chunks, Encoding::Identity))
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        let outcome = match request.len_bytes > LIMIT_BYTES {
            true => Outcome::TooLarge { reason: "too large".to_owned() },
            false => Outcome::Delivered,
        };
        Box::pin(async { outcome })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// A resource whose header has this length, and one scope with empty records.
fn resource(header_bytes: usize, records: u32) -> Vec<u8> {
    let header = message(0x0a, &vec![0xff; header_bytes]);
    let scope = message(0x12, &[0x12, 0].repeat(records as usize));
    message(0x0a, &[header, scope].concat())
}

const RECORDS: u32 = 100_000;
const GOOD: u32 = 5;

#[derive(Debug)]
struct Counts {
    requests: usize,
    /// Bytes of all requests, in lengths of the frame.
    frames: usize,
    letters: u64,
    sent_items: u64,
    dead_items: u64,
}

/// Sends one frame: a resource with a header of this length, and another, short resource behind or
/// before it.
async fn send(header_bytes: usize, max_bytes: usize, is_local: bool, is_behind: bool) -> Counts {
    let mut resources = [resource(header_bytes, RECORDS), resource(10, GOOD)];
    if !is_behind {
        resources.reverse();
    }
    let payload = resources.concat().leak();
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("limited", &log);
    delivery.dead_letters.set_limit(1 << 30);
    append_frame(&log, &[delivery.cursor], None, frame(RECORDS + GOOD, payload));
    let seen = Arc::<Mutex<Seen>>::default();
    let backend = Limited { is_local, seen: seen.clone() };
    let batch = BatchPolicy { max_bytes, full_bytes: max_bytes, ..policy().batch };
    let dispatch = DispatchPolicy { batch, ..policy() };
    let _stop = start_with(&delivery, backend, Vec::new(), dispatch);
    let resolved = timeout(Duration::from_secs(60), until_all_is_resolved(&delivery)).await;
    resolved.expect("all is resolved");
    let too_large = CAUSES.iter().position(|cause| *cause == "too_large").expect("a cause");
    let seen = seen.lock();
    Counts {
        requests: seen.requests,
        frames: seen.bytes.div_ceil(payload.len()),
        letters: delivery.dead_letters.totals().letters,
        sent_items: delivery.stats.sent_items.load(Ordering::Relaxed),
        dead_items: delivery.stats.dead_items[too_large].load(Ordering::Relaxed),
    }
}

/// Scenario: 100,000 empty records share a resource that is too large for a request by itself, with
/// and without cuts before they are sent; another resource is in the same frame. Guarantee: they
/// are a few dead letters after a few requests, and the other resource's items are delivered.
#[tokio::test]
async fn items_below_a_resource_that_is_too_large_are_few_dead_letters() {
    for (max_bytes, is_local, is_behind) in [
        (16 << 20, true, true),
        (16 << 20, true, false),
        (16 << 20, false, true),
        (1 << 20, true, true),
        (1 << 20, false, false),
    ] {
        let counts = send(LIMIT_BYTES + 500_000, max_bytes, is_local, is_behind).await;
        let case = format!("{max_bytes}, {is_local}, {is_behind}: {counts:?}");
        assert_eq!(counts.sent_items, u64::from(GOOD), "{case}");
        assert_eq!(counts.dead_items, u64::from(RECORDS), "{case}");
        assert!(counts.letters <= 3 && counts.requests <= 5 && counts.frames <= 4, "{case}");
    }
}

/// Scenario: as before, but the resource leaves a little room in a request. Guarantee: it is not
/// sent once for each record.
#[tokio::test]
async fn a_resource_that_nearly_fills_requests_is_not_sent_for_each_item() {
    for (header_bytes, max_bytes) in [(LIMIT_BYTES - 200, LIMIT_BYTES), (1 << 20, 1 << 20)] {
        let counts = send(header_bytes, max_bytes, false, true).await;
        assert!(counts.requests <= 5 && counts.frames <= 5, "{header_bytes}: {counts:?}");
        assert_eq!(counts.sent_items + counts.dead_items, u64::from(RECORDS + GOOD));
    }
}
