//! The exporter `influxdb` of the real binary: to a real InfluxDB 1.x, which ends and comes back,
//! to VictoriaMetrics, and from k6. Where a program is missing the test passes over it, unless
//! SLUICE_TEST_REQUIRE_COMPONENTS=1. `influxdb_answers.rs` has the answers of 2.x and 3,
//! `k6_dashboard.rs` what dashboards for k6 find.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod influx;
mod k6;
mod victoria;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use component::component;
use gateway::{Gateway, Options, SOON, eventually, get};
use influx::{InfluxDb, send};
use k6::K6;
use serde_json::{Value, json};
use sluice_load_test::subject::free_addr;
use tempfile::TempDir;
use victoria::VictoriaMetrics;

const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// From a receiver to the database `through` of a server, with these options beside.
fn config(receiver: SocketAddr, server: SocketAddr, options: &str) -> String {
    format!(
        "receivers:\n  influxdb: {{endpoint: '{receiver}'}}\nexporters:\n  influxdb:\n    \
         endpoint: http://{server}\n    v1_compatibility: {{enabled: true, db: through}}\n\
         {options}buffer:\n  memory:\n    limit_mib: 80\nservice:\n  pipelines:\n    \
         metrics:\n      receivers: [influxdb]\n      exporters: [influxdb]\n"
    )
}

/// A gateway before a server, and the address of its receiver.
async fn before(server: SocketAddr, options: &str) -> (Gateway, SocketAddr) {
    let receiver = free_addr().expect("a port");
    (Gateway::start(&config(receiver, server, options)).await, receiver)
}

/// An InfluxDB with the database `through`, and a gateway before it.
async fn start(options: &str) -> Option<(InfluxDb, Gateway, SocketAddr)> {
    let influxdb = InfluxDb::start().await?;
    influxdb.query("", "CREATE DATABASE through").await;
    let (gateway, receiver) = before(influxdb.address, options).await;
    Some((influxdb, gateway, receiver))
}

async fn write(receiver: SocketAddr, lines: &str) {
    let answer = send(receiver, "POST /write?db=k6", "", lines.as_bytes()).await;
    assert_eq!(answer.status, 204, "{answer:?}");
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_nanos() as u64
}

/// Samples of a counter of k6, ten of which have the same time, and the sum of their values. Those
/// of one time are compared within a request of 256 KiB, which a thousand samples do not fill.
fn counted(start_ns: u64, samples: u64) -> (String, u64) {
    let (mut lines, mut sum) = (String::new(), 0);
    for sample in 0..samples {
        let (value, time_ns) = (sample % 7 + 1, start_ns + sample / 10 * 1_000);
        // The text differs, but is no tag: InfluxDB takes the ten for one point.
        lines.push_str(&format!(
            "http_reqs,method=GET,name=http://shop/,status=200 url=\"http://shop/{sample}\",\
             value={value} {time_ns}\n"
        ));
        sum += value;
    }
    (lines, sum)
}

/// Waits until the server has these samples of `http_reqs` with this sum, and no others.
async fn has_counted(influxdb: &InfluxDb, gateway: &Gateway, samples: u64, sum: u64) {
    let found = async || {
        let count = influxdb.number("through", "SELECT count(value) FROM http_reqs").await;
        (count, influxdb.number("through", "SELECT sum(value) FROM http_reqs").await)
    };
    let expected = (samples as f64, sum as f64);
    let all = eventually(ARRIVES_WITHIN, async || found().await == expected).await;
    assert!(all, "{:?}, not {expected:?}: {}", found().await, gateway.output());
}

/// Everything that a database has: each series with its tags, and types of fields.
async fn content(influxdb: &InfluxDb, database: &str) -> Value {
    let points = influxdb.query(database, "SELECT * FROM /.*/ GROUP BY *").await;
    let types = influxdb.query(database, "SHOW FIELD KEYS").await;
    json!([points, types])
}

