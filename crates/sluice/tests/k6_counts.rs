//! Each sample counts: the real k6 writes to two outputs at once, line protocol to the real binary
//! before a real InfluxDB, and JSON to a file, which is the oracle. Where a program is missing the
//! test passes over it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod influx;
mod k6;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use component::component;
use gateway::{Gateway, alone, eventually};
use influx::InfluxDb;
use k6::K6;
use serde_json::Value;
use sluice_load_test::backend::page::Page;
use sluice_load_test::subject::{Subject, SubjectSpec, free_addr};
use tempfile::TempDir;

const ARRIVES_WITHIN: Duration = Duration::from_secs(300);

/// As many requests as virtual users make, with a check, and a counter of its own.
const SCRIPT: &str = "import http from 'k6/http';\n\
    import { check } from 'k6';\n\
    import { Counter } from 'k6/metrics';\n\
    const bought = new Counter('bought');\n\
    export const options = {vus: 50, duration: __ENV.LASTS};\n\
    export default function () {\n\
      const answer = http.get(`http://${__ENV.TARGET}/`);\n\
      check(answer, {'is up': (it) => it.status === 200});\n\
      bought.add(3);\n\
    }\n";

/// The script's counters. What is none may replace a sample of the same nanosecond.
const COUNTERS: [&str; 5] = ["http_reqs", "iterations", "data_sent", "data_received", "bought"];

/// Counters by name: in k6's summary, and in its JSON.
struct Counted {
    summary: BTreeMap<String, f64>,
    /// Number of samples, and their sum.
    oracle: BTreeMap<String, (u64, f64)>,
}

/// Runs k6 with both outputs.
async fn run_k6(k6: &Path, lasts_s: u64, influxdb: &str) -> Counted {
    let page = Page::serve().await.expect("listens");
    let folder = TempDir::new().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let run = K6::new(k6, folder.path(), SCRIPT)
        .out(format!("influxdb=http://{influxdb}"))
        .out(format!("json={}", at("samples.json").display()))
        .env("TARGET", page.addr())
        .env("LASTS", format!("{lasts_s}s"));
    let summary = run.run().await.counters();
    Counted { summary, oracle: oracle(&at("samples.json")) }
}

/// The samples of counters in a file of k6's JSON.
fn oracle(path: &Path) -> BTreeMap<String, (u64, f64)> {
    let (mut counters, mut found) = (BTreeSet::new(), BTreeMap::new());
    for line in BufReader::new(File::open(path).expect("a file")).lines() {
        let line = line.expect("is read");
        let parse = || serde_json::from_str::<Value>(&line).expect("is JSON");
        if line.starts_with("{\"type\":\"Metric\"") {
            let metric = parse();
            if metric["data"]["type"] == "counter" {
                counters.insert(metric["metric"].as_str().expect("a name").to_owned());
            }
        } else if line.split('"').nth(3).is_some_and(|name| counters.contains(name)) {
            let point = parse();
            let value = point["data"]["value"].as_f64().expect("a value");
            let name = point["metric"].as_str().expect("a name").to_owned();
            let (number, sum) = found.entry(name).or_insert((0, 0.0));
            (*number, *sum) = (*number + 1, *sum + value);
        }
    }
    found
}

async fn stored(influxdb: &InfluxDb, database: &str, counter: &str) -> (f64, f64) {
    let ask = async |what: &str| {
        let query = format!("SELECT {what}(value) FROM {counter}");
        influxdb.number(database, &query).await
    };
    (ask("count").await, ask("sum").await)
}

/// The counts of k6 and of a database, a line each.
async fn report(way: &str, counted: &Counted, influxdb: &InfluxDb, database: &str) {
    for (name, sum) in &counted.summary {
        let (samples, oracle) = counted.oracle.get(name).copied().unwrap_or_default();
        let (number, in_database) = stored(influxdb, database, name).await;
        println!(
            "{way}: {name}: k6 {sum}, its JSON {oracle} in {samples} samples, InfluxDB \
             {in_database} in {number}, missing {}",
            sum - in_database
        );
    }
}

fn config(receiver: SocketAddr, server: SocketAddr, folder: &Path) -> String {
    format!(
        "receivers:\n  influxdb:\n    endpoint: '{receiver}'\n    sum_measurements: [{}]\n\
         exporters:\n  influxdb:\n    endpoint: http://{server}\n    \
         v1_compatibility: {{enabled: true, db: through}}\n\
         buffer:\n  directory: {}\nservice:\n  pipelines:\n    metrics:\n      receivers: \
         [influxdb]\n      exporters: [influxdb]\n",
        COUNTERS.join(", "),
        folder.join("log").display()
    )
}

