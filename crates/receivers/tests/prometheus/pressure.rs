//! An engine that refuses, waits, or has little memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::Engine;
use crate::scene::{Scene, job};
use crate::server::{Server, page};

/// Scenario: the engine admits nothing for a while, and refuses what it admitted. Guarantee: such
/// scrapes are lost and counted; no series ends for it, and new values come when it takes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_scrapes_are_lost_and_no_series_ends() {
    let server = Server::with_page("a 1\n").await;
    let scene = Scene::start(&job("j", &[server.address], "")).await;
    scene.until_points("j a{}", 2).await;
    for switch in [&scene.engine.is_closed, &scene.engine.refuses] {
        switch.store(true, Ordering::SeqCst);
        let refused = || scene.metric("sluice_receiver_refused_requests", "\"overloaded\"");
        let before = refused();
        crate::scene::until("three are refused", || refused() >= before + 3.0).await;
        let points = scene.engine.of("j a{}").len();
        switch.store(false, Ordering::SeqCst);
        scene.until_points("j a{}", points + 2).await;
    }
    assert!(scene.engine.values("j a{}").iter().all(|value| *value == Some(1.0)));
    assert!(scene.engine.values("j up{}").iter().all(|value| *value == Some(1.0)));
    assert_eq!(scene.metric("sluice_prometheus_failed_scrapes", ""), 0.0);
}

/// Scenario: deliveries are behind. Guarantee: a target waits with its next scrape, and the ones
/// that it left out are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_wait_while_deliveries_are_behind() {
    let server = Server::with_page("a 1\n").await;
    let engine = Engine { is_behind: AtomicBool::new(true), ..Engine::default() };
    let target = job("j", &[server.address], "");
    let scene = Scene::start_with(&target, "", engine, 64 << 20).await;
    scene.until_points("j a{}", 1).await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(server.heads.lock().len(), 1);
    scene.engine.is_behind.store(false, Ordering::SeqCst);
    scene.until_points("j a{}", 3).await;
    let missed = scene.metric("sluice_prometheus_missed_scrapes", "");
    assert!((3.0..=8.0).contains(&missed), "{missed}");
}

/// Scenario: a target with few series is scraped; then ones come with more than the memory for
/// series. Guarantee: they are down for that reason, the memory keeps its limit, and the first goes
/// on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_without_memory_for_their_series_are_down() {
    const MEMORY_BYTES: usize = 400_000;
    let small = Server::with_page("a 1\n").await;
    let large = async || {
        let text: String = (0..3000).map(|at| format!("b{{n=\"{at}\"}} {at}\n")).collect();
        Server::start(move |_| page(&text)).await
    };
    let (first, second) = (large().await, large().await);
    let jobs =
        job("small", &[small.address], "") + &job("large", &[first.address, second.address], "");
    let scene = Scene::start_with(&jobs, "", Engine::default(), MEMORY_BYTES).await;
    scene.until_points("small a{}", 1).await;
    scene.until_last("large up{}", Some(0.0)).await;
    let failed = || scene.metric("sluice_prometheus_failed_scrapes", "reason=\"memory\"");
    crate::scene::until("it is counted", || failed() >= 4.0).await;
    scene.until_points("small a{}", scene.engine.of("small a{}").len() + 2).await;
    assert_eq!(scene.engine.last("small up{}"), Some(Some(1.0)));
    assert_eq!(scene.engine.of("large b{n=1}"), []);
    let used = scene.metric("sluice_prometheus_series_bytes", "");
    assert!(used <= MEMORY_BYTES as f64, "{used}");
}

/// Scenario: more targets than the memory has room for. Guarantee: some are scraped, the rest is
/// counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_beyond_the_memory_are_counted() {
    let mut servers = Vec::new();
    for _ in 0..4 {
        servers.push(Server::with_page("a 1\n").await);
    }
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let target = job("j", &addresses, "");
    let scene = Scene::start_with(&target, "", Engine::default(), 60 << 10).await;
    let unscraped = || scene.metric("sluice_prometheus_unscraped_targets", "");
    crate::scene::until("some are not scraped", || unscraped() >= 1.0).await;
    scene.until_points("j up{}", 4).await;
    let scraped = scene.metric("sluice_prometheus_targets", "");
    assert!(scraped >= 1.0 && scraped + unscraped() == 4.0, "{scraped} {}", unscraped());
}