/// Scenario: lines with values of all types, many fields and odd names, written to one database
/// directly and to another through Sluice. Guarantee: both have the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_in_goes_out_as_it_was() {
    let Some((influxdb, gateway, receiver)) = start("").await else { return };
    influxdb.query("", "CREATE DATABASE direct").await;
    let start_ns = now_ns();
    let mut lines = String::new();
    for at in 0..500 {
        let time_ns = start_ns + at * 1_001;
        lines.push_str(&format!(
            "http_req_duration,group=::a,method=GET,vu={vu} url=\"http://shop/{at}\",\
             value={at}.25 {time_ns}\n\
             cpu,host=h\\ {vu},odd\\=key=odd\\,value usage_idle={at},usage_user=0.5,\
             cores={at}i,ok=t,state=\"a \\\"b\\\" \\\\ c\" {time_ns}\n\
             data_sent,scenario=default value={at} {time_ns}\n\
             odd\\ name\\,two only=\"text {at}\" {time_ns}\n\
             no_tags value=-1.5e-9,big=9223372036854775807i,off=false {time_ns}\n",
            vu = at % 5
        ));
    }
    influxdb.write("direct", &lines).await;
    write(receiver, &lines).await;
    let direct = content(&influxdb, "direct").await;
    let is_same = async || content(&influxdb, "through").await == direct;
    let same = eventually(ARRIVES_WITHIN, is_same).await;
    assert!(same, "{}\n{direct}\n{}", gateway.output(), content(&influxdb, "through").await);
    let series = direct[0][0]["series"].as_array().expect("series").len();
    assert_eq!(series, 5 + 5 + 1 + 1 + 1);
    assert_eq!(gateway.metric("sluice_delivery_partly_rejected_items", &[]).await, 0.0);
}

/// Scenario: ten increments have the same series and time. Guarantee: by default each counts; with
/// `overwrite` the last one does, as in InfluxDB; gauges are as in InfluxDB unless `shift_all`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_of_the_same_time_are_all_counted() {
    for (collisions, counts, gauges) in
        [("shift", 400, 40), ("overwrite", 40, 40), ("shift_all", 400, 400)]
    {
        let options = format!("    collisions: {collisions}\n");
        let Some((influxdb, gateway, receiver)) = start(&options).await else { return };
        let (lines, sum) = counted(now_ns(), 400);
        let of_gauges = lines.replace("http_reqs,", "http_req_duration,");
        write(receiver, &format!("{lines}{of_gauges}")).await;
        let arrived = async |measurement: &str| {
            let query = format!("SELECT count(value) FROM {measurement}");
            influxdb.number("through", &query).await
        };
        let all = async || {
            arrived("http_reqs").await == f64::from(counts)
                && arrived("http_req_duration").await == f64::from(gauges)
        };
        assert!(eventually(ARRIVES_WITHIN, all).await, "{collisions}: {}", gateway.output());
        if collisions != "overwrite" {
            has_counted(&influxdb, &gateway, 400, sum).await;
        }
    }
}

/// Scenario: samples come for ten seconds; InfluxDB is stopped for five of them, or killed again
/// and again while it writes. Guarantee: the sums are right, nothing is missing or twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_missing_after_influxdb_was_away() {
    for is_killed in [false, true] {
        let Some((mut influxdb, gateway, receiver)) = start("").await else { return };
        let (bodies, samples) = (200, 500);
        let sending = tokio::spawn(async move {
            let mut all = 0;
            for body in 0..bodies {
                let (lines, sum) = counted(now_ns() + body * 1_000_000_000, samples);
                write(receiver, &lines).await;
                all += sum;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            all
        });
        let away = if is_killed { 500 } else { 5_000 };
        for _ in 0..if is_killed { 4 } else { 1 } {
            tokio::time::sleep(Duration::from_millis(1_000)).await;
            if is_killed {
                influxdb.kill()
            } else {
                influxdb.stop()
            }
            tokio::time::sleep(Duration::from_millis(away)).await;
            influxdb.start_again().await;
        }
        let sum = sending.await.expect("is sent");
        has_counted(&influxdb, &gateway, bodies * samples, sum).await;
        assert!(gateway.metric("sluice_delivery_requests", &[("outcome", "retry")]).await > 0.0);
        assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);
    }
}

