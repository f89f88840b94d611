//! A disk without room: no space, no inodes, no file descriptors. Senders get a retryable refusal,
//! and the gateway goes on by itself when there is room again.

mod disk;
mod gateway;
#[path = "../../log/tests/support/mounted.rs"]
mod mounted;

use std::process::Command;
use std::time::{Duration, Instant};

use disk::place::Place;
use disk::{assert_all_arrives, dead_backend};
use gateway::{Gateway, SOON, alone, assert_all_accepted, assert_arrives_once, eventually};
use mounted::FileSystem;
use sluice_load_test::{Backend, Faults, LoadReport, RunningLoad};
use sluice_otlp::Signal;

const MIB: u64 = 1 << 20;
/// A limit above the size of these tests' file systems: the disk itself refuses.
const BUFFER: &str = "  policy: backpressure\n  disk:\n    limit_mib: 100000\n    segment_mib: 1\n";
/// More items than any of the file systems holds.
const TOO_MANY: u64 = 1_000_000;
const POISON_EVERY: u64 = 100;
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

async fn start(place: &Place, backend: &Backend) -> Gateway {
    Gateway::start(&disk::config(&place.directory(), "durable", &[("backend", backend)], BUFFER))
        .await
}

/// Sends this many spans, which are all accepted.
async fn accepted(gateway: &Gateway, spans: u64) -> LoadReport {
    let report =
        gateway.load(Signal::Traces).items(spans).concurrency(1, 4).run().await.expect("a load");
    assert_eq!(report.accepted, spans, "{:?}\n{}", report.messages, gateway.output());
    report
}

fn turned_away(running: &RunningLoad) -> bool {
    let report = running.report();
    report.refused + report.failed > 0
}

