//! SIGTERM: acknowledged data is delivered, or the process reports what it could not deliver.

mod gateway;

use std::time::{Duration, Instant};

use gateway::{
    Gateway, Options, assert_arrives_once, delaying, eventually, fan_out, faulty_backend,
};
use rustix::process::Signal as UserSignal;
use sluice_load_test::{Backend, Faults};
use sluice_otlp::Signal;

/// The time that a process may take beyond its drain timeout on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

fn config(backend: &Backend, ack: &str) -> String {
    let config = fan_out(Signal::Traces, 256, &[("backend", backend)]);
    config.replace("buffer:\n", &format!("buffer:\n  ack: {ack}\n"))
}

async fn start(backend: &Backend, ack: &str, drain_timeout: Duration) -> Gateway {
    let args = vec!["--drain-timeout".to_owned(), drain_timeout.as_secs().to_string()];
    Gateway::start_with(&config(backend, ack), Options { args, ..Options::default() }).await
}

/// Scenario: SIGTERM under load with a slow backend, so that there is a backlog. Guarantee: the
/// process ends by itself with success, and everything that it acknowledged arrives once.
async fn what_was_acknowledged_is_delivered(ack: &str) {
    let faults = delaying(Duration::from_millis(300));
    let backend = faulty_backend(faults).await;
    let mut gateway = start(&backend, ack, Duration::from_secs(20)).await;
    let mut load = gateway
        .load(Signal::Traces)
        .rate(3_000.0)
        .duration(Duration::from_secs(3))
        .concurrency(2, 32);
    load.grace = Duration::from_secs(5);
    let mut running = load.start().expect("a load");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    gateway.terminate();
    let status = gateway.ended_within(Duration::from_secs(20) + SLACK).await;
    let report = running.finish().await.expect("a load");
    assert!(report.accepted >= 1_000 && report.accepted < report.offered, "{report:?}");
    assert_arrives_once(&report, &backend, Duration::ZERO).await;
    assert_eq!(status.code(), Some(0), "{}", gateway.output());
    assert!(!gateway.output().contains("lost"), "{}", gateway.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_from_memory_is_delivered() {
    what_was_acknowledged_is_delivered("memory").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_on_delivery_is_delivered() {
    what_was_acknowledged_is_delivered("delivered").await;
}

/// Scenario: requests of one connection wait for a slow backend when SIGTERM comes.
/// Guarantee: the connection is asked to go (GOAWAY), and each request still gets its OK.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_in_flight_is_answered() {
    let faults = delaying(Duration::from_secs(4));
    let backend = faulty_backend(faults).await;
    let mut gateway = start(&backend, "delivered", Duration::from_secs(10)).await;
    let mut running =
        gateway.load(Signal::Traces).items(800).concurrency(1, 8).start().expect("a load");
    // A request that is sent after the GOAWAY would find no listener.
    let held = async || gateway.metric("sluice_delivery_backlog_items", &[]).await;
    assert!(eventually(gateway::SOON, async || held().await == 800.0).await, "{}", held().await);
    gateway.terminate();
    let report = running.finish().await.expect("a load");
    assert_eq!((report.accepted, report.unanswered), (800, 0), "{:?}", report.messages);
    assert_arrives_once(&report, &backend, Duration::ZERO).await;
    assert!(gateway.ended_within(Duration::from_secs(10)).await.success());
}

/// Guarantee: with a dead backend the process ends at the drain timeout and logs the number of lost
/// items.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_backend_did_not_take_is_counted() {
    let backend = faulty_backend(Faults::dead()).await;
    let drain_timeout = Duration::from_secs(2);
    let mut gateway = start(&backend, "memory", drain_timeout).await;
    let report = gateway.load(Signal::Traces).items(3_000).run().await.expect("a load");
    assert_eq!(report.accepted, 3_000);
    let began = Instant::now();
    gateway.terminate();
    let health = eventually(Duration::from_secs(1), async || {
        gateway.health().await.is_none_or(|(status, _)| status == 503)
    });
    assert!(health.await, "an ending gateway is not ready");
    gateway.ended_within(drain_timeout + SLACK).await;
    assert!(began.elapsed() >= drain_timeout, "it tries as long as it may: {:?}", began.elapsed());
    let output = gateway.output();
    let said = output
        .lines()
        .find(|line| line.contains("lost: not delivered"))
        .unwrap_or_else(|| panic!("{output}"));
    assert!(said.contains("3000") && said.contains("otlp/backend"), "{said}");
    assert!(gateway::get(gateway.metrics, "/metrics").await.is_none(), "the listener is closed");
}

/// Scenario: senders wait for a delivery that does not happen. Guarantee: the process ends at the
/// drain timeout nevertheless, no sender gets an OK, and senders can send their data elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn senders_that_wait_for_a_dead_backend_do_not_hold_up_the_end() {
    let backend = faulty_backend(Faults::dead()).await;
    let drain_timeout = Duration::from_secs(2);
    let mut gateway = start(&backend, "delivered", drain_timeout).await;
    let mut load = gateway.load(Signal::Traces).items(800).concurrency(1, 8);
    load.timeout = Duration::from_secs(30);
    let mut running = load.start().expect("a load");
    tokio::time::sleep(Duration::from_millis(500)).await;
    gateway.terminate();
    let status = gateway.ended_within(drain_timeout + SLACK).await;
    assert_eq!(status.code(), Some(0), "{}", gateway.output());
    let report = running.finish().await.expect("a load");
    assert_eq!((report.accepted, report.failed), (0, 0), "{:?}", report.messages);
    assert_eq!(report.refused + report.unanswered, 800, "retryable, or no answer: {report:?}");
}

/// Scenario: SIGUSR1 and SIGUSR2, which a Go program ignores. Guarantee: the process goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_signals_do_not_end_the_process() {
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = start(&backend, "delivered", Duration::from_secs(10)).await;
    for signal in [UserSignal::USR1, UserSignal::USR2] {
        gateway.signal(signal);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let report = gateway.load(Signal::Traces).items(800).run().await.expect("a load");
    assert_eq!(report.accepted, 800, "{:?}", report.messages);
}

/// Scenario: a `file` exporter writes to a pipe whose reader has stopped reading, beside a backend.
/// Guarantee: the backend gets all, and the process ends at the drain timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_pipe_does_not_hold_up_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    let mut options = std::fs::OpenOptions::new();
    let _reader = options.read(true).write(true).open(&path).expect("opens");
    let backend = Backend::healthy().await.expect("a backend");
    let file = format!("exporters:\n  file:\n    path: {}\n", path.display());
    let config = config(&backend, "memory").replace("exporters:\n", &file)
        + "    traces/file:\n      receivers: [otlp]\n      exporters: [file]\n";
    let drain_timeout = Duration::from_secs(2);
    let args = vec!["--drain-timeout".to_owned(), drain_timeout.as_secs().to_string()];
    let mut gateway = Gateway::start_with(&config, Options { args, ..Options::default() }).await;
    let report = gateway.load(Signal::Traces).items(3_000).run().await.expect("a load");
    assert_arrives_once(&report, &backend, gateway::SOON).await;
    gateway.terminate();
    let status = gateway.ended_within(drain_timeout + SLACK).await;
    assert_eq!(status.code(), Some(0), "{}", gateway.output());
    assert!(gateway.output().contains("lost: not delivered"), "{}", gateway.output());
}
