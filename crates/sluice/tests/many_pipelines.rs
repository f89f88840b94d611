//! Two hundred pipelines behind one receiver: data is stored once, so each may lag as far as if it
//! were alone.

mod gateway;

use std::time::Duration;

use gateway::{Gateway, alone, eventually, exporter, faulty_backend};
use sluice_load_test::{Backend, Faults};
use sluice_otlp::Signal;

const PIPELINES: usize = 200;
const LIMIT_MIB: u64 = 512;
/// Sent at once: three megabytes for each pipeline, four times an equal share of the memory.
const SPANS: u64 = 2_000;
const DRAIN_WITHIN: Duration = Duration::from_secs(60);

/// All pipelines send to `otlp/healthy`; the first sends to `otlp/first`.
fn config(first: &Backend, healthy: &Backend) -> String {
    let exporters = exporter("first", first) + &exporter("healthy", healthy);
    let pipelines: String = (0..PIPELINES)
        .map(|index| {
            let exporter = if index == 0 { "first" } else { "healthy" };
            format!(
                "    traces/{index}:\n      receivers: [otlp]\n      exporters: [otlp/{exporter}]\n"
            )
        })
        .collect();
    format!(
        "exporters:\n{exporters}buffer:\n  memory:\n    limit_mib: {LIMIT_MIB}\nservice:\n  pipelines:\n{pipelines}"
    )
}

/// Scenario: senders in a closed loop send faster than two hundred copies can go out. Guarantee:
/// every healthy pipeline delivers all that was accepted, whether another one is dead or not;
/// memory stays within its limit.
async fn healthy_pipelines_lose_nothing(first: Faults) {
    let _alone = alone().await;
    let is_dead = first.dead;
    let first = faulty_backend(first).await;
    let healthy = faulty_backend(Faults { discard: true, ..Faults::default() }).await;
    let gateway = Gateway::start(&config(&first, &healthy)).await;
    let load = gateway.load(Signal::Traces).items(SPANS).items_per_request(10).concurrency(4, 16);
    let report = load.run().await.expect("a load");
    assert_eq!((report.failed, report.unanswered), (0, 0), "{:?}", report.messages);
    assert!(report.accepted > SPANS / 2, "{report:?}");
    let of_healthy = [("exporter", "otlp/healthy")];
    let expected = (PIPELINES as u64 - 1) * report.accepted;
    let sent = async || gateway.metric("otelcol_exporter_sent_spans", &of_healthy).await;
    let all_sent = eventually(DRAIN_WITHIN, async || sent().await == expected as f64).await;
    let dropped = gateway.metric("sluice_delivery_dropped_items", &of_healthy).await;
    assert!(all_sent, "{} of {expected} sent, {dropped} dropped", sent().await);
    assert_eq!(dropped, 0.0);
    let held = gateway.metric("sluice_delivery_backlog_items", &[("exporter", "otlp/first")]).await;
    assert_eq!(
        held,
        if is_dead { report.accepted as f64 } else { 0.0 },
        "there is room for what the first one lacks"
    );
    gateway.assert_memory_within(LIMIT_MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hundred_healthy_pipelines_none_loses_anything() {
    healthy_pipelines_lose_nothing(Faults { discard: true, ..Faults::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_a_dead_pipeline_the_healthy_ones_lose_nothing() {
    healthy_pipelines_lose_nothing(Faults::dead()).await;
}