/// Scenario: among samples, of which ten have the same time, stand some whose field has another
/// type. InfluxDB stores the rest of a request and refuses it. Guarantee: these alone become dead
/// letters, with InfluxDB's reason; each other sample is stored once, though parts were sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn points_that_influxdb_refuses_become_dead_letters() {
    let Some((influxdb, gateway, receiver)) = start("").await else { return };
    let start_ns = now_ns();
    let (first, first_sum) = counted(start_ns, 10);
    write(receiver, &first).await;
    has_counted(&influxdb, &gateway, 10, first_sum).await;
    let (lines, sum) = counted(start_ns + 1_000_000_000, 500);
    let mut lines: Vec<&str> = lines.lines().collect();
    let poison = format!("http_reqs,method=GET value=7i {}", start_ns + 2_000_000_000);
    for at in [0, 133, 134, 400, 504] {
        lines.insert(at, &poison);
    }
    let lines = lines.join("\n");
    write(receiver, &lines).await;
    has_counted(&influxdb, &gateway, 510, first_sum + sum).await;
    let dead = async || gateway.metric("sluice_delivery_dead_letter_items", &[]).await;
    assert!(eventually(SOON, async || dead().await == 5.0).await, "{}", gateway.output());
    let letters = gateway.dead_letters().await;
    assert!(letters.contains("field type conflict"), "{letters}");
    assert!(letters.contains("already exists as type float"), "{letters}");
}

/// Scenario: points are older than the retention policy keeps. Guarantee: InfluxDB's count of them
/// is the count of refused points; the others arrive, and none is searched for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn points_beyond_the_retention_policy_are_counted() {
    let Some(influxdb) = InfluxDb::start().await else { return };
    influxdb.query("", "CREATE DATABASE through WITH DURATION 1h").await;
    let (gateway, receiver) = before(influxdb.address, "").await;
    let (lines, sum) = counted(now_ns(), 100);
    let (old, _) = counted(now_ns() - 48 * 3600 * 1_000_000_000, 30);
    write(receiver, &format!("{lines}{old}")).await;
    has_counted(&influxdb, &gateway, 100, sum).await;
    let refused = async || gateway.metric("sluice_delivery_partly_rejected_items", &[]).await;
    assert!(eventually(SOON, async || refused().await == 30.0).await, "{}", refused().await);
    assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);
}

/// Scenario: the database does not exist yet. Guarantee: the delivery is held and says why; when it
/// exists, all of it arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_missing_holds_the_delivery() {
    let Some(influxdb) = InfluxDb::start().await else { return };
    let (gateway, receiver) = before(influxdb.address, "").await;
    let (lines, sum) = counted(now_ns(), 300);
    write(receiver, &lines).await;
    let is_told = async || {
        let health = gateway.health().await.expect("a health check").1;
        health.contains("held") && health.contains("database not found")
    };
    assert!(eventually(SOON, is_told).await, "{:?}", gateway.health().await);
    influxdb.query("", "CREATE DATABASE through").await;
    has_counted(&influxdb, &gateway, 300, sum).await;
    assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);
}

/// Scenario: a fresh InfluxDB, whose database is dropped later, with `create_database`. Guarantee:
/// the exporter creates it each time, also with quotes in its name, and all samples arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_missing_is_created() {
    let Some(influxdb) = InfluxDb::start().await else { return };
    let receiver = free_addr().expect("a port");
    let created = "db: 'k6 \"load\"', create_database: true";
    let config = config(receiver, influxdb.address, "").replace("db: through", created);
    let gateway = Gateway::start(&config).await;
    for samples in [300, 200] {
        let (lines, sum) = counted(now_ns(), samples);
        write(receiver, &lines).await;
        let query = "SELECT sum(value) FROM http_reqs";
        let all = async || influxdb.number("k6 \"load\"", query).await == sum as f64;
        assert!(eventually(ARRIVES_WITHIN, all).await, "{}", gateway.output());
        influxdb.query("", "DROP DATABASE \"k6 \\\"load\\\"\"").await;
    }
    assert_eq!(gateway.count_in_output("created the database"), 2);
    assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);
}

