//! Dashboards for k6 and InfluxDB find by each route through Sluice what they find where k6 writes
//! to InfluxDB itself: one run of the real k6 writes to all of them. Where a program is missing the
//! test passes over it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod influx;
mod k6;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use component::component;
use gateway::{Gateway, alone, eventually};
use influx::InfluxDb;
use k6::K6;
use sluice_load_test::subject::free_addr;
use tempfile::TempDir;

const ARRIVES_WITHIN: Duration = Duration::from_secs(60);
const DIRECT: &str = "direct";

/// Databases: of the default of `collisions` and of `shift_all` behind requests of k6, and of its
/// files.
const ROUTES: [&str; 4] = ["shift", "shift_all", "json", "csv"];

/// Two requests an iteration, one of which is an error; checks, a group, tags, metrics of each kind
/// whose values have at most the six decimals of CSV. One virtual user: of two, samples of a series
/// can have the same nanosecond, and InfluxDB itself would take them for one.
const SCRIPT: &str = "import http from 'k6/http';\n\
    import { check, group, sleep } from 'k6';\n\
    import { Counter, Gauge, Rate, Trend } from 'k6/metrics';\n\
    const bought = new Counter('bought'), stock = new Gauge('stock');\n\
    const errors = new Rate('errors'), price = new Trend('price');\n\
    export const options = {vus: 1, iterations: 100, tags: {run: 'one two'}};\n\
    export default function () {\n\
      group('shop, a', () => {\n\
        const tags = {name: 'item', zone: 'a'};\n\
        const page = http.get(`http://${__ENV.TARGET}/ping?a=${__ITER},b`, {tags});\n\
        check(page, {'is up, and': (it) => it.status === 204, 'is odd': () => __ITER % 2 > 0});\n\
        bought.add(2, tags); stock.add(100 - __ITER); price.add(__ITER / 8);\n\
      });\n\
      const page = http.post(`http://${__ENV.TARGET}/nothing`, 'a=b');\n\
      errors.add(page.status !== 200);\n\
      sleep(0.05);\n\
    }\n";

/// The measurements for each of which Grafana's dashboard 2587 has a row.
const ROWS: [&str; 7] = [
    "http_req_duration",
    "http_req_blocked",
    "http_req_connecting",
    "http_req_looking_up",
    "http_req_receiving",
    "http_req_sending",
    "http_req_waiting",
];
/// The queries of a row. `$ROW` is its measurement, `$TIME` the time that is shown.
const OF_ROW: [&str; 11] = [
    "SELECT mean(value) FROM $ROW WHERE $TIME",
    "SELECT max(value) FROM $ROW WHERE $TIME",
    "SELECT median(value) FROM $ROW WHERE $TIME",
    "SELECT min(value) FROM $ROW WHERE $TIME AND value > 0",
    "SELECT percentile(value, 90) FROM $ROW WHERE $TIME",
    "SELECT percentile(value, 95) FROM $ROW WHERE $TIME",
    "SELECT max(value) FROM /^$ROW$/ WHERE $TIME AND value > 0 GROUP BY time(1s) fill(none)",
    "SELECT percentile(value, 95) FROM /^$ROW$/ WHERE $TIME AND value > 0 GROUP BY time(1s)",
    "SELECT percentile(value, 90) FROM /^$ROW$/ WHERE $TIME AND value > 0 GROUP BY time(1s)",
    "SELECT min(value) FROM /^$ROW$/ WHERE $TIME AND value > 0 GROUP BY time(1s) fill(none)",
    "SELECT value FROM $ROW WHERE $TIME AND value > 0",
];
/// The other queries of that dashboard, and of others: by tags, of a script's own metrics, and of
/// what a dashboard offers for choice.
const OF_TEST: [&str; 18] = [
    "SELECT mean(value) FROM vus WHERE $TIME GROUP BY time(1s) fill(none)",
    "SELECT sum(value) FROM http_reqs WHERE $TIME GROUP BY time(1s) fill(null)",
    "SELECT count(value) FROM errors WHERE $TIME GROUP BY time(1s) fill(none)",
    "SELECT sum(value) FROM checks WHERE $TIME GROUP BY time(1s), \"check\" fill(none)",
    "SELECT count(value) FROM http_reqs WHERE $TIME GROUP BY time(1s), method, status fill(0)",
    "SELECT percentile(value, 99) FROM http_req_duration WHERE $TIME GROUP BY \"name\", scenario",
    "SELECT mean(value) * 100 FROM http_req_failed WHERE $TIME GROUP BY expected_response",
    "SELECT count(value) FROM http_req_duration WHERE $TIME AND status = '404' GROUP BY url",
    "SELECT mean(value) FROM group_duration WHERE $TIME GROUP BY time(200ms), \"group\"",
    "SELECT sum(value) FROM data_received WHERE $TIME GROUP BY time(1s)",
    "SELECT last(value) FROM stock WHERE $TIME GROUP BY time(1s), run",
    "SELECT median(value), spread(value) FROM price WHERE $TIME GROUP BY time(1s)",
    "SELECT count(value), sum(value) FROM bought WHERE $TIME GROUP BY time(1s), zone",
    "SELECT count(value), sum(value) FROM /.*/ WHERE $TIME GROUP BY *",
    "SHOW MEASUREMENTS",
    "SHOW FIELD KEYS",
    "SHOW TAG KEYS",
    "SHOW TAG VALUES WITH KEY IN (\"check\", error_code, \"group\", \"name\", run, status)",
];

