//! More load than the gateway can take: it refuses, keeps to its memory, and loses nothing that it
//! acknowledged.

mod gateway;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gateway::{Gateway, Options, alone, assert_arrives_once, eventually, fan_out};
use sluice_load_test::subject::Limits;
use sluice_load_test::{Backend, Load, LoadReport, Pace, Protocol};
use sluice_otlp::Signal;

const LIMIT_MIB: u64 = 80;
/// A longer wait shows overload: alone, a request is answered within a few milliseconds.
const PATIENCE: Duration = Duration::from_millis(50);
/// Periods of 100 ms, of the eighty and more of a flood, in which the gateway must have used up its
/// CPU time.
const THROTTLED_PERIODS: u64 = 8;

/// A gateway with a quarter of a core, so that the generators are never the limit.
async fn slow_gateway(backend: &Backend, ack: &str) -> Gateway {
    let config = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", backend)]);
    let config = config.replace("buffer:\n", &format!("buffer:\n  ack: {ack}\n"));
    let limits = Limits { cpu_cores: Some(0.25), memory_bytes: None };
    Gateway::start_with(&config, Options { limits, ..Options::default() }).await
}

/// 16 connections with 16 requests in flight each: 50 MB at a time.
fn flood(gateway: &Gateway, duration: Duration) -> Load {
    flood_of(gateway, duration, 16, 16)
}

/// This many connections with this many requests in flight each.
fn flood_of(gateway: &Gateway, duration: Duration, connections: usize, streams: usize) -> Load {
    let mut load =
        gateway.load(Signal::Traces).duration(duration).concurrency(connections, streams);
    load.pace = Pace::Closed;
    load.timeout = Duration::from_secs(30);
    load.grace = Duration::from_secs(30);
    load
}

fn assert_refusals_are_retryable(report: &LoadReport) {
    assert!(report.accepted > 0, "{report:?}");
    assert_eq!((report.failed, report.unanswered), (0, 0), "{:?}", report.messages);
    assert_eq!(report.refusals_without_delay, 0, "every refusal says when to come back");
}

/// Requests were refused or had to wait, or all CPU time was used up: a throttled gateway answers
/// half of its requests at once and the others in the next period.
fn assert_was_too_much(report: &LoadReport, gateway: &Gateway) {
    let waited = report.acknowledged_after.p50;
    let throttled = gateway.throttled_periods();
    let was_too_much = report.refused > 0 || waited > PATIENCE || throttled >= THROTTLED_PERIODS;
    assert!(was_too_much, "throttled {throttled} times, waited {waited:?}, {:?}", report.endings);
}

async fn is_drained(gateway: &Gateway) -> bool {
    gateway.metric("sluice_delivery_backlog_items", &[]).await == 0.0
}

/// Guarantee: memory within the limit, refusals retryable and with a delay, everything acknowledged
/// delivered once.
async fn the_flood_is_turned_away_in_order(
    load: Load,
    gateway: Gateway,
    backend: Backend,
) -> LoadReport {
    let report = load.run().await.expect("a load");
    assert_refusals_are_retryable(&report);
    assert_was_too_much(&report, &gateway);
    assert_arrives_once(&report, &backend, Duration::from_secs(30)).await;
    assert!(
        eventually(gateway::SOON, async || is_drained(&gateway).await).await,
        "the backlog ends"
    );
    assert_eq!(
        backend.unique_items(),
        report.accepted,
        "what was refused did not get through as well"
    );
    assert_eq!(gateway.metric("sluice_delivery_dropped_items", &[]).await, 0.0);
    gateway.assert_memory_within(LIMIT_MIB);
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_acknowledged_from_memory() {
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = slow_gateway(&backend, "memory").await;
    the_flood_is_turned_away_in_order(flood(&gateway, Duration::from_secs(8)), gateway, backend)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_acknowledged_on_delivery() {
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = slow_gateway(&backend, "delivered").await;
    the_flood_is_turned_away_in_order(flood(&gateway, Duration::from_secs(8)), gateway, backend)
        .await;
}

/// Ten times the memory for receiving is offered at a time: most of it waits unread. Receiving it
/// only to refuse it would cost the CPU time of delivering.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_many_streams_on_few_connections_is_not_received_to_be_refused() {
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = slow_gateway(&backend, "memory").await;
    let load = flood_of(&gateway, Duration::from_secs(8), 16, 32);
    let report = the_flood_is_turned_away_in_order(load, gateway, backend).await;
    // The share depends on what else the machine does: mostly less than one to one.
    assert!(report.refused < 2 * report.accepted, "{report:?}");
}

/// Keeps the machine busy for as long as it lives.
struct BusyMachine(Arc<AtomicBool>);

impl BusyMachine {
    fn new(threads: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        for _ in 0..threads {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || while !is_over.load(Ordering::Relaxed) {});
        }
        BusyMachine(is_over)
    }
}

impl Drop for BusyMachine {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The same with senders that are short of CPU time too: their data comes slowly, the gateway is
/// often idle, and all requests wait for memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_slow_senders_is_not_received_to_be_refused() {
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = slow_gateway(&backend, "memory").await;
    let load = flood_of(&gateway, Duration::from_secs(8), 16, 32);
    let busy = BusyMachine::new(4);
    let report = load.run().await.expect("a load");
    drop(busy);
    assert_refusals_are_retryable(&report);
    assert_arrives_once(&report, &backend, Duration::from_secs(30)).await;
    // The share depends on how the machine divides its time among six busy threads.
    assert!(report.refused < 2 * report.accepted, "{report:?}");
    gateway.assert_memory_within(LIMIT_MIB);
}

/// 2,048 requests at a time from 128 senders: more than the gateway serves in the second for which
/// a request may wait, so that some are refused for certain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_more_than_may_wait_is_refused_in_part() {
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = slow_gateway(&backend, "memory").await;
    let load = flood_of(&gateway, Duration::from_secs(8), 128, 16);
    let report = the_flood_is_turned_away_in_order(load, gateway, backend).await;
    assert!(report.refused > 0, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_over_http() {
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = slow_gateway(&backend, "memory").await;
    let mut load = flood(&gateway, Duration::from_secs(8));
    load.protocol = Protocol::Http;
    load.target = gateway.http;
    the_flood_is_turned_away_in_order(load, gateway, backend).await;
}

/// Ten times as long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long"]
async fn torture_a_flood_for_minutes() {
    for ack in ["memory", "delivered"] {
        let _alone = alone().await;
        let backend = Backend::healthy().await.expect("a backend");
        let gateway = slow_gateway(&backend, ack).await;
        the_flood_is_turned_away_in_order(
            flood(&gateway, Duration::from_secs(80)),
            gateway,
            backend,
        )
        .await;
    }
}
