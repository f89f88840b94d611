//! Requests that are packed anew for their backends. The copies are held until an answer comes.

use std::time::Duration;

use bytes::Bytes;
use sluice_load_test::Faults;
use sluice_otlp::Signal;
use tokio::task::JoinSet;

use crate::peers::{post, post_head, random_log_of};
use crate::scene::{DEAD_LOGS, Scene};
use crate::{Target, withstand};

withstand!(
    packed_for_a_backend_that_hangs in Scene { faults: Faults::stalled, ..FOUR_PACKERS }.reaches(
        // A request of each delivery.
        "sluice_delivery_in_flight_copies_bytes", &[], 4.0 * BODY_BYTES as f64,
    ),
    packed_for_a_slow_backend in Scene { faults: slow, ..FOUR_PACKERS }.reaches(
        "sluice_delivery_sent_bytes_total", &[], 8.0 * BODY_BYTES as f64,
    ),
);

const BODY_BYTES: usize = 3 << 20;

const FOUR_PACKERS: Scene = Scene {
    config: "exporters:
  otlp/a: {endpoint: '${env:BACKEND}', compression: gzip, tls: {insecure: true}}
  otlp/b: {endpoint: '${env:BACKEND}', compression: zstd, tls: {insecure: true}}
  otlp/c: {endpoint: '${env:BACKEND}', compression: gzip, tls: {insecure: true}}
  otlp/d: {endpoint: '${env:BACKEND}', compression: zstd, tls: {insecure: true}}
service: {pipelines: {logs: {exporters: [otlp/a, otlp/b, otlp/c, otlp/d]}}}",
    ..DEAD_LOGS
};

fn slow() -> Faults {
    Faults { discard: true, ..Faults::delaying(Duration::from_millis(500)) }
}

/// Bodies that packing makes no smaller.
async fn post_large(target: Target) {
    const SENDERS: usize = 4;
    let body = Bytes::from(random_log_of(BODY_BYTES));
    let head = post_head(Signal::Logs, "", body.len());
    let attackers = (0..SENDERS).map(|_| {
        let (head, body) = (head.clone(), body.clone());
        async move {
            loop {
                post(target.http, &head, &body).await;
            }
        }
    });
    attackers.collect::<JoinSet<()>>().join_all().await;
}

async fn packed_for_a_backend_that_hangs(target: Target) {
    post_large(target).await;
}

async fn packed_for_a_slow_backend(target: Target) {
    post_large(target).await;
}
