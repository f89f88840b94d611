//! Backends that hang, and large requests of another one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sluice_flow::{BoxFuture, Exporter, Outcome, PackError, Packed};
use sluice_log::Log;
use sluice_otlp::{Encoding, Signal};
use tokio::time::timeout;

use super::tests::until_all_is_resolved;
use super::tests::{append_frame, delivery, frame, message, policy, start_beside};
use crate::entry::Entry;
use crate::large_work::LargeWork;

const NAME_BYTES: usize = 400_000;

/// Takes everything, or gives no answer. What it packs is a copy.
struct Answers(bool);

impl Exporter for Answers {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        Ok((vec![chunks.concat().into()], Encoding::Gzip))
    }

    fn packing_bytes(&self, bytes: usize, _: usize) -> usize {
        bytes
    }

    fn send<'a>(&'a self, _: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(async {
            match self.0 {
                true => Outcome::Delivered,
                false => std::future::pending().await,
            }
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(3600)
    }
}

/// Scenario: two backends hang, and their requests take all turns for large copies. Guarantee:
/// another one gets its large requests all the same, before they end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_that_hang_keep_no_large_request_of_another_back() {
    let span = message(0x12, &message(0x2a, &[b'n'; NAME_BYTES]));
    let payload: &'static [u8] = message(0x0a, &message(0x12, &span)).leak();
    let (log, large_work) = (Arc::<Log<Entry>>::default(), Arc::<LargeWork>::default());
    large_work.set_copies(5 * NAME_BYTES as u64 / 2);
    let start = |name: &str, answers: bool, frames: usize| {
        let delivery = delivery(name, &log);
        delivery.sending_limit_bytes.store(1, Ordering::Relaxed);
        for _ in 0..frames {
            append_frame(&log, &[delivery.cursor], None, frame(1, payload));
        }
        let stop = start_beside(&delivery, Answers(answers), vec![], policy(), large_work.clone());
        (delivery, stop)
    };
    let hung = ["hung/1", "hung/2"].map(|name| start(name, false, 1));
    for (delivery, _) in &hung {
        while delivery.stats.sent_at.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (well, _stop) = start("well", true, 3);
    let resolved = timeout(Duration::from_secs(30), until_all_is_resolved(&well)).await;
    assert!(resolved.is_ok(), "it waits for those that hang");
    let left = hung.each_ref().map(|(delivery, _)| log.held(delivery.cursor).frames);
    assert_eq!(left, [1, 1]);
}
