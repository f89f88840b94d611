//! Crashes at random moments under load: acknowledged data arrives, and hardly any of it twice.

mod disk;
mod gateway;
#[path = "../../log/tests/support/mounted.rs"]
mod mounted;

use std::time::Duration;

use disk::lives::{Crash, Lives};
use disk::place::Place;
use disk::{assert_all_arrives, config, dead_backend};
use gateway::{Gateway, alone};
use mounted::FileSystem;
use sluice_otlp::Signal;

const ARRIVES_WITHIN: Duration = Duration::from_secs(30);
const IMAGE: FileSystem = FileSystem::Ext4 { mib: 2048 };

/// Scenario: the process dies at random moments, under load, before two backends that are healthy,
/// slow or dead in turn, with `durable` and `delivered_or_durable` in turn. Guarantee: everything
/// acknowledged arrives at both; twice only items that were delivered just before a crash.
async fn crashes_lose_nothing(place: Place, crash: Crash, times: usize) {
    let _alone = alone().await;
    let mut lives = Lives::new(place, crash).await;
    for number in 1..=times {
        lives.live().await;
        if number % 100 == 0 {
            println!("{number} of {times}");
        }
    }
    lives.assert_nothing_is_lost(ARRIVES_WITHIN * (1 + times as u32 / 50)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_at_random_moments() {
    crashes_lose_nothing(Place::folder(), Crash::Kill, 30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half an hour long"]
async fn torture_kill_at_random_moments() {
    crashes_lose_nothing(Place::folder(), Crash::Kill, 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_cuts_at_random_moments() {
    let Some(place) = Place::mounted(IMAGE) else { return };
    crashes_lose_nothing(place, Crash::PowerCut, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a quarter of an hour long"]
async fn torture_power_cuts_at_random_moments() {
    let Some(place) = Place::mounted(IMAGE) else { return };
    crashes_lose_nothing(place, Crash::PowerCut, 500).await;
}

/// Guarantee: the same on a disk whose faults come and go, at starts too: errors, delays, calls
/// that hang, read-only for moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_on_a_disk_with_faults() {
    let Some(place) = Place::troubled(IMAGE) else { return };
    crashes_lose_nothing(place, Crash::Kill, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half an hour long"]
async fn torture_kill_on_a_disk_with_faults() {
    let Some(place) = Place::troubled(IMAGE) else { return };
    crashes_lose_nothing(place, Crash::Kill, 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_cuts_on_a_disk_with_faults() {
    let Some(place) = Place::troubled(IMAGE) else { return };
    crashes_lose_nothing(place, Crash::PowerCut, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a quarter of an hour long"]
async fn torture_power_cuts_on_a_disk_with_faults() {
    let Some(place) = Place::troubled(IMAGE) else { return };
    crashes_lose_nothing(place, Crash::PowerCut, 500).await;
}

/// Scenario: a backlog, then ten starts in a row that are killed, each within its first moments.
/// Guarantee: the eleventh delivers everything that was acknowledged before, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_crashes_during_recovery() {
    let _alone = alone().await;
    let place = Place::folder();
    let backend = dead_backend().await;
    let config = config(
        &place.directory(),
        "durable",
        &[("backend", &backend)],
        "  disk:\n    segment_mib: 1\n",
    );
    let gateway = Gateway::start(&config).await;
    let report =
        gateway.load(Signal::Traces).items(20_000).concurrency(2, 8).run().await.expect("a load");
    assert_eq!(report.accepted, 20_000, "{:?}", report.messages);
    drop(gateway);
    assert!(disk::segments(&place.directory()).len() > 5, "the test is about several segments");

    for attempt in 0..10 {
        let starting = Gateway::start(&config);
        // From before the first system call until a moment after it listens.
        let _ = tokio::time::timeout(Duration::from_millis(attempt * 5), starting).await;
    }
    backend.faults().clear();
    let gateway = Gateway::start(&config).await;
    assert_all_arrives(std::slice::from_ref(&report), &backend, ARRIVES_WITHIN).await;
    assert_eq!(backend.counts().doubled, 0);
    drop(gateway);
}
