//! Three pipelines share a receiver, and one of their backends is sick: the others are unaffected.

mod gateway;

use std::time::Duration;

use gateway::{
    Gateway, MIB, alone, assert_all_accepted, assert_arrives_once, fan_out, faulty_backend,
    items_arrive,
};
use sluice_load_test::backend::Delay;
use sluice_load_test::{Backend, Code, Ending, Faults, LoadReport};
use sluice_otlp::Signal;

const LIMIT_MIB: u64 = 192;
const SPANS_PER_S: f64 = 4_000.0;
/// At least this many bytes in a span of forty attributes.
const BYTES_PER_SPAN: u64 = 1_500;
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

struct Bench {
    sick: Backend,
    healthy: [Backend; 2],
    gateway: Gateway,
}

/// Two healthy backends, a sick one, and a gateway with a pipeline to each. `sick_pipeline` are
/// further lines of the sick one's pipeline.
async fn start(faults: Faults, sick_pipeline: &str) -> Bench {
    start_with(LIMIT_MIB, faults, sick_pipeline).await
}

async fn start_with(limit_mib: u64, faults: Faults, sick_pipeline: &str) -> Bench {
    let sick = faulty_backend(faults).await;
    let healthy = [
        Backend::healthy().await.expect("a backend"),
        Backend::healthy().await.expect("a backend"),
    ];
    let backends = [("a", &healthy[0]), ("b", &healthy[1]), ("sick", &sick)];
    let config = fan_out(Signal::Traces, limit_mib, &backends) + sick_pipeline;
    let gateway = Gateway::start(&config).await;
    Bench { sick, healthy, gateway }
}

async fn load(bench: &Bench, duration: Duration) -> LoadReport {
    let load =
        bench.gateway.load(Signal::Traces).rate(SPANS_PER_S).duration(duration).concurrency(2, 32);
    load.run().await.expect("a load")
}

