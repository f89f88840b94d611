//! Reloads that change a receiver that fetches.

use std::time::Duration;

use sluice_config::SystemEnvironment;
use sluice_engine::plan;
use tokio::net::TcpListener;

use super::{RECEIVERS, append, backend, config, metric, start, until};

fn read(config: &str) -> plan::Plan {
    let (plan, diagnostics) =
        plan::load_with(&[format!("yaml:{config}")], &SystemEnvironment, &RECEIVERS);
    plan.unwrap_or_else(|| panic!("{}", diagnostics.render(false)))
}

/// Scenario: the backend is down, all is read and waits in memory; then an option of the reader
/// changes, again and again. Guarantee: nothing is read again, and each line arrives once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_is_not_read_again_by_a_reader_that_a_reload_changed() {
    const LINES: u32 = 2000;
    let folder = tempfile::tempdir().expect("a folder");
    let backend = backend::free_address().await;
    let config = config(folder.path(), backend, "memory");
    append(folder.path(), "a.log", 0..LINES, "");
    let length = || std::fs::metadata(folder.path().join("a.log")).expect("is there").len();
    let mut engine = start(&config).await;
    let metrics = engine.metrics_address().expect("there are metrics");
    until("all is read", async || metric(metrics, "lines_read{").await == length()).await;
    for include in ["*log", "*.log", "*log"] {
        engine.reload(read(&config.replace("*.log", include))).await.expect("reloads");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(metric(metrics, "lines_read{").await, 0, "nothing is new");
    }
    append(folder.path(), "a.log", LINES..LINES + 1, "");
    let taken = backend::serve(TcpListener::bind(backend).await.expect("is free"), 0);
    let checkpoint = || std::fs::read_to_string(folder.path().join("checkpoint"));
    until("the checkpoint is at the end", async || {
        checkpoint().is_ok_and(|text| text == format!("{} a.log\n", length()))
    })
    .await;
    engine.shutdown(Duration::from_secs(5)).await;
    let taken = taken.lock().expect("is not poisoned");
    assert_eq!(taken.len() as u32, LINES + 1);
    assert!(taken.values().all(|times| *times == 1));
}

/// Scenario: an option of the reader changes now and then while files grow, and the reader goes and
/// comes back. Guarantee: each line arrives once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_while_a_reader_reads_delivers_each_line_once() {
    const LINES: u32 = 40_000;
    const RELOADS: u32 = 10;
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let backend = listener.local_addr().expect("an address");
    let taken = backend::serve(listener, 0);
    let config = config(folder.path(), backend, "memory");
    let other = config.replace("[lines]", "[lines/other]").replace("{lines:", "{lines/other:");
    let other = other.replace("*.log", "*.none");
    let mut engine = start(&config).await;
    for reload in 0..RELOADS {
        let part = LINES / RELOADS;
        append(folder.path(), "a.log", part * reload..part * (reload + 1), &"x".repeat(27));
        tokio::time::sleep(Duration::from_millis(15)).await;
        let changed = match reload % 3 {
            0 => config.replace("*.log", "*log"),
            1 => other.clone(),
            _ => config.clone(),
        };
        engine.reload(read(&changed)).await.expect("reloads");
    }
    let count = || taken.lock().expect("is not poisoned").len() as u32;
    until("all lines arrive", async || count() == LINES).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    engine.shutdown(Duration::from_secs(5)).await;
    assert!(taken.lock().expect("is not poisoned").values().all(|times| *times == 1));
}
