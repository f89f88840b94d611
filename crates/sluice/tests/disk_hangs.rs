//! A disk that gives no answer and no error.

mod disk;
mod gateway;
#[path = "../../log/tests/support/mounted.rs"]
mod mounted;

use std::time::Duration;

use disk::dead_backend;
use disk::place::Place;
use gateway::{Gateway, Options, SOON, alone, eventually};
use mounted::FileSystem;
use sluice_load_test::Backend;
use sluice_otlp::Signal;

/// Scenario: the disk hangs for eight seconds under load, while one of two backends is dead.
/// Guarantee: the trouble is said within seconds, and the healthy backend goes on being served;
/// everything accepted reaches it once, and the gateway recovers without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_stops_no_healthy_delivery() {
    let Some(place) = Place::mounted(FileSystem::Ext4 { mib: 256 }) else { return };
    let _alone = alone().await;
    let (healthy, dead) = (Backend::healthy().await.expect("a backend"), dead_backend().await);
    let backends = [("healthy", &healthy), ("dead", &dead)];
    let config = disk::config(&place.directory(), "delivered_or_durable", &backends, "");
    let gateway = Gateway::start(&config).await;
    let mut load = gateway.load(Signal::Traces).rate(2_000.0).duration(Duration::from_secs(20));
    load = load.concurrency(4, 4);
    load.timeout = Duration::from_secs(30);
    let mut running = load.start().expect("a load");
    let flows = async || healthy.unique_items() > 4_000;
    assert!(eventually(SOON, flows).await, "{}", gateway.output());

    let frozen = place.mount().freeze();
    let is_told =
        async || gateway.metric("sluice_log_trouble", &[("signal", "traces")]).await == 1.0;
    assert!(eventually(Duration::from_secs(5), is_told).await, "{}", gateway.output());
    gateway.wait_for_output("the disk hangs: no answer to a write", 1).await;
    let before = healthy.unique_items();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let arrived = healthy.unique_items() - before;
    drop(frozen);
    assert!(arrived > 5_000, "{arrived} of about 10,000 while the disk hung");
    let works = async || gateway.metric("sluice_log_trouble", &[("signal", "traces")]).await == 0.0;
    assert!(eventually(SOON, works).await, "{}", gateway.output());
    running.stop();
    let report = running.finish().await.expect("a load");
    assert_eq!((report.failed, report.unanswered), (0, 0), "{:?}", report.messages);
    // A sender that was told to come back may send again what was delivered.
    let arrives = async || report.missing_at(&healthy) == 0;
    assert!(eventually(SOON, arrives).await, "{} missing", report.missing_at(&healthy));
}

/// Scenario: the disk hangs when Sluice starts. Guarantee: it says so, and SIGTERM ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_on_a_disk_that_hangs_says_so_and_can_be_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let of_log = directory.path().join("traces");
    std::fs::create_dir_all(&of_log).expect("a directory");
    // To open it waits for a writer, as a read from such a disk waits for its answer.
    let window = of_log.join("window");
    let made = std::process::Command::new("mkfifo").arg(window).status().expect("mkfifo runs");
    assert!(made.success());
    let (backend, config) = (Backend::healthy().await.expect("a backend"), directory.path());
    let config = disk::config(config, "durable", &[("healthy", &backend)], "");
    let options = Options { still_starts: true, ..Options::default() };
    let mut gateway = Gateway::start_with(&config, options).await;
    gateway.wait_for_output("still opening the log", 1).await;
    gateway.terminate();
    assert!(gateway.ended_within(SOON).await.success(), "{}", gateway.output());
}