/// The number and the sum of the values of all series with this selector.
async fn values(server: SocketAddr, selector: &str) -> (usize, f64) {
    let encoded: String = selector.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let path = format!("/api/v1/export?match[]={encoded}");
    let line = format!("GET {path}");
    let answer = send(server, &line, "", b"").await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let series = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let values = series.flat_map(|it| it["values"].as_array().cloned().unwrap_or_default());
    let values: Vec<f64> = values.filter_map(|value| value.as_f64()).collect();
    (values.len(), values.iter().sum())
}

/// Guarantee: VictoriaMetrics takes the lines, under its names of metrics, with all tags.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victoria_metrics_takes_the_lines() {
    let Some(victoria) = VictoriaMetrics::start() else { return };
    let is_up = async || matches!(get(victoria.address, "/health").await, Some((200, _)));
    assert!(eventually(SOON, is_up).await);
    let (gateway, receiver) = before(victoria.address, "").await;
    let start_ms = now_ns() / 1_000_000 - 60_000;
    let lines: String = (0..1_000)
        .map(|at| {
            let time_ns = (start_ms + at) * 1_000_000;
            format!("http_reqs,method=GET,name=a\\ b url=\"u\",value={} {time_ns}\n", at % 7)
        })
        .collect();
    write(receiver, &lines).await;
    let expected = (1_000, (0..1_000).map(|at| f64::from(at % 7)).sum());
    let selector = "http_reqs_value{method=\"GET\",name=\"a b\",db=\"through\"}";
    let all = async || values(victoria.address, selector).await == expected;
    let arrived = eventually(ARRIVES_WITHIN, all).await;
    assert!(arrived, "{:?} {}", values(victoria.address, selector).await, gateway.output());
}

/// A script with requests, checks and a metric of its own.
const SCRIPT: &str = "import http from 'k6/http';\nimport {check} from 'k6';\n\
    import {Counter} from 'k6/metrics';\nconst own = new Counter('own');\n\
    export const options = {vus: 5, iterations: 400, tags: {run: 'one two'}};\n\
    export default function () { const r = http.get(`http://${__ENV.TARGET}/ping`);\n\
    check(r, {'is up': (r) => r.status === 204}); own.add(2); }\n";

/// Scenario: the two commands of docs/k6.md, with a fresh InfluxDB and `examples/k6.yaml`.
/// Guarantee: the database is created, and each sample is in it, also of the script's own counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_commands_take_a_script_to_a_fresh_influxdb() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let Some(influxdb) = InfluxDb::start().await else { return };
    let folder = TempDir::new().expect("a folder");
    let receiver = free_addr().expect("a port");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/k6.yaml");
    let config = std::fs::read_to_string(example).expect("the example");
    let config = config.replace("localhost:8087", &receiver.to_string());
    let env = [
        ("INFLUXDB_URL", format!("http://{}", influxdb.address)),
        ("STATE_DIRECTORY", folder.path().join("log").display().to_string()),
    ];
    let env = env.map(|(key, value)| (key.to_owned(), value)).to_vec();
    let gateway = Gateway::start_with(&config, Options { env, ..Options::default() }).await;
    let run = K6::new(&k6, folder.path(), SCRIPT).out(format!("influxdb=http://{receiver}/k6"));
    run.env("TARGET", influxdb.address).run().await;
    for (query, expected) in [
        ("SELECT sum(value) FROM http_reqs", 400.0),
        ("SELECT count(value) FROM http_req_duration", 400.0),
        ("SELECT count(value) FROM checks", 400.0),
        ("SELECT sum(value) FROM own", 800.0),
    ] {
        let all = async || influxdb.number("k6", query).await == expected;
        let found = eventually(ARRIVES_WITHIN, all).await;
        let has = influxdb.number("k6", query).await;
        assert!(found, "{query}: {has}, {}", gateway.output());
    }
}
