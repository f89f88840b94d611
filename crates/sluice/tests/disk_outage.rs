//! Long outages: a dead backend beside healthy ones, a clock that jumps, a backlog much larger than
//! memory.

mod disk;
mod gateway;
#[path = "../../log/tests/support/mounted.rs"]
mod mounted;

use std::process::Command;
use std::time::{Duration, Instant};

use disk::place::Place;
use disk::{assert_all_arrives, dead_backend};
use gateway::{
    Gateway, MIB, Options, SOON, alone, assert_all_accepted, assert_arrives_once, eventually,
    faulty_backend, items_arrive,
};
use sluice_load_test::{Backend, Faults, LoadReport};
use sluice_otlp::Signal;

const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// Scenario: three pipelines on one directory; one backend is sick, and its disk budget is spent
/// several times over. Guarantee: all data is accepted and reaches the healthy backends once; only
/// the sick delivery drops data, counted, and delivers the rest later; memory stays in its limit.
async fn a_sick_backend_hurts_no_other(faults: Faults) {
    const LIMIT_MIB: u64 = 192;
    let _alone = alone().await;
    let place = Place::folder();
    let sick = faulty_backend(faults).await;
    let healthy = [
        Backend::healthy().await.expect("a backend"),
        Backend::healthy().await.expect("a backend"),
    ];
    let backends = [("a", &healthy[0]), ("b", &healthy[1]), ("sick", &sick)];
    let buffer = format!(
        "  memory:\n    limit_mib: {LIMIT_MIB}\n  disk:\n    limit_mib: 1024\n    segment_mib: 2\n"
    );
    let own_budget =
        "      buffer:\n        policy: drop_oldest\n        disk:\n          limit_mib: 16\n";
    let config =
        disk::config(&place.directory(), "delivered_or_durable", &backends, &buffer) + own_budget;
    let gateway = Gateway::start(&config).await;
    let load = gateway
        .load(Signal::Traces)
        .rate(4_000.0)
        .duration(Duration::from_secs(8))
        .concurrency(2, 32);
    let report = load.run().await.expect("a load");
    assert_all_accepted(&report);
    for backend in &healthy {
        assert_arrives_once(&report, backend, SOON).await;
    }
    assert_eq!(sick.unique_items(), 0, "the fault is one");

    let of_sick = async |name| gateway.metric(name, &[("exporter", "otlp/sick")]).await;
    // Data on disk is dropped by a thread of its own.
    let within = async || {
        of_sick("sluice_delivery_backlog_bytes").await
            <= of_sick("sluice_delivery_budget_bytes").await
            && of_sick("sluice_delivery_backlog_items").await
                + of_sick("sluice_delivery_dropped_items").await
                == report.accepted as f64
    };
    let settled = eventually(SOON, within).await;
    let dropped = of_sick("sluice_delivery_dropped_items").await;
    let held = of_sick("sluice_delivery_backlog_items").await;
    assert!(settled, "held {held} and dropped {dropped} of {} items", report.accepted);
    assert!(
        dropped > report.accepted as f64 / 2.0,
        "the budget was to be spent several times: {dropped} dropped"
    );
    assert_eq!(
        gateway.metric("sluice_delivery_dropped_items", &[]).await,
        dropped,
        "no other delivery drops data"
    );
    gateway.assert_memory_within(LIMIT_MIB);
    let on_disk: u64 =
        disk::segments(&place.directory()).iter().map(|path| disk::len_bytes(path)).sum();
    assert!(on_disk <= 32 * MIB, "{} MiB on disk", on_disk / MIB);

    sick.faults().clear();
    assert!(
        items_arrive(&sick, held as u64, ARRIVES_WITHIN).await,
        "{held} held; {:?}",
        sick.counts().items
    );
    gateway.assert_memory_within(LIMIT_MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_backend_hurts_nobody_else() {
    a_sick_backend_hurts_no_other(Faults::dead()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_refuses_everything_hurts_nobody_else() {
    a_sick_backend_hurts_no_other(Faults::unavailable(1.0)).await;
}

/// The wall clock of a gateway, moved by libfaketime. Monotonic time goes on as it does on a
/// machine whose clock is set.
struct Clock {
    folder: tempfile::TempDir,
    library: String,
}

impl Clock {
    /// `None`: libfaketime is missing, which has been reported.
    fn new() -> Option<Clock> {
        let library = std::env::var("SLUICE_TEST_FAKETIME")
            .ok()
            .filter(|path| std::path::Path::new(path).exists());
        if library.is_none() {
            let required = std::env::var_os("SLUICE_TEST_REQUIRE_COMPONENTS")
                .is_some_and(|value| value == "1");
            assert!(!required, "SLUICE_TEST_FAKETIME names no file: run tests/components/install");
            eprintln!("skipped: no libfaketime (tests/components/install makes it available)");
        }
        let clock = Clock { folder: tempfile::tempdir().expect("a folder"), library: library? };
        clock.set("+0d");
        Some(clock)
    }

    fn set(&self, offset: &str) {
        let next = self.folder.path().join("next");
        std::fs::write(&next, offset).expect("a file");
        std::fs::rename(next, self.folder.path().join("offset")).expect("a file");
    }

    fn options(&self) -> Options {
        let offset = self.folder.path().join("offset").display().to_string();
        let env = [
            ("LD_PRELOAD", self.library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", &offset),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Options { env, ..Options::default() }
    }
}

/// The date this many days from now, as in a log line.
fn date(days: &str) -> String {
    let output =
        Command::new("date").args(["-u", "-d", days, "+%Y-%m-%d"]).output().expect("date runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Scenario: while a backend is dead the wall clock jumps a day ahead, then two days back; the
/// gateway is killed and started again at each of these times. Guarantee: everything acknowledged
/// at any time arrives once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_a_day_either_way() {
    let _alone = alone().await;
    let Some(clock) = Clock::new() else { return };
    let place = Place::folder();
    let backend = dead_backend().await;
    let buffer = "  policy: backpressure\n  disk:\n    segment_mib: 1\n";
    let config =
        disk::config(&place.directory(), "delivered_or_durable", &[("backend", &backend)], buffer);
    let mut reports: Vec<LoadReport> = Vec::new();
    for (now, then, date_then) in [
        ("+0d", "+1d", date("+1 day")),
        ("+1d", "-1d", date("-1 day")),
        ("-1d", "+0d", date("now")),
    ] {
        clock.set(now);
        let gateway = Gateway::start_with(&config, clock.options()).await;
        reports.push(load(&gateway).await);
        clock.set(then);
        gateway.reload(&config).await;
        assert!(
            gateway.output().contains(&date_then),
            "the clock did not jump to {date_then}:\n{}",
            gateway.output()
        );
        reports.push(load(&gateway).await);
        drop(gateway);
    }
    backend.faults().clear();
    let gateway = Gateway::start_with(&config, clock.options()).await;
    reports.push(load(&gateway).await);
    assert_all_arrives(&reports, &backend, ARRIVES_WITHIN).await;
    assert_eq!(backend.counts().doubled, 0);
    drop(gateway);
}

async fn load(gateway: &Gateway) -> LoadReport {
    let report =
        gateway.load(Signal::Traces).items(2_000).concurrency(1, 8).run().await.expect("a load");
    assert_eq!(report.accepted, 2_000, "{:?}\n{}", report.messages, gateway.output());
    report
}

/// Scenario: a backend is dead until 10 GiB (`SLUICE_TORTURE_BACKLOG_GIB`) wait for it; kill -9;
/// start; the backend comes back. Guarantee: memory stays within its limit; everything arrives, and
/// only requests in flight at the kill arrive twice. Prints the time to start and to drain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long, and 10 GiB of disk"]
async fn torture_a_backlog_of_10_gib() {
    const LIMIT_MIB: u64 = 256;
    let _alone = alone().await;
    let gib = std::env::var("SLUICE_TORTURE_BACKLOG_GIB")
        .map_or(10, |text| text.parse::<u64>().expect("a number"));
    let place = Place::folder();
    let backend = dead_backend().await;
    let buffer = format!(
        "  policy: backpressure\n  memory:\n    limit_mib: {LIMIT_MIB}\n  disk:\n    limit_mib: {}\n",
        2 * gib * 1024
    );
    let config =
        disk::config(&place.directory(), "delivered_or_durable", &[("backend", &backend)], &buffer);
    let gateway = Gateway::start(&config).await;
    let load = gateway.load(Signal::Traces).items_per_request(500);
    let spans = ((gib << 30) as f64 / load.shape.bytes_per_item()) as u64;
    let began = Instant::now();
    let report = load.items(spans).run().await.expect("a load");
    let bytes = report.bytes_sent as f64;
    println!(
        "{:.1} GiB accepted at {:.0} MB/s",
        bytes / (1u64 << 30) as f64,
        bytes / 1e6 / began.elapsed().as_secs_f64()
    );
    assert_eq!((report.accepted, report.failed), (report.offered, 0), "{:?}", report.messages);
    gateway.assert_memory_within(LIMIT_MIB);
    drop(gateway);

    let began = Instant::now();
    let gateway = Gateway::start(&config).await;
    println!(
        "ready {:?} after kill -9, with {} segments",
        began.elapsed(),
        disk::segments(&place.directory()).len()
    );
    backend.faults().clear();
    let began = Instant::now();
    assert_all_arrives(std::slice::from_ref(&report), &backend, Duration::from_secs(600)).await;
    println!("drained at {:.0} MB/s", bytes / 1e6 / began.elapsed().as_secs_f64());
    assert_eq!(backend.counts().doubled, 0, "nothing had been delivered before the kill");
    gateway.assert_memory_within(LIMIT_MIB);
    let freed = eventually(SOON, async || disk::segments(&place.directory()).len() <= 2).await;
    assert!(freed, "{} segments stay", disk::segments(&place.directory()).len());
}