/// k6 through Sluice: every counter is the same in three places.
async fn every_counter_arrives(k6: &Path, influxdb: &InfluxDb, lasts_s: u64) {
    influxdb.query("", "CREATE DATABASE through").await;
    let folder = TempDir::new().expect("a folder");
    let receiver = free_addr().expect("a port");
    let gateway = Gateway::start(&config(receiver, influxdb.address, folder.path())).await;
    let counted = run_k6(k6, lasts_s, &format!("{receiver}/k6")).await;
    let requests = counted.summary["http_reqs"];
    assert!(requests > 100.0 * lasts_s as f64, "{requests}");
    assert_eq!(counted.oracle["http_reqs"], (requests as u64, requests));
    assert_eq!(counted.summary.len(), COUNTERS.len(), "{:?}", counted.summary);
    for (name, sum) in &counted.summary {
        let (samples, of_file) = counted.oracle[name];
        assert_eq!(of_file, *sum, "{name}: k6's outputs agree");
        let all = async || stored(influxdb, "through", name).await == (samples as f64, *sum);
        let arrived = eventually(ARRIVES_WITHIN, all).await;
        let found = stored(influxdb, "through", name).await;
        assert!(arrived, "{name}: {found:?}, not {sum} in {samples}: {}", gateway.output());
    }
    report("through Sluice", &counted, influxdb, "through").await;
    assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);
    assert_eq!(gateway.metric("sluice_influxdb_line_faults", &[]).await, 0.0);
}

/// Scenario: 50 virtual users for 20 seconds, as fast as they are. Guarantee: the sum of each
/// counter in InfluxDB is that of k6's summary and of its JSON, and so is the number of samples.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sample_of_k6_counts() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let _alone = alone().await;
    let Some(influxdb) = InfluxDb::start().await else { return };
    every_counter_arrives(&k6, &influxdb, 20).await;
}

/// Scenario: the same for five minutes, also without Sluice and through Telegraf, whose losses are
/// printed. Guarantee: nothing is missing through Sluice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "15 minutes; run with `make torture`"]
async fn torture_every_sample_of_k6_counts_for_five_minutes() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let _alone = alone().await;
    let lasts_s = std::env::var("SLUICE_TORTURE_SECONDS").ok();
    let lasts_s = lasts_s.and_then(|seconds| seconds.parse().ok()).unwrap_or(300).min(300);
    let Some(influxdb) = InfluxDb::start().await else { return };
    let counted = run_k6(&k6, lasts_s, &format!("{}/direct", influxdb.address)).await;
    report("directly", &counted, &influxdb, "direct").await;
    drop(influxdb);
    match std::env::var_os("SLUICE_TEST_TELEGRAF").map(PathBuf::from).filter(|it| it.is_file()) {
        None => println!("through Telegraf: not run: SLUICE_TEST_TELEGRAF names no file"),
        Some(binary) => {
            let influxdb = InfluxDb::start().await.expect("InfluxDB was there");
            let (_telegraf, listener) = telegraf(binary, &influxdb).await;
            let counted = run_k6(&k6, lasts_s, &format!("{listener}/telegraf")).await;
            let requests = counted.summary["http_reqs"];
            let all = async || stored(&influxdb, "telegraf", "http_reqs").await.1 >= requests;
            eventually(Duration::from_secs(60), all).await;
            report("through Telegraf", &counted, &influxdb, "telegraf").await;
        }
    }
    let influxdb = InfluxDb::start().await.expect("InfluxDB was there");
    every_counter_arrives(&k6, &influxdb, lasts_s).await;
}

/// Telegraf as `sluice load-test` has it.
async fn telegraf(binary: PathBuf, influxdb: &InfluxDb) -> (Subject, SocketAddr) {
    influxdb.query("", "CREATE DATABASE telegraf").await;
    let listener = free_addr().expect("a port");
    let config = include_str!("../../../subjects/telegraf/k6.toml")
        .replace("@LISTEN@", &listener.to_string())
        .replace("@BACKEND@", &influxdb.address.to_string())
        .replace("database = \"k6\"", "database = \"telegraf\"");
    let spec = SubjectSpec {
        name: "telegraf".to_owned(),
        binary,
        args: vec!["--config".to_owned(), "{config}".to_owned()],
        config,
        config_file: "telegraf.toml".to_owned(),
        ready: Some(listener.into()),
        ..SubjectSpec::default()
    };
    (Subject::start(spec).await.expect("Telegraf runs"), listener)
}