/// All queries, of the time between these milliseconds since 1970.
fn queries(from_ms: u64, to_ms: u64) -> Vec<String> {
    let time = format!("time >= {from_ms}ms AND time <= {to_ms}ms");
    let rows = ROWS.iter().flat_map(|row| OF_ROW.iter().map(|query| query.replace("$ROW", row)));
    let all = rows.chain(OF_TEST.iter().map(|query| (*query).to_owned()));
    all.map(|query| query.replace("$TIME", &time)).collect()
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_millis()).expect("is small")
}

/// A pipeline for each route, which creates its database.
fn config(folder: &Path, [shift, shift_all]: [SocketAddr; 2], server: SocketAddr) -> String {
    let folder = folder.display();
    let receivers = ["influxdb/shift", "influxdb/shift_all", "k6/json", "k6/csv"];
    let (mut exporters, mut pipelines) = (String::new(), String::new());
    for (route, receiver) in ROUTES.iter().zip(receivers) {
        let collisions = if *route == "shift_all" { "shift_all" } else { "shift" };
        // Writing to a string cannot fail.
        let _ = write!(
            exporters,
            "  influxdb/{route}:\n    endpoint: http://{server}\n    v1_compatibility: {{enabled: \
             true, db: {route}, create_database: true}}\n    collisions: {collisions}\n"
        );
        let _ = write!(
            pipelines,
            "    metrics/{route}:\n      receivers: [{receiver}]\n      exporters: \
             [influxdb/{route}]\n"
        );
    }
    format!(
        "receivers:\n  influxdb/shift: {{endpoint: '{shift}'}}\n  influxdb/shift_all: {{endpoint: \
         '{shift_all}'}}\n  k6/json: {{include: ['{folder}/*.json']}}\n  k6/csv: {{include: \
         ['{folder}/*.csv'], counters: [bought]}}\nexporters:\n{exporters}buffer:\n  directory: \
         {folder}/log\nservice:\n  pipelines:\n{pipelines}"
    )
}

/// Scenario: k6 at a rate that InfluxDB takes writes to it directly, twice through Sluice, and to
/// files of JSON and CSV, which Sluice reads. Guarantee: each query of the dashboards has the same
/// answer from each database, to the nanosecond and the last digit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboards_show_the_same_by_each_route() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let _alone = alone().await;
    let Some(influxdb) = InfluxDb::start().await else { return };
    let folder = TempDir::new().expect("a folder");
    let receivers = [(); 2].map(|()| free_addr().expect("a port"));
    let gateway = Gateway::start(&config(folder.path(), receivers, influxdb.address)).await;
    let file = |kind: &str| folder.path().join(format!("k6.{kind}")).display().to_string();
    let from_ms = now_ms();
    let run = K6::new(&k6, folder.path(), SCRIPT)
        .out(format!("influxdb=http://{}/{DIRECT}", influxdb.address))
        .out(format!("influxdb=http://{}/k6", receivers[0]))
        .out(format!("influxdb=http://{}/k6", receivers[1]))
        .out(format!("json={}", file("json")))
        .out(format!("csv={}", file("csv")))
        .env("K6_CSV_TIME_FORMAT", "unix_nano")
        .env("TARGET", influxdb.address);
    let finished = run.run().await;
    let to_ms = now_ms();
    assert!(!finished.said.contains("level=error"), "{}", finished.said);
    // The oracle has everything.
    for (name, sum) in finished.counters() {
        let query = format!("SELECT sum(value) FROM {name}");
        assert_eq!(influxdb.number(DIRECT, &query).await, sum, "{name}");
    }
    let count = "SELECT count(value) FROM /.*/";
    let all = influxdb.query(DIRECT, count).await;
    let queries = queries(from_ms, to_ms);
    for route in ROUTES {
        let arrived = async || influxdb.query(route, count).await == all;
        let arrived = eventually(ARRIVES_WITHIN, arrived).await;
        let has = influxdb.query(route, count).await;
        assert!(arrived, "{route}: {has}, not {all}: {}", gateway.output());
    }
    let mut empty = BTreeSet::new();
    for query in &queries {
        let direct = influxdb.query(DIRECT, query).await;
        if direct.pointer("/0/series/0").is_none() {
            empty.insert(query);
        }
        for route in ROUTES {
            assert_eq!(influxdb.query(route, query).await, direct, "{route}: {query}");
        }
    }
    // k6 no longer has this metric of the dashboard.
    empty.retain(|query| !query.contains("http_req_looking_up"));
    assert!(empty.is_empty(), "nothing is found by {empty:#?}");
    for receiver in ["k6/json", "k6/csv"] {
        let labels = [("receiver", receiver)];
        assert_eq!(gateway.metric("sluice_k6_faults", &labels).await, 0.0, "{receiver}");
    }
    assert_eq!(gateway.metric("sluice_influxdb_line_faults", &[]).await, 0.0);
}