/// Sends until it has been refused for a while. Some of the items are poisonous for a backend that
/// looks at them.
async fn until_refused(gateway: &Gateway) -> LoadReport {
    let mut load = gateway.load(Signal::Traces).items(TOO_MANY).concurrency(2, 4);
    load.poison_every = Some(POISON_EVERY);
    load.timeout = Duration::from_secs(20);
    let mut running = load.start().expect("a load");
    let refused = eventually(Duration::from_secs(30), async || turned_away(&running)).await;
    assert!(
        refused,
        "{} accepted and nothing refused:\n{}",
        running.report().accepted,
        gateway.output()
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.stop();
    let report = running.finish().await.expect("a load");
    let ended = (report.failed, report.unanswered, report.refusals_without_delay);
    assert_eq!(
        ended,
        (0, 0, 0),
        "failed, unanswered, not told when to come back: {:?}",
        report.messages
    );
    report
}

/// Waits until a load is accepted whole again, without a restart.
async fn until_accepted(gateway: &Gateway) -> Vec<LoadReport> {
    let mut reports = Vec::new();
    let began = Instant::now();
    loop {
        let report = gateway
            .load(Signal::Traces)
            .items(1_000)
            .concurrency(1, 4)
            .run()
            .await
            .expect("a load");
        let is_whole = report.accepted == 1_000;
        let messages = report.messages.clone();
        reports.push(report);
        if is_whole {
            return reports;
        }
        assert!(began.elapsed() < SOON, "still refused: {messages:?}\n{}", gateway.output());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Scenario: something that the directory needs is taken away while the backend is dead and senders
/// wait for the disk, and is given back; a kill; the backend comes back. Guarantee: refusals with a
/// delay, then acceptance without a restart; everything acknowledged arrives once.
async fn refuses_and_recovers<T>(place: &Place, take_away: impl FnOnce(&Gateway) -> T) {
    let _alone = alone().await;
    let backend = dead_backend().await;
    let gateway = start(place, &backend).await;
    let mut reports = vec![accepted(&gateway, 1_000).await];
    let taken = take_away(&gateway);
    reports.push(until_refused(&gateway).await);
    drop(taken);
    reports.extend(until_accepted(&gateway).await);
    drop(gateway);
    backend.faults().clear();
    let gateway = start(place, &backend).await;
    assert_all_arrives(&reports, &backend, ARRIVES_WITHIN).await;
    assert_eq!(backend.counts().doubled, 0, "nothing was delivered before the end");
    drop(gateway);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_space_on_ext4() {
    let Some(place) = Place::mounted(FileSystem::Ext4 { mib: 128 }) else { return };
    refuses_and_recovers(&place, |_| place.mount().fill_but(5 * MIB)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_space_on_tmpfs() {
    let Some(place) = Place::mounted(FileSystem::Tmpfs { mib: 64, inodes: 10_000 }) else { return };
    refuses_and_recovers(&place, |_| place.mount().fill_but(5 * MIB)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_inodes() {
    let Some(place) = Place::mounted(FileSystem::Tmpfs { mib: 256, inodes: 500 }) else { return };
    refuses_and_recovers(&place, |_| place.mount().take_inodes()).await;
}

/// Scenario: a backlog with poison in each segment is on a full disk; other files take all but 256
/// KiB of the rest; the backend comes back and refuses the poison. Guarantee: it gets all other
/// items, the poison becomes dead letters, and the space is free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_full_of_poison_becomes_free() {
    let Some(place) = Place::mounted(FileSystem::Tmpfs { mib: 64, inodes: 10_000 }) else { return };
    let _alone = alone().await;
    let backend = dead_backend().await;
    let gateway = start(&place, &backend).await;
    let ballast = place.mount().fill_but(24 * MIB);
    let report = until_refused(&gateway).await;
    let more_ballast = place.mount().fill_but(MIB / 4);
    backend.faults().set(Faults::rejecting_poison());
    let poisonous = report.accepted.div_ceil(POISON_EVERY);
    let left = || (report.missing_at(&backend), disk::segments(&place.directory()).len());
    let is_free = eventually(ARRIVES_WITHIN, async || left().0 <= poisonous && left().1 < 3).await;
    assert!(is_free, "{:?} of {poisonous}:\n{}", left(), gateway.output());
    assert!(left().0 > poisonous / 2, "{:?} of {poisonous}", left());
    drop((ballast, more_ballast));
}

/// Scenario: the only backend of logs is dead, and one of two of traces; other files take ever more
/// of the disk, and go. Guarantee: no sender is refused or waits for long; only the oldest data of
/// dead deliveries is dropped, whichever signal needs space; then the limit applies again.
async fn the_oldest_goes(place: &Place, buffer: &str) {
    let _alone = alone().await;
    let (dead, healthy) = (dead_backend().await, Backend::healthy().await.expect("a backend"));
    let backends = [("healthy", &healthy), ("dead", &dead)];
    let disk = "  disk:\n    limit_mib: 64\n    segment_mib: 1\n";
    let config =
        disk::config(&place.directory(), "durable", &backends, &(disk.to_owned() + buffer))
            + "    logs/dead:\n      receivers: [otlp]\n      exporters: [otlp/dead]\n      \
           buffer:\n        policy: drop_oldest\n";
    let gateway = Gateway::start(&config).await;
    let limit_bytes = async || gateway.metric("sluice_backlog_pool_limit_bytes", &[]).await;
    let configured_bytes = limit_bytes().await;
    let ballast = place.mount().fill_but(32 * MIB);
    let load = |signal| {
        let load = gateway.load(signal).rate(4_000.0).concurrency(2, 32);
        load.duration(Duration::from_secs(8)).start().expect("a load")
    };
    let mut traces = load(Signal::Traces);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let more_ballast = place.mount().fill_but(8 * MIB);
    let traces = traces.finish().await.expect("a load");
    let logs = load(Signal::Logs).finish().await.expect("a load");
    for report in [&traces, &logs] {
        assert_all_accepted(report);
        let waited = report.acknowledged_after;
        assert!(waited.p50 < Duration::from_millis(250), "{waited:?}\n{}", gateway.output());
    }
    assert_arrives_once(&traces, &healthy, SOON).await;
    let dropped = async |labels| gateway.metric("sluice_delivery_dropped_items", labels).await;
    assert!(dropped(&[("exporter", "otlp/dead")]).await > 10_000.0);
    assert_eq!(dropped(&[("exporter", "otlp/healthy")]).await, 0.0);

    drop((ballast, more_ballast));
    let is_free = eventually(SOON, async || limit_bytes().await == configured_bytes).await;
    assert!(is_free, "{} of {configured_bytes} bytes", limit_bytes().await);
    let newest = accepted(&gateway, 1_000).await;
    dead.faults().clear();
    assert_all_arrives(&[newest], &dead, ARRIVES_WITHIN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_goes_on_ext4() {
    let Some(place) = Place::mounted(FileSystem::Ext4 { mib: 128 }) else { return };
    the_oldest_goes(&place, "  memory:\n    limit_mib: 96\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_goes_on_tmpfs() {
    let Some(place) = Place::mounted(FileSystem::Tmpfs { mib: 64, inodes: 10_000 }) else { return };
    the_oldest_goes(&place, "").await;
}

/// The file system reports free space, and refuses all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_goes_without_inodes() {
    let Some(place) = Place::mounted(FileSystem::Tmpfs { mib: 64, inodes: 40 }) else { return };
    the_oldest_goes(&place, "").await;
}

/// Lets the gateway have no further descriptor, until it is dropped.
struct NoDescriptors {
    pid: u32,
}

impl NoDescriptors {
    fn of(gateway: &Gateway) -> NoDescriptors {
        let pid = gateway.pid();
        // Open descriptors stay open; any further one would have a higher number.
        limit_descriptors(pid, 3);
        NoDescriptors { pid }
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        limit_descriptors(self.pid, 10_000);
    }
}

fn limit_descriptors(pid: u32, limit: u64) {
    let limit = format!("--nofile={limit}:");
    let status = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &limit])
        .status()
        .expect("prlimit runs");
    assert!(status.success());
}

/// Lets the gateway make no file longer, until it is dropped.
struct NoLongFiles {
    pid: u32,
}

impl NoLongFiles {
    fn of(gateway: &Gateway) -> NoLongFiles {
        limit_file_size(gateway.pid(), "40000");
        NoLongFiles { pid: gateway.pid() }
    }
}

impl Drop for NoLongFiles {
    fn drop(&mut self) {
        limit_file_size(self.pid, "unlimited");
    }
}

fn limit_file_size(pid: u32, bytes: &str) {
    let limit = format!("--fsize={bytes}:");
    let pid = pid.to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
    assert!(status.expect("prlimit runs").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_room_in_files() {
    refuses_and_recovers(&Place::folder(), NoLongFiles::of).await;
}

/// As above, with senders that are connected already: no other sender can connect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_file_descriptors() {
    let _alone = alone().await;
    let place = Place::folder();
    let backend = dead_backend().await;
    let gateway = start(&place, &backend).await;
    let load = || gateway.load(Signal::Traces).concurrency(1, 4);
    let mut reports = vec![accepted(&gateway, 1_000).await];
    let mut endless = load().duration(Duration::from_secs(60));
    endless.timeout = Duration::from_secs(20);
    let mut running = endless.start().expect("a load");
    let flows = eventually(SOON, async || running.report().accepted > 0).await;
    assert!(flows, "{}", gateway.output());
    let none_left = NoDescriptors::of(&gateway);
    let refused = eventually(Duration::from_secs(30), async || turned_away(&running)).await;
    assert!(
        refused,
        "{} accepted and nothing refused:\n{}",
        running.report().accepted,
        gateway.output()
    );
    drop(none_left);
    let before = running.report().accepted;
    let again = eventually(SOON, async || running.report().accepted > before).await;
    assert!(again, "still refused:\n{}", gateway.output());
    running.stop();
    let report = running.finish().await.expect("a load");
    let ended = (report.failed, report.unanswered, report.refusals_without_delay);
    assert_eq!(
        ended,
        (0, 0, 0),
        "failed, unanswered, not told when to come back: {:?}",
        report.messages
    );
    reports.push(report);
    reports.extend(until_accepted(&gateway).await);
    drop(gateway);
    backend.faults().clear();
    let gateway = start(&place, &backend).await;
    assert_all_arrives(&reports, &backend, ARRIVES_WITHIN).await;
    drop(gateway);
}

/// Scenario: a full disk stays full, and the gateway is killed and started again on it; then the
/// backend comes back. Guarantee: it starts, delivers everything acknowledged, and the space that
/// comes free that way is enough to go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_becomes_free_by_delivery() {
    let Some(place) = Place::mounted(FileSystem::Ext4 { mib: 128 }) else { return };
    let _alone = alone().await;
    let backend = dead_backend().await;
    let gateway = start(&place, &backend).await;
    let mut reports = vec![accepted(&gateway, 1_000).await];
    let ballast = place.mount().fill_but(10 * MIB);
    reports.push(until_refused(&gateway).await);
    let more_ballast = place.mount().fill_but(0);
    drop(gateway);

    let gateway = start(&place, &backend).await;
    backend.faults().clear();
    assert_all_arrives(&reports, &backend, ARRIVES_WITHIN).await;
    let more = until_accepted(&gateway).await;
    drop(gateway);
    let gateway = start(&place, &backend).await;
    assert_all_arrives(&more, &backend, ARRIVES_WITHIN).await;
    drop((ballast, more_ballast, gateway));
}
