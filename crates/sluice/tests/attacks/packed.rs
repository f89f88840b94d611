//! Requests that are packed anew for their backends. The copies are held until an answer comes.

use sluice_load_test::Faults;

use crate::peers::{post_for_ever, random_log_of};
use crate::scene::{DEAD_LOGS, Scene, slow};
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

/// Bodies that packing makes no smaller.
async fn post_large(target: Target) {
    const SENDERS: usize = 4;
    post_for_ever(target, SENDERS, "", random_log_of(BODY_BYTES)).await;
}

async fn packed_for_a_backend_that_hangs(target: Target) {
    post_large(target).await;
}

async fn packed_for_a_slow_backend(target: Target) {
    post_large(target).await;
}
