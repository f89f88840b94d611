//! `sluice log` on the directory of a gateway: while it runs, and between two of its lives.

mod gateway;
mod log_directory;

use std::path::Path;

use gateway::{Gateway, SOON, assert_arrives_once, eventually, fan_out, faulty_backend};
use log_directory::run;
use serde_json::Value;
use sluice_load_test::{Backend, Faults, Load};
use sluice_otlp::{Signal, json};

const DEAD: &str = "traces/dead → otlp/dead";
const PICKY: &str = "traces/picky → otlp/picky";

/// The gateway's data directory.
fn directory() -> tempfile::TempDir {
    tempfile::TempDir::with_prefix("sluice-log-command-").expect("a directory")
}

fn config(directory: &Path, backends: &[(&str, &Backend)]) -> String {
    let lines =
        format!("buffer:\n  directory: {}\n  disk:\n    segment_mib: 1\n", directory.display());
    fan_out(Signal::Traces, 192, backends).replace("buffer:\n", &lines)
}

/// The entry of a delivery in the output of `ls`; null if there is none.
fn listed(directory: &Path, delivery: &str) -> Value {
    let listed = run("ls", directory, &["--json"]);
    let Ok(listed) = serde_json::from_str::<Value>(&listed.out) else { return Value::Null };
    let deliveries = listed["logs"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|log| log["deliveries"].as_array());
    deliveries.flatten().find(|known| known["name"] == delivery).cloned().unwrap_or_default()
}

/// Waits until `ls` counts this number of items of a delivery.
async fn assert_listed(directory: &Path, delivery: &str, what: &str, items: u64) {
    let is_listed =
        eventually(SOON, async || listed(directory, delivery)[what]["items"] == items).await;
    assert!(is_listed, "{items} items {what}: {}", listed(directory, delivery));
}

fn spans_in_json(lines: &str) -> u64 {
    let count = |line: &str| {
        let request = json::from_json(Signal::Traces, line.as_bytes(), 1 << 26).expect("OTLP JSON");
        sluice_otlp::scan(Signal::Traces, &request).expect("a request")
    };
    lines.lines().map(|line| u64::from(count(line))).sum()
}

async fn end(mut gateway: Gateway) {
    gateway.terminate();
    assert!(gateway.ended_within(SOON).await.success(), "{}", gateway.output());
}

/// Scenario: one backend is dead, one refuses some items; `sluice log` runs beside the gateway and
/// between two lives; then both work. Guarantee: counts agree, a running gateway's directory cannot
/// be changed, and both backends get everything once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_replayed_between_two_lives() {
    let dead = faulty_backend(Faults::dead()).await;
    let picky = faulty_backend(Faults::rejecting_poison()).await;
    let directory = directory();
    let config = config(directory.path(), &[("dead", &dead), ("picky", &picky)]);
    let gateway = Gateway::start(&config).await;
    let load = gateway.load(Signal::Traces).items(2_000);
    let load = Load { poison_every: Some(100), ..load };
    let report = load.run().await.expect("a load");
    assert_eq!(report.accepted, 2_000, "{:?}", report.messages);
    assert_listed(directory.path(), DEAD, "waiting", 2_000).await;
    assert_listed(directory.path(), PICKY, "dead_letters", 20).await;

    let bodies = run("show", directory.path(), &["--delivery", DEAD, "--body"]).ok();
    assert_eq!(spans_in_json(&bodies), 2_000);
    let letters = run("dead-letters", directory.path(), &["--delivery", PICKY]).ok();
    assert!(
        letters.contains("an item that this backend refuses") && letters.contains(" otlp "),
        "{letters}"
    );
    run("verify", directory.path(), &[]).ok();
    let refused = run("replay", directory.path(), &["--delivery", PICKY]).failed();
    assert!(refused.contains(&format!("kill {}", gateway.pid())), "{refused}");

    end(gateway).await;
    let replayed = run("replay", directory.path(), &["--delivery", PICKY]).ok();
    assert!(replayed.contains("(20 items)"), "{replayed}");
    dead.faults().clear();
    picky.faults().clear();
    let gateway = Gateway::start(&config).await;
    assert_arrives_once(&report, &picky, SOON).await;
    assert_arrives_once(&report, &dead, SOON).await;
    assert_listed(directory.path(), PICKY, "dead_letters", 0).await;
    end(gateway).await;
}

/// Scenario: the backlog of a dead backend is dropped, and the backend works at the next start.
/// Guarantee: it gets only data that is sent from then on; the other backend misses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_that_was_dropped_is_not_delivered() {
    let dead = faulty_backend(Faults::dead()).await;
    let healthy = Backend::healthy().await.expect("a backend");
    let directory = directory();
    let config = config(directory.path(), &[("dead", &dead), ("healthy", &healthy)]);
    let gateway = Gateway::start(&config).await;
    let before = gateway.load(Signal::Traces).items(1_000).run().await.expect("a load");
    assert_arrives_once(&before, &healthy, SOON).await;
    assert_listed(directory.path(), DEAD, "waiting", 1_000).await;
    end(gateway).await;
    let dropped = run("drop", directory.path(), &["--delivery", DEAD, "--yes"]).ok();
    assert!(dropped.contains("1,000 items"), "{dropped}");

    dead.faults().clear();
    let gateway = Gateway::start(&config).await;
    let after = gateway.load(Signal::Traces).items(500).run().await.expect("a load");
    for backend in [&dead, &healthy] {
        assert_arrives_once(&after, backend, SOON).await;
    }
    assert_eq!((dead.unique_items(), healthy.unique_items()), (500, 1_500));
    end(gateway).await;
}
