//! Backends limit the size of a message: only items that fit into no message are lost to that.

mod gateway;

use std::time::Duration;

use gateway::{Gateway, assert_arrives_once, eventually, exporter};
use sluice_load_test::{Backend, BackendOptions, Code, Load, LoadReport};
use sluice_otlp::{Encoding, Signal};

/// Bodies in bytes, records a request, requests: from the Kyma load test's size up to the largest
/// that fits into 4 MiB.
const LOADS: [(usize, u32, u64); 5] =
    [(2_000, 100, 20), (60_000, 50, 4), (500_000, 7, 3), (1_500_000, 3, 4), (3_900_000, 3, 3)];

fn config(backend: &Backend, send_batch_size: u32) -> String {
    format!(
        "exporters:\n{}processors:\n  memory_limiter:\n    check_interval: 1s\n    limit_mib: 512\n  batch:\n    \
         send_batch_size: {send_batch_size}\n    timeout: 200ms\n\
         service:\n  pipelines:\n    logs:\n      receivers: [otlp]\n      \
         processors: [memory_limiter, batch]\n      \
         exporters: [otlp/backend]\n",
        exporter("backend", backend)
    )
}

fn load(gateway: &Gateway, (body_bytes, records, requests): (usize, u32, u64)) -> Load {
    let load = gateway.load(Signal::Logs).items_per_request(records);
    let mut load = load.items(requests * u64::from(records)).concurrency(1, 2);
    load.shape.body_bytes = body_bytes;
    load.timeout = Duration::from_secs(30);
    load
}

async fn run_all(gateway: &Gateway, encoding: Encoding) -> Vec<LoadReport> {
    let running: Vec<_> = LOADS
        .iter()
        .map(|&what| Load { encoding, ..load(gateway, what) }.start().expect("a load"))
        .collect();
    let mut reports = Vec::new();
    for mut running in running {
        let report = running.finish().await.expect("a load");
        assert_eq!(report.accepted, report.offered, "{:?}", report.messages);
        reports.push(report);
    }
    reports
}

/// Guarantee: whatever the batch size says in records, no message exceeds the backend's limit in
/// bytes; everything arrives once, nothing is refused on the way.
async fn nothing_is_lost_to_4_mib(send_batch_size: u32, encoding: Encoding) {
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = Gateway::start(&config(&backend, send_batch_size)).await;
    for report in run_all(&gateway, encoding).await {
        assert_arrives_once(&report, &backend, Duration::from_secs(20)).await;
    }
    let counts = backend.counts();
    assert!(counts.refused.is_empty() && counts.malformed == 0, "{counts:?}");
    assert_eq!(
        gateway.metric("sluice_delivery_dead_letter_items", &[]).await,
        0.0,
        "{}",
        gateway.dead_letters().await
    );
    gateway.assert_memory_within(512);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_batches_of_records_of_all_sizes() {
    nothing_is_lost_to_4_mib(512, Encoding::Identity).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_batches_of_records_of_all_sizes() {
    nothing_is_lost_to_4_mib(8192, Encoding::Identity).await;
}

/// Scenario: requests that are small as sent, and beyond the backend's limit once inflated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_requests_of_records_of_all_sizes() {
    nothing_is_lost_to_4_mib(8192, Encoding::Gzip).await;
}

/// Scenario: the backend takes 1 MiB at most, where the exporter assumes 4 MiB; some records alone
/// are larger. Guarantee: batches that are too large are cut and sent again; only those records
/// become dead letters, with the backend's reason; Sluice learns the backend's limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_with_a_smaller_limit_gets_smaller_batches() {
    let options = BackendOptions { message_limit_bytes: 1 << 20, ..BackendOptions::default() };
    let backend = Backend::start(options).await.expect("a backend");
    let gateway = Gateway::start(&config(&backend, 8192)).await;
    let mut ordinary = load(&gateway, (2_000, 700, 10)).start().expect("a load");
    let mut larger = load(&gateway, (300_000, 5, 6)).start().expect("a load");
    let mut hopeless = load(&gateway, (1_200_000, 2, 2)).start().expect("a load");
    let [ordinary, larger, hopeless] = [
        ordinary.finish().await.expect("a load"),
        larger.finish().await.expect("a load"),
        hopeless.finish().await.expect("a load"),
    ];
    assert_eq!((ordinary.accepted, larger.accepted, hopeless.accepted), (7_000, 30, 4));
    assert_arrives_once(&ordinary, &backend, Duration::from_secs(20)).await;
    assert_arrives_once(&larger, &backend, Duration::from_secs(20)).await;
    let dead = async || gateway.metric("sluice_delivery_dead_letter_items", &[]).await == 4.0;
    assert!(eventually(Duration::from_secs(20), dead).await, "{}", gateway.dead_letters().await);
    assert_eq!(hopeless.missing_at(&backend), 4);
    let too_large = [("reason", "too_large")];
    assert_eq!(
        gateway.metric("sluice_delivery_dead_letter_items", &too_large).await,
        4.0,
        "none for another reason"
    );
    let letters = gateway.dead_letters().await;
    assert!(
        letters.contains("4 items in 4 letters") && letters.contains("larger than max"),
        "{letters}"
    );
    assert_eq!(gateway.metric("otelcol_exporter_send_failed_log_records", &[]).await, 4.0);

    let refused = backend.counts().refused[&Code::ResourceExhausted];
    let requests = gateway.metric("sluice_delivery_requests", &[("outcome", "too_large")]).await;
    assert_eq!(requests, refused as f64);
    let again = load(&gateway, (2_000, 700, 40)).run().await.expect("a load");
    assert_arrives_once(&again, &backend, Duration::from_secs(60)).await;
    // The limit is known by now, and larger requests are tried rarely; else there would be forty.
    let tried = backend.counts().refused[&Code::ResourceExhausted] - refused;
    assert!(tried <= 20, "{tried} were too large");
}
