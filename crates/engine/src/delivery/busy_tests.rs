//! A delivery whose own processors take all the time of its task.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_flow::{Metadata, Outcome};
use sluice_log::Log;
use sluice_otlp::Signal;
use sluice_processors::{Edited, Processor};

use super::tests::{append, delivery, start, until_all_is_resolved};
use crate::entry::Entry;
use crate::steps::Step;

/// Computes for 20 ms over every frame.
struct Computes;

impl Processor for Computes {
    fn process(&self, _: Signal, _: &Bytes, _: &Metadata, _: usize) -> Edited {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(20) {}
        Ok(Ok(None))
    }

    fn fingerprint(&self) -> u64 {
        8
    }
}

/// Scenario: a delivery's own processors have more to do than one core can. Guarantee: its answers
/// are read meanwhile; it counts as short of CPU until it has nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_whose_own_work_takes_its_time_is_short_of_cpu() {
    let log = Arc::<Log<Entry>>::default();
    let delivery = delivery("busy", &log);
    (0..50).for_each(|_| append(&log, &[delivery.cursor], None));
    let processor = Box::new(Computes);
    let (id, place, counters) = ("computes".to_owned(), String::new(), Default::default());
    let step = Step { id, place, fingerprint: 8, processor, counters };
    let _stop = start(&delivery, Outcome::Delivered, vec![Arc::new(step)]);
    let is_short = |after| delivery.health.judge(Instant::now() + after, false).is_short_of_cpu;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(is_short(Duration::ZERO));
    let left = log.held(delivery.cursor).frames;
    assert!((1..50).contains(&left), "{left} frames are left");
    until_all_is_resolved(&delivery).await;
    assert!(!is_short(Duration::from_secs(3)));
}
