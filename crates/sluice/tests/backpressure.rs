//! A backend that answers most requests with "come back later", as in the Kyma telemetry load test.

mod gateway;

use std::time::Duration;

use gateway::{Gateway, alone, assert_arrives_once, faulty_backend};
use sluice_load_test::{Backend, Faults, Load, LoadReport, Retry};
use sluice_otlp::Signal;

const LIMIT_MIB: u64 = 256;
const REFUSED_SHARE: f64 = 0.7;
/// Long enough that the items that wait for retries (about 0.8 s of the load) are far below 5 % of
/// it.
const LOAD_LASTS: Duration = Duration::from_secs(25);
const DRAIN_WITHIN: Duration = Duration::from_secs(15);

async fn refusing() -> Backend {
    faulty_backend(Faults::unavailable(REFUSED_SHARE)).await
}

fn config(exporter: &str, ack: &str) -> String {
    let id = exporter.trim().split(':').next().expect("an id");
    format!(
        "exporters:\n{exporter}buffer:\n  ack: {ack}\n  memory:\n    limit_mib: {LIMIT_MIB}\n\
         service:\n  pipelines:\n    traces:\n      receivers: [otlp]\n      exporters: [{id}]\n"
    )
}

fn otlp(backend: &Backend) -> String {
    gateway::exporter("backend", backend)
}

fn otlphttp(backend: &Backend) -> String {
    format!("  otlphttp/backend:\n    endpoint: http://{}\n    compression: none\n", backend.addr())
}

/// Two generators that retry, as in the Kyma load test, with 32 streams each.
fn load(gateway: &Gateway, spans_per_s: f64) -> Load {
    let load = gateway.load(Signal::Traces).rate(spans_per_s).retry(Retry::SDK);
    load.concurrency(2, 32)
}

/// Guarantee: at least 95 % of the load is accepted, and at least 95 % of that is delivered while
/// the load lasts; everything accepted arrives exactly once soon after; memory stays within its
/// limit.
async fn most_requests_are_refused_and_the_data_flows(backend: Backend, exporter: &str, ack: &str) {
    let gateway = Gateway::start(&config(exporter, ack)).await;
    let mut running = load(&gateway, 2_000.0).duration(LOAD_LASTS).start().expect("a load");
    tokio::time::sleep(LOAD_LASTS).await;
    let (accepted_in_time, exported_in_time) = (running.report().accepted, backend.unique_items());
    let report = running.finish().await.expect("a load");
    let counts = backend.counts();
    let refused_requests: u64 = counts.refused.values().sum();
    assert!(refused_requests > counts.taken_requests, "the fault strikes: {counts:?}");
    let offered = report.offered as f64;
    assert!(
        accepted_in_time as f64 >= 0.95 * offered,
        "{ack}: {accepted_in_time} of {offered} accepted in time"
    );
    assert!(
        exported_in_time as f64 >= 0.95 * accepted_in_time as f64,
        "{ack}: {exported_in_time} of {accepted_in_time} exported in time"
    );
    assert_eq!((report.failed, report.unanswered), (0, 0), "{:?}", report.messages);
    assert_arrives_once(&report, &backend, DRAIN_WITHIN).await;
    assert_nothing_thrown_away(&gateway, &report).await;
    gateway.assert_memory_within(LIMIT_MIB);
}

async fn assert_nothing_thrown_away(gateway: &Gateway, report: &LoadReport) {
    for name in [
        "sluice_delivery_dropped_items",
        "sluice_delivery_dead_letter_items",
        "sluice_delivery_backlog_items",
    ] {
        assert_eq!(gateway.metric(name, &[]).await, 0.0, "{name}");
    }
    assert_eq!(gateway.metric("otelcol_exporter_sent_spans", &[]).await, report.accepted as f64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unavailable_over_grpc() {
    let _alone = alone().await;
    let [one, other] = [refusing().await, refusing().await];
    let exporters = [otlp(&one), otlp(&other)];
    tokio::join!(
        most_requests_are_refused_and_the_data_flows(one, &exporters[0], "memory"),
        most_requests_are_refused_and_the_data_flows(other, &exporters[1], "delivered"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_503_over_http() {
    let _alone = alone().await;
    let [one, other] = [refusing().await, refusing().await];
    let exporters = [otlphttp(&one), otlphttp(&other)];
    tokio::join!(
        most_requests_are_refused_and_the_data_flows(one, &exporters[0], "memory"),
        most_requests_are_refused_and_the_data_flows(other, &exporters[1], "delivered"),
    );
}

/// Scenario: the Kyma gateways' explicit retry settings (5 s growing to 30 s, given up after 300 s)
/// for six minutes. Guarantee: in minutes 4 to 6, a steady state, at least 95 % of the load is
/// exported; at most 1.5 % becomes dead letters; the rest is delivered once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "more than six minutes long"]
async fn torture_explicit_retry_settings_for_six_minutes() {
    let _alone = alone().await;
    let limit_mib = 8000;
    let spans_per_s = 20_000.0;
    let backend = refusing().await;
    let retry = "    retry_on_failure:\n      initial_interval: 5s\n      max_interval: 30s\n      max_elapsed_time: 300s\n";
    let config = config(&(otlp(&backend) + retry), "memory")
        .replace(&LIMIT_MIB.to_string(), &limit_mib.to_string());
    let gateway = Gateway::start(&config).await;
    let mut running =
        load(&gateway, spans_per_s).duration(Duration::from_secs(360)).start().expect("a load");
    tokio::time::sleep(Duration::from_secs(180)).await;
    let exported_before = backend.unique_items();
    tokio::time::sleep(Duration::from_secs(180)).await;
    let exported = (backend.unique_items() - exported_before) as f64;
    let offered = spans_per_s * 180.0;
    assert!(exported >= 0.95 * offered, "{exported} of {offered} exported in minutes 4 to 6");
    let report = running.finish().await.expect("a load");
    assert_eq!(report.accepted, report.offered, "{:?}", report.messages);
    let drained = gateway::eventually(Duration::from_secs(400), async || {
        gateway.metric("sluice_delivery_backlog_items", &[]).await == 0.0
    });
    assert!(drained.await, "the backlog is not drained");
    let dead = gateway.metric("sluice_delivery_dead_letter_items", &[]).await;
    assert!(
        dead <= 0.015 * report.accepted as f64,
        "{dead} of {} became dead letters",
        report.accepted
    );
    assert_eq!(report.missing_at(&backend), dead as u64, "all but the dead letters arrived");
    assert_eq!(backend.counts().doubled, 0);
    gateway.assert_memory_within(limit_mib);
}
