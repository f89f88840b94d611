//! `filelog` in a real engine: killed, before a backend that is down, and reloaded.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use sluice_config::SystemEnvironment;
use sluice_engine::{Undelivered, plan};
use tokio::net::TcpListener;

use super::{MEMORY_LIMIT_MIB, Process, append, backend, metric, start, until};

fn config(folder: &Path, backend: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "receivers: {{filelog: {{include: ['{folder}/*.log'], start_at: beginning, \
         storage: file_storage}}}}\n\
         exporters: {{otlphttp: {{endpoint: 'http://{backend}', compression: none}}}}\n\
         extensions: {{file_storage: {{directory: '{folder}'}}}}\n\
         buffer: {{memory: {{limit_mib: {MEMORY_LIMIT_MIB}}}}}\n\
         service:\n  extensions: [file_storage]\n  \
         telemetry: {{metrics: {{readers: [{{pull: {{exporter: {{prometheus: \
         {{host: 127.0.0.1, port: 0}}}}}}}}]}}}}\n  \
         pipelines:\n    logs: {{receivers: [filelog], exporters: [otlphttp]}}\n"
    )
}

/// Scenario: the process is killed again and again while it reads files that grow and rotate, and
/// its backend refuses a third. Guarantee: each line arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_while_files_rotate_loses_no_line() {
    const FILES: [&str; 3] = ["a.log", "b.log", "c.log"];
    const LINES: u32 = 3000;
    const ROUNDS: u32 = 8;
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let config = config(folder.path(), listener.local_addr().expect("an address"));
    let taken = backend::serve(listener, 3);
    let count = || taken.lock().expect("is not poisoned").len();
    for round in 0..ROUNDS {
        let numbers = LINES * round..LINES * (round + 1);
        let process = Process::start(&config).await;
        let before = count();
        for file in FILES {
            append(folder.path(), file, numbers.clone(), "");
            let rotated = folder.path().join(format!("{file}.{round}.log"));
            if fastrand::bool() {
                std::fs::rename(folder.path().join(file), rotated).expect("is renamed");
            }
        }
        until("something arrives", async || count() > before).await;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..1500))).await;
        process.kill().await;
    }
    let process = Process::start(&config).await;
    let total = FILES.len() * (LINES * ROUNDS) as usize;
    until("all lines arrive", async || count() == total).await;
    process.kill().await;
}

/// Scenario: a backend that is down, and a file that is larger than all the memory. Guarantee:
/// reading stops, memory keeps its limit, and each line arrives once when the backend is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_its_own_queue_while_the_backend_is_down() {
    const LINES: u32 = 120_000;
    let folder = tempfile::tempdir().expect("a folder");
    let backend = backend::free_address().await;
    append(folder.path(), "a.log", 0..LINES, &"x".repeat(1000));
    let process = Process::start(&config(folder.path(), backend)).await;
    let read_bytes = async || process.metric("sluice_filelog_read_bytes").await;
    let stands = async || {
        let before = read_bytes().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        before > 0 && before == read_bytes().await
    };
    until("reading stops", stands).await;
    let (peak, limit) = (process.peak_bytes(), MEMORY_LIMIT_MIB << 20);
    assert!(peak <= limit + limit / 10, "{peak} bytes resident");
    let taken = backend::serve(TcpListener::bind(backend).await.expect("is free"), 0);
    let all = async || taken.lock().expect("is not poisoned").len() == LINES as usize;
    until("all lines arrive", all).await;
    assert!(taken.lock().expect("is not poisoned").values().all(|times| *times == 1));
    process.kill().await;
}

/// Scenario: an option changes while nothing is delivered, then the process ends. Guarantee:
/// nothing is read again, neither by the next receiver nor after the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_and_an_orderly_end_read_nothing_again() {
    const LINES: u32 = 2000;
    let folder = tempfile::tempdir().expect("a folder");
    let backend = backend::free_address().await;
    let config = config(folder.path(), backend);
    append(folder.path(), "a.log", 0..LINES, "");
    let mut engine = start(&config).await;
    let metrics = engine.metrics_address().expect("there are metrics");
    let records = async || metric(metrics, "otelcol_receiver_accepted_log_records").await;
    until("all is read", async || records().await == u64::from(LINES)).await;
    for interval in ["1s", "2s", "3s"] {
        let changed = config.replace("start_at", &format!("poll_interval: {interval}, start_at"));
        let locations = [format!("yaml:{changed}")];
        let (plan, said) = plan::load(&locations, &SystemEnvironment);
        let plan = plan.unwrap_or_else(|| panic!("{}", said.render(false)));
        engine.reload(plan).await.expect("reloads");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(records().await, u64::from(LINES), "nothing is new");
    }
    let taken = backend::serve(TcpListener::bind(backend).await.expect("is free"), 0);
    let count = || taken.lock().expect("is not poisoned").len() as u32;
    append(folder.path(), "a.log", LINES..LINES + 1, "");
    until("all lines arrive", async || count() == LINES + 1).await;
    engine.shutdown(Duration::from_secs(5)).await;
    append(folder.path(), "a.log", LINES + 1..LINES + 2, "");
    let engine = start(&config).await;
    until("the last line arrives", async || count() == LINES + 2).await;
    engine.shutdown(Duration::from_secs(5)).await;
    assert!(taken.lock().expect("is not poisoned").values().all(|times| *times == 1));
}

/// Scenario: an orderly end while the backend is down. Guarantee: lines of files are not reported
/// as lost, as the next start reads them again; those of a receiver without a checkpoint are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_are_read_again_are_not_reported_as_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(folder.path(), backend::free_address().await);
    let forgetful = config.replace("storage: file_storage", "");
    append(folder.path(), "a.log", 0..100, "");
    for (config, expected) in [(config, (0, 100)), (forgetful, (100, 0))] {
        let engine = start(&config).await;
        let metrics = engine.metrics_address().expect("there are metrics");
        let records = async || metric(metrics, "otelcol_receiver_accepted_log_records").await;
        until("all is read", async || records().await == 100).await;
        let report = engine.shutdown(Duration::from_millis(100)).await;
        let items = |them: &[Undelivered]| them.iter().map(|it| it.items).sum::<u64>();
        assert_eq!((items(&report.lost), items(&report.read_again)), expected);
        assert!(report.kept.is_empty() && report.unwritten.is_empty());
    }
}