/// Scenario: the sick delivery's budget is spent several times over. Guarantee: everything reaches
/// the healthy backends once; only the sick delivery drops, counted; memory stays within the limit;
/// the rest of its backlog arrives later.
async fn a_sick_backend_hurts_nobody_else(faults: Faults, duration: Duration) {
    let _alone = alone().await;
    let bench = start(faults, "").await;
    let gateway = &bench.gateway;
    let report = load(&bench, duration).await;
    assert_all_accepted(&report);
    for backend in &bench.healthy {
        assert_arrives_once(&report, backend, DRAIN_WITHIN).await;
    }
    assert_eq!(bench.sick.unique_items(), 0, "the fault is one");

    let scrape = gateway.scrape().await;
    let of_sick = |name| scrape.sum(name, &[("exporter", "otlp/sick")]).expect(name);
    let (dropped, held) =
        (of_sick("sluice_delivery_dropped_items"), of_sick("sluice_delivery_backlog_items"));
    assert!(dropped > 0.0, "the budget was to be spent; held {held} items");
    assert!(of_sick("sluice_delivery_backlog_bytes") <= of_sick("sluice_delivery_budget_bytes"));
    assert_eq!(
        dropped + held,
        report.accepted as f64,
        "every item of the sick delivery is accounted for"
    );
    assert_eq!(
        scrape.sum("sluice_delivery_dropped_items", &[]),
        Some(dropped),
        "no other delivery drops"
    );
    let (_, health) = gateway.health().await.expect("a health check");
    assert!(health.contains("otlp/sick") && !health.contains("otlp/a"), "{health}");
    gateway.assert_memory_within(LIMIT_MIB);

    bench.sick.faults().clear();
    assert!(
        items_arrive(&bench.sick, held as u64, Duration::from_secs(20)).await,
        "{:?}",
        bench.sick.counts()
    );
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        report.missing_at(&bench.sick),
        dropped as u64,
        "what was dropped is missing, and nothing else"
    );
    gateway.assert_memory_within(LIMIT_MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_backend_hurts_nobody_else() {
    a_sick_backend_hurts_nobody_else(Faults::dead(), Duration::from_secs(8)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_refuses_everything_hurts_nobody_else() {
    a_sick_backend_hurts_nobody_else(Faults::unavailable(1.0), Duration::from_secs(8)).await;
}

/// Scenario: a backend accepts requests and never answers. Guarantee: as for other faults. Requests
/// in flight may arrive twice, because their outcome is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_backend_hurts_nobody_else() {
    let _alone = alone().await;
    let bench = start(Faults::stalled(), "").await;
    let report = load(&bench, Duration::from_secs(8)).await;
    assert_all_accepted(&report);
    for backend in &bench.healthy {
        assert_arrives_once(&report, backend, DRAIN_WITHIN).await;
    }
    let scrape = bench.gateway.scrape().await;
    let dropped = scrape
        .sum("sluice_delivery_dropped_items", &[("exporter", "otlp/sick")])
        .expect("a counter");
    assert!(dropped > 0.0, "the budget was to be spent");
    assert_eq!(
        scrape.sum("sluice_delivery_dropped_items", &[]),
        Some(dropped),
        "no other delivery drops"
    );
    bench.gateway.assert_memory_within(LIMIT_MIB);

    bench.sick.faults().clear();
    let all_but_dropped = report.accepted - dropped as u64;
    assert!(
        items_arrive(&bench.sick, all_but_dropped, Duration::from_secs(30)).await,
        "{:?}",
        bench.sick.counts()
    );
    bench.gateway.assert_memory_within(LIMIT_MIB);
}

/// Scenario: the sick pipeline's policy is `backpressure`, and its budget gets spent. Guarantee:
/// senders get a retryable refusal with a delay; accepted data reaches the healthy backends at once
/// and the sick one when it is well; nothing is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backpressure_of_a_sick_pipeline_reaches_the_senders() {
    let _alone = alone().await;
    let bench = start(Faults::dead(), "      buffer:\n        policy: backpressure\n").await;
    let report = load(&bench, Duration::from_secs(8)).await;
    assert!(report.refused > 0, "the budget was to be spent: {report:?}");
    assert_eq!(
        (report.failed, report.unanswered, report.refusals_without_delay),
        (0, 0, 0),
        "{:?}",
        report.messages
    );
    let message = &report.messages[&Ending::Grpc(Code::Unavailable)];
    assert!(message.contains("traces/sick") && message.contains("budget"), "{message}");
    for backend in &bench.healthy {
        assert_arrives_once(&report, backend, DRAIN_WITHIN).await;
    }
    let backlog =
        bench.gateway.metric("sluice_delivery_backlog_bytes", &[("exporter", "otlp/sick")]).await;
    assert!(backlog > 4.0 * MIB as f64, "{backlog} bytes held");
    bench.gateway.assert_memory_within(LIMIT_MIB);

    bench.sick.faults().clear();
    assert_arrives_once(&report, &bench.sick, Duration::from_secs(20)).await;
    assert_eq!(bench.gateway.metric("sluice_delivery_dropped_items", &[]).await, 0.0);
    let again = load(&bench, Duration::from_secs(1)).await;
    assert_all_accepted(&again);
}

/// Scenario: senders in a closed loop send much more than the budget holds. One backend is slower
/// than the others, or all refuse a part. Guarantee: no backend is to blame, so answers come as
/// fast as the slowest one takes the data, and nothing is dropped.
async fn senders_that_wait_go_as_fast_as_the_slowest(slowest: Faults, others: Faults) {
    /// So little that much more is sent than the budget holds.
    const LIMIT_MIB: u64 = 80;
    let _alone = alone().await;
    let bench = start_with(LIMIT_MIB, slowest, "").await;
    bench.healthy.iter().for_each(|backend| backend.faults().set(others.clone()));
    let load =
        bench.gateway.load(Signal::Traces).duration(Duration::from_secs(8)).concurrency(2, 4);
    let report = load.run().await.expect("a load");
    assert_all_accepted(&report);
    let budget_bytes =
        bench.gateway.metric("sluice_delivery_budget_bytes", &[("exporter", "otlp/sick")]).await;
    let sent_bytes = (report.accepted * BYTES_PER_SPAN) as f64;
    assert!(
        sent_bytes > 3.0 * budget_bytes,
        "{sent_bytes} bytes sent, for a budget of {budget_bytes}"
    );
    let dropped = bench.gateway.metric("sluice_delivery_dropped_items", &[]).await;
    let counts = [&bench.sick, &bench.healthy[0], &bench.healthy[1]].map(Backend::counts);
    assert_eq!(dropped, 0.0, "{counts:?}\n{}", bench.gateway.output());
    for backend in [&bench.sick, &bench.healthy[0], &bench.healthy[1]] {
        assert_arrives_once(&report, backend, DRAIN_WITHIN).await;
    }
    bench.gateway.assert_memory_within(LIMIT_MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_slower_backend_nothing_is_dropped() {
    let slower = Faults {
        delay: Some(Delay { share: 1.0, by: Duration::from_millis(100) }),
        ..Faults::default()
    };
    senders_that_wait_go_as_fast_as_the_slowest(slower, Faults::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_backends_that_all_refuse_a_part_nothing_is_dropped() {
    senders_that_wait_go_as_fast_as_the_slowest(Faults::unavailable(0.7), Faults::unavailable(0.7))
        .await;
}

/// Scenario: all three backends are slow, until all budgets are spent. Guarantee: there is no
/// single backend to isolate, so senders get a retryable refusal, and nothing accepted is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_pipeline_keeps_up_senders_are_told_to_come_back() {
    let _alone = alone().await;
    let slow = Faults {
        delay: Some(Delay { share: 1.0, by: Duration::from_secs(4) }),
        ..Faults::default()
    };
    let bench = start(slow.clone(), "").await;
    bench.healthy.iter().for_each(|backend| backend.faults().set(slow.clone()));
    let load =
        bench.gateway.load(Signal::Traces).rate(4.0 * SPANS_PER_S).duration(Duration::from_secs(8));
    let report = load.concurrency(2, 32).run().await.expect("a load");
    assert!(report.refused > 0, "the budgets were to be spent: {:?}", report.endings);
    assert_eq!(
        (report.failed, report.unanswered, report.refusals_without_delay),
        (0, 0, 0),
        "{:?}",
        report.messages
    );
    let message = &report.messages[&Ending::Grpc(Code::Unavailable)];
    assert!(message.contains("the budget of delivery"), "{message}");
    for backend in [&bench.sick, &bench.healthy[0], &bench.healthy[1]] {
        backend.faults().clear();
        assert_arrives_once(&report, backend, Duration::from_secs(20)).await;
    }
    assert_eq!(bench.gateway.metric("sluice_delivery_dropped_items", &[]).await, 0.0);
    bench.gateway.assert_memory_within(LIMIT_MIB);
}

/// Ten times as long, one fault after the other at the same backend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long"]
async fn torture_faults_that_come_and_go_hurt_nobody_else() {
    let _alone = alone().await;
    let bench = start(Faults::default(), "").await;
    let running =
        bench.gateway.load(Signal::Traces).rate(SPANS_PER_S).duration(Duration::from_secs(120));
    let mut running = running.concurrency(2, 32).start().expect("a load");
    for round in 0..12 {
        let faults =
            [Faults::dead(), Faults::unavailable(1.0), Faults::stalled(), Faults::unavailable(0.7)];
        bench.sick.faults().set(faults[round % faults.len()].clone());
        tokio::time::sleep(Duration::from_secs(7)).await;
        bench.sick.faults().clear();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let report = running.finish().await.expect("a load");
    assert_all_accepted(&report);
    for backend in &bench.healthy {
        assert_arrives_once(&report, backend, DRAIN_WITHIN).await;
    }
    let dropped =
        bench.gateway.metric("sluice_delivery_dropped_items", &[("exporter", "otlp/sick")]).await;
    assert_eq!(
        bench.gateway.metric("sluice_delivery_dropped_items", &[]).await,
        dropped,
        "no other delivery drops"
    );
    let all_but_dropped = report.accepted - dropped as u64;
    assert!(
        items_arrive(&bench.sick, all_but_dropped, Duration::from_secs(60)).await,
        "{:?}",
        bench.sick.counts()
    );
    bench.gateway.assert_memory_within(LIMIT_MIB);
}
