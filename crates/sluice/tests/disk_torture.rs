//! A disk that misbehaves for an hour (`SLUICE_TORTURE_SECONDS`): it fails, is full, slow, hangs
//! and is read-only for seconds each, in random order, under load with three backends of which one
//! is dead. Then that one comes back.

mod disk;
mod gateway;
#[path = "../../log/tests/support/mounted.rs"]
mod mounted;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use disk::dead_backend;
use disk::faulty_mount::{Behaviour, FaultyMount};
use gateway::{Gateway, MIB, alone, eventually};
use mounted::{FileSystem, Mounted};
use sluice_load_test::{Backend, LoadReport, Retry};
use sluice_otlp::Signal;

const SECONDS: &str = "SLUICE_TORTURE_SECONDS";
const SPANS_PER_S: u64 = 1_000;
/// Of a span on disk, at most.
const SPAN_BYTES: u64 = 600;
const LIMIT_MIB: u64 = 192;
/// A disk that refuses a block for ten seconds has lost it.
const LONGEST_MS: u64 = 6_000;
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// A disk's kind of misbehaviour, for a while.
fn misbehave(number: usize, mount: &FaultyMount, file_system: &Mounted) -> &'static str {
    let lasts = Duration::from_millis(fastrand::u64(200..LONGEST_MS));
    let (what, behaviour) = match number % 6 {
        0 => ("errors now and then", Behaviour::Errors(0.2)),
        1 => ("errors", Behaviour::Errors(1.0)),
        2 => ("slow", Behaviour::Slow(Duration::from_millis(300))),
        3 => ("hangs", Behaviour::Hangs),
        4 => ("read-only", Behaviour::ReadOnly),
        _ => ("full", Behaviour::Healthy),
    };
    let ballast = (what == "full").then(|| file_system.fill_but(fastrand::u64(..4) * MIB / 2));
    mount.behave(behaviour);
    std::thread::sleep(lasts);
    mount.behave(Behaviour::Healthy);
    drop(ballast);
    what
}

/// Misbehaves in random order until the time is over. Returns the number of times by kind.
fn torture(
    lasts: Duration,
    mount: &FaultyMount,
    file_system: &Mounted,
) -> BTreeMap<&'static str, u32> {
    let began = Instant::now();
    let mut times = BTreeMap::new();
    let mut order = Vec::new();
    while began.elapsed() + Duration::from_millis(LONGEST_MS) < lasts {
        if order.is_empty() {
            order = (0..6).collect();
            fastrand::shuffle(&mut order);
        }
        let what = misbehave(order.pop().unwrap_or(0), mount, file_system);
        *times.entry(what).or_default() += 1;
        std::thread::sleep(Duration::from_millis(fastrand::u64(100..4_000)));
    }
    times
}

/// One pipeline for each of two healthy backends and a dead one.
fn config(directory: &Path, backends: &[(&str, &Backend)], disk_mib: u64) -> String {
    let buffer =
        format!("  memory:\n    limit_mib: {LIMIT_MIB}\n  disk:\n    limit_mib: {disk_mib}\n");
    disk::config(directory, "delivered_or_durable", backends, &buffer)
}

/// Guarantee: everything acknowledged arrives at the healthy backends; of the dead one's, exactly
/// that is missing which counts as dropped; the process goes on by itself, within its memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "an hour long"]
async fn torture_a_disk_that_misbehaves() {
    let seconds =
        std::env::var(SECONDS).map_or(3_600, |text| text.parse::<u64>().expect("a number"));
    let disk_mib = 256 + (seconds * SPANS_PER_S * SPAN_BYTES).div_ceil(MIB);
    let image = FileSystem::Ext4 { mib: disk_mib + disk_mib / 4 };
    let Some(file_system) = Mounted::new(image) else { return };
    let _alone = alone().await;
    let mount = FaultyMount::of(file_system.path()).expect("FUSE mounts (/dev/fuse, root)");
    let directory = mount.path().join("buffer");
    let [one, two] = [Backend::healthy().await, Backend::healthy().await];
    let (one, two, dead) = (one.expect("a backend"), two.expect("a backend"), dead_backend().await);
    let backends = [("one", &one), ("two", &two), ("dead", &dead)];
    let gateway = Gateway::start(&config(&directory, &backends, disk_mib)).await;
    let pid = gateway.pid();

    let lasts = Duration::from_secs(seconds);
    let mut load = gateway.load(Signal::Traces).rate(SPANS_PER_S as f64).duration(lasts);
    load = load.concurrency(4, 64).retry(Retry::SDK);
    load.timeout = Duration::from_secs(30);
    let mut running = load.start().expect("a load");
    let times = tokio::task::block_in_place(|| torture(lasts, &mount, &file_system));
    let report = running.finish().await.expect("a load");
    let share = |items: u64| 100.0 * items as f64 / report.offered as f64;
    println!("{seconds} s, {times:?}");
    println!(
        "of {} items offered: accepted {} ({:.2} %), refused {}, never sent {}, failed {}",
        report.offered,
        report.accepted,
        share(report.accepted),
        report.refused,
        report.never_sent,
        report.failed
    );

    for (name, backend) in &backends[..2] {
        let arrived = eventually(SETTLES_WITHIN, async || report.missing_at(backend) == 0).await;
        println!("{name} got {:.2} % of what was offered", share(backend.unique_items()));
        assert!(arrived, "{name}: {} missing\n{}", report.missing_at(backend), gateway.output());
    }
    assert_eq!((report.failed, report.unanswered), (0, 0), "{:?}", report.messages);
    let works = async || gateway.metric("sluice_log_trouble", &[]).await == 0.0;
    assert!(eventually(SETTLES_WITHIN, works).await, "{}", gateway.output());

    dead.faults().clear();
    let dropped = async || {
        gateway.metric("sluice_delivery_dropped_items", &[("exporter", "otlp/dead")]).await as u64
    };
    let drained = async || gateway.metric("sluice_delivery_backlog_items", &[]).await == 0.0;
    let limit = SETTLES_WITHIN + lasts / 4;
    assert!(eventually(limit, drained).await, "{}", gateway.output());
    let missing = |report: &LoadReport| report.missing_at(&dead);
    println!("the dead one: {} missing, {} dropped", missing(&report), dropped().await);
    assert!(missing(&report) <= dropped().await, "{}", gateway.output());
    for lost in ["sluice_delivery_lost_items", "sluice_log_set_aside_files"] {
        assert_eq!(gateway.metric(lost, &[]).await, 0.0, "{lost}\n{}", gateway.output());
    }
    assert_eq!((gateway.pid(), gateway.health().await.map(|it| it.0)), (pid, Some(200)));
    println!("{} MiB resident at most", gateway.usage().peak_rss_bytes / MIB);
    gateway.assert_memory_within(LIMIT_MIB);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    let verified = command.args(["log", "verify"]).arg(&directory).output().expect("it runs");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    drop(gateway);
}
