//! The ledger of the real binary, and `sluice reconcile`: k6's summary, InfluxDB and the ledger say
//! the same; and where they do not, they say where the samples are. Where a program is missing the
//! test passes over it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod influx;
mod k6;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use component::component;
use gateway::{Gateway, SOON, alone, eventually};
use influx::{InfluxDb, send};
use k6::K6;
use serde_json::{Value, json};
use sluice_load_test::subject::free_addr;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// An exporter `influxdb/DATABASE` to this database.
fn exporter(server: SocketAddr, database: &str) -> String {
    format!(
        "  influxdb/{database}:\n    endpoint: http://{server}\n    \
         collisions: shift_all\n    v1_compatibility: {{enabled: true, db: {database}}}\n"
    )
}

/// From the receiver `influxdb` at this address through processors to exporters.
fn config(
    receiver: SocketAddr,
    processors: &str,
    exporters: &[(SocketAddr, &str)],
    buffer: &str,
) -> String {
    let sections: String = exporters.iter().map(|(server, name)| exporter(*server, name)).collect();
    let names: Vec<_> = exporters.iter().map(|(_, name)| format!("influxdb/{name}")).collect();
    format!(
        "receivers:\n  influxdb: {{endpoint: '{receiver}'}}\nprocessors:\n  \
         interval: {{interval: 1s, allowed_lateness: 200ms}}\n  cumulative_to_delta: {{}}\n  \
         resource: {{attributes: [{{key: a, action: upsert, value: b}}]}}\n\
         exporters:\n{sections}buffer:\n  memory: {{limit_mib: 80}}\n{buffer}service:\n  \
         pipelines:\n    metrics:\n      receivers: [influxdb]\n      \
         processors: [{processors}]\n      exporters: [{}]\n",
        names.join(", ")
    )
}

async fn write(receiver: SocketAddr, lines: &str) {
    let answer = send(receiver, "POST /write?db=k6", "", lines.as_bytes()).await;
    assert_eq!(answer.status, 204, "{answer:?}");
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_nanos() as u64
}

/// Lines of a measurement, each with a time of its own.
fn lines(measurement: &str, number: u64) -> String {
    let now = now_ns();
    let line = |at| format!("{measurement},vu={} url=\"u{at}\",value=1 {}\n", at % 3, now + at);
    (0..number).map(line).collect()
}

/// The account of the delivery to an exporter.
async fn sheet(gateway: &Gateway, exporter: &str) -> Value {
    let answer = send(gateway.metrics, "GET /ledger", "", b"").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let page = answer.content();
    let deliveries = page["deliveries"].as_array().unwrap_or_else(|| panic!("{page}"));
    let found = deliveries.iter().find(|it| it["exporter"] == exporter);
    found.unwrap_or_else(|| panic!("no {exporter} in {page}")).clone()
}

/// A figure of a delivery, of all measurements.
async fn points(gateway: &Gateway, exporter: &str, figure: &str) -> u64 {
    sheet(gateway, exporter).await["points"][figure].as_u64().expect("a number")
}

/// A measurement of a delivery.
async fn row(gateway: &Gateway, exporter: &str, measurement: &str) -> Value {
    let sheet = sheet(gateway, exporter).await;
    let rows = sheet["measurements"].as_array().unwrap_or_else(|| panic!("{sheet}"));
    let found = rows.iter().find(|row| row["measurement"] == measurement);
    found.unwrap_or_else(|| panic!("no {measurement} in {sheet}")).clone()
}

/// Waits until a delivery has this figure, and asserts that it is balanced then.
async fn settles(gateway: &Gateway, exporter: &str, figure: &str, expected: u64) {
    let has = async || points(gateway, exporter, figure).await == expected;
    let settled = eventually(ARRIVES_WITHIN, has).await;
    let sheet = async || sheet(gateway, exporter).await;
    assert!(settled, "{figure} is not {expected}: {} {}", sheet().await, gateway.output());
    let balanced = eventually(SOON, async || sheet().await["balanced"] == true).await;
    assert!(balanced, "{} {}", sheet().await, gateway.output());
}

/// Runs `sluice reconcile`: its exit code, and what it wrote to the standard output and error.
async fn reconcile(arguments: &[&str]) -> (i32, String) {
    let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
    let run = move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.arg("reconcile").args(&arguments).env("PASSWORD", "secret");
        command.stdin(Stdio::null()).output()
    };
    let done = tokio::task::spawn_blocking(run).await.expect("ends").expect("runs");
    let said = [done.stdout, done.stderr].concat();
    (done.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

/// A script with metrics of all kinds.
const SCRIPT: &str = "import http from 'k6/http';\nimport {check, group} from 'k6';\n\
    import {Counter, Gauge, Rate, Trend} from 'k6/metrics';\nconst own = new Counter('own');\n\
    const trend = new Trend('own trend'.replace(' ', '_'));\nconst rate = new Rate('own_rate');\n\
    const gauge = new Gauge('own_gauge');\n\
    export const options = {vus: 5, iterations: 400, thresholds: {\n\
    'http_reqs{status:204}': ['count>1']},\n\
    summaryTrendStats: ['count', 'avg']};\n\
    export default function () { const r = http.get(`http://${__ENV.TARGET}/ping`);\n\
    group('g', () => check(r, {'is up': (r) => r.status === 204})); own.add(2.5);\n\
    trend.add(3); rate.add(__ITER % 2 == 0); gauge.add(1); }\n\
    export function handleSummary(data) { return {[__ENV.DATA]: JSON.stringify(data)}; }\n";

/// Runs k6 with these outputs. Returns the summaries: the old form, and the data of a script.
async fn run_k6(
    k6: PathBuf,
    folder: &Path,
    target: SocketAddr,
    outputs: &[String],
) -> [PathBuf; 2] {
    let data = folder.join("data.json");
    let mut run = K6::new(&k6, folder, SCRIPT).env("TARGET", target).env("DATA", data.display());
    run.outputs = outputs.to_vec();
    let export = run.run().await.path;
    [export, data]
}

/// Scenario: k6 writes by the network to one database and by a file to another. Then points of a
/// measurement are deleted from one. Guarantee: k6's summary in each form, InfluxDB and the ledger
/// agree; of what was deleted, `reconcile` says that Sluice has written it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_influxdb_and_ledger_agree() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let Some(influxdb) = InfluxDb::start().await else { return };
    let (_alone, folder) = (alone().await, TempDir::new().expect("a folder"));
    influxdb.query("", "CREATE DATABASE net; CREATE DATABASE file").await;
    let (receiver, path) = (free_addr().expect("a port"), folder.path().display());
    let exporters = [exporter(influxdb.address, "net"), exporter(influxdb.address, "file")];
    let gateway = Gateway::start(&format!(
        "receivers:\n  influxdb: {{endpoint: '{receiver}'}}\n  \
         k6: {{include: ['{path}/k6.json']}}\nexporters:\n{}\
         service:\n  pipelines:\n    metrics/net: {{receivers: [influxdb], exporters: \
         [influxdb/net]}}\n    metrics/file: {{receivers: [k6], exporters: [influxdb/file]}}\n",
        exporters.concat()
    ))
    .await;
    let outputs = [format!("influxdb=http://{receiver}/k6"), format!("json={path}/k6.json")];
    let summaries = run_k6(k6, folder.path(), influxdb.address, &outputs).await;
    let url = format!("http://{}", influxdb.address);
    let ledger = format!("http://{}", gateway.metrics);
    for database in ["net", "file"] {
        let exporter = format!("influxdb/{database}");
        let requests = async || {
            let query = "SELECT sum(value) FROM http_reqs";
            influxdb.number(database, query).await == 400.0
                && points(&gateway, &exporter, "waiting").await == 0
        };
        assert!(eventually(ARRIVES_WITHIN, requests).await, "{}", gateway.output());
        settles(&gateway, &exporter, "waiting", 0).await;
        for measurement in ["http_reqs", "own", "own_trend", "own_gauge", "checks", "data_sent"] {
            let row = row(&gateway, &exporter, measurement).await;
            assert_eq!((&row["written"], &row["waiting"]), (&row["received"], &json!(0)), "{row}");
            if measurement != "data_sent" {
                assert_eq!(row["received"], 400, "{row}");
            }
        }
        for summary in &summaries {
            let summary = summary.display().to_string();
            let options = ["--summary", &summary, "--influxdb", &url, "--database", database];
            let (code, said) = reconcile(&options).await;
            assert_eq!(code, 0, "{said}\n{}", gateway.output());
            for words in ["own_trend", "own_rate", "own_gauge (a gauge", "http_reqs{status:204}"] {
                assert!(said.contains(words), "{words}: {said}");
            }
        }
    }
    let text = send(gateway.metrics, "GET /ledger?format=text", "", b"").await.content();
    let text = text.as_str().expect("a text");
    assert!(text.contains("metrics/net → influxdb/net: balanced"), "{text}");
    assert_eq!(send(gateway.metrics, "GET /ledger?format=xml", "", b"").await.status, 400);
    let measurement = [("measurement", "own"), ("exporter", "influxdb/net")];
    let written = async || gateway.metric("sluice_ledger_written_points", &measurement).await;
    assert_eq!(written().await, 400.0);
    let received = [("measurement", "own"), ("receiver", "k6")];
    assert_eq!(gateway.metric("sluice_ledger_received_points", &received).await, 400.0);

    influxdb.query("net", "DELETE FROM own").await;
    let summary = summaries[0].display().to_string();
    let options = ["--summary", &summary, "--influxdb", &url, "--database", "net"];
    let (code, said) = reconcile(&[&options[..], &["--ledger", &ledger]].concat()).await;
    assert!(code == 1 && said.contains("MISSING"), "{code} {said}");
    let words = "own: metrics/net → influxdb/net: all of 400 points that were received are written";
    assert!(said.contains(words), "{said}");
    let (code, said) = reconcile(&[&options[..], &["--json"]].concat()).await;
    let report: Value = serde_json::from_str(&said).expect("is JSON");
    let rows = report["measurements"].as_array().expect("rows");
    let own = rows.iter().find(|row| row["measurement"] == "own").expect("a row");
    assert_eq!((code, &own["k6"], &own["missing"]), (1, &json!(1_000.0), &json!(1_000.0)));
    assert_eq!(rows.iter().filter(|row| row["equal"] == false).count(), 1, "{report}");
    let nothing = ["--tag", "vu=none", "--from", "2020-01-01T00:00:00Z"];
    let (code, said) = reconcile(&[&options[..], &nothing].concat()).await;
    assert!(code == 1 && said.contains("measurements differ"), "{said}");
}

/// Scenario: InfluxDB has another type for a measurement's field; it is stopped while samples come;
/// it is back. Guarantee: the ledger has refused samples as dead, those that wait as waiting, by
/// measurement, and the log says the same at each moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_and_waiting_samples_are_in_the_ledger() {
    let Some(mut influxdb) = InfluxDb::start().await else { return };
    influxdb.query("", "CREATE DATABASE k6").await;
    let receiver = free_addr().expect("a port");
    let to = [(influxdb.address, "k6")];
    let gateway = Gateway::start(&config(receiver, "resource", &to, "")).await;
    write(receiver, &lines("good", 500)).await;
    settles(&gateway, "influxdb/k6", "written", 500).await;
    let poison = lines("good", 7).replace("value=1 ", "value=1i ");
    write(receiver, &format!("{poison}{}", lines("fine", 100))).await;
    settles(&gateway, "influxdb/k6", "waiting", 0).await;
    let good = row(&gateway, "influxdb/k6", "good").await;
    assert_eq!(
        (&good["written"], &good["dead"], &good["waiting"]),
        (&json!(500), &json!(7), &json!(0))
    );
    assert_eq!(row(&gateway, "influxdb/k6", "fine").await["written"], 100);
    influxdb.stop();
    write(receiver, &lines("later", 3_000)).await;
    settles(&gateway, "influxdb/k6", "waiting", 3_000).await;
    let later = row(&gateway, "influxdb/k6", "later").await;
    assert_eq!((&later["received"], &later["waiting"]), (&json!(3_000), &json!(3_000)));
    influxdb.start_again().await;
    settles(&gateway, "influxdb/k6", "waiting", 0).await;
    let later = row(&gateway, "influxdb/k6", "later").await;
    assert_eq!((&later["written"], &later["dead"]), (&json!(3_000), &json!(0)));
    let dead = [("measurement", "good")];
    assert_eq!(gateway.metric("sluice_ledger_dead_points", &dead).await, 7.0);
    assert_eq!(gateway.metric("sluice_ledger_missing_points", &[]).await, 0.0);
}

/// Scenario: InfluxDB is away, samples wait on disk, and Sluice starts again; more come, and then
/// InfluxDB. Guarantee: what was found is told apart from what came, and neither is a difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_tells_what_it_found() {
    let Some(mut influxdb) = InfluxDb::start().await else { return };
    influxdb.query("", "CREATE DATABASE k6").await;
    let (receiver, folder) = (free_addr().expect("a port"), TempDir::new().expect("a folder"));
    let buffer = format!("  directory: {}\n", folder.path().display());
    let config = config(receiver, "", &[(influxdb.address, "k6")], &buffer);
    let mut gateway = Gateway::start(&config).await;
    influxdb.stop();
    write(receiver, &format!("{}{}", lines("old", 4_000), lines("both", 1_000))).await;
    settles(&gateway, "influxdb/k6", "waiting", 5_000).await;
    gateway.terminate();
    gateway.ended_within(ARRIVES_WITHIN).await;
    let gateway = Gateway::start(&config).await;
    settles(&gateway, "influxdb/k6", "found", 5_000).await;
    let found = sheet(&gateway, "influxdb/k6").await;
    assert_eq!((&found["points"]["received"], &found["found_left"]), (&json!(0), &json!(5_000)));
    write(receiver, &format!("{}{}", lines("new", 20), lines("both", 30))).await;
    settles(&gateway, "influxdb/k6", "waiting", 5_050).await;
    influxdb.start_again().await;
    settles(&gateway, "influxdb/k6", "waiting", 0).await;
    for (measurement, came, found) in [("old", 0, 4_000), ("both", 30, 1_000), ("new", 20, 0)] {
        let row = row(&gateway, "influxdb/k6", measurement).await;
        let figures =
            [&row["received"], &row["written"], &row["waiting"], &row["found"]["written"]];
        assert_eq!(figures, [&json!(came), &json!(came), &json!(0), &json!(found)], "{row}");
    }
    assert_eq!(sheet(&gateway, "influxdb/k6").await["found_left"], 0);
    let count = influxdb.number("k6", "SELECT count(value) FROM old").await;
    assert_eq!(count, 4_000.0);
}

/// Scenario: samples are aggregated for two databases, of which one is away. Guarantee: each
/// delivery is balanced by itself; points that were taken out and those made of them are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregated_samples_are_accounted_for_each_delivery() {
    let Some(influxdb) = InfluxDb::start().await else { return };
    influxdb.query("", "CREATE DATABASE a").await;
    let receiver = free_addr().expect("a port");
    let to = [(influxdb.address, "a"), (free_addr().expect("a port"), "away")];
    let gateway = Gateway::start(&config(receiver, "interval", &to, "")).await;
    for _ in 0..10 {
        write(receiver, &lines("http_reqs", 300)).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    settles(&gateway, "influxdb/a", "aggregated_in", 3_000).await;
    settles(&gateway, "influxdb/a", "open", 0).await;
    settles(&gateway, "influxdb/a", "waiting", 0).await;
    let of_a = sheet(&gateway, "influxdb/a").await["points"].clone();
    let made = of_a["aggregated_out"].as_u64().expect("a number");
    assert!((3..3_000).contains(&made) && of_a["written"] == made, "{of_a}");
    settles(&gateway, "influxdb/away", "waiting", made).await;
    let sum = influxdb.number("a", "SELECT sum(value) FROM http_reqs").await;
    assert_eq!(sum, 3_000.0, "sums stay what they are");
    let row = row(&gateway, "influxdb/a", "http_reqs").await;
    assert_eq!((&row["received"], &row["aggregated_in"]), (&json!(3_000), &json!(3_000)));
}

/// Scenario: a processor that may remove points; then a reload that takes it out. Guarantee: the
/// ledger says that it does not know, rather than a difference, and what was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_counted_is_not_known() {
    let Some(influxdb) = InfluxDb::start().await else { return };
    influxdb.query("", "CREATE DATABASE k6").await;
    let receiver = free_addr().expect("a port");
    let to = [(influxdb.address, "k6")];
    let gateway = Gateway::start(&config(receiver, "cumulative_to_delta", &to, "")).await;
    write(receiver, &lines("m", 50)).await;
    let written = async || points(&gateway, "influxdb/k6", "written").await == 50;
    assert!(eventually(ARRIVES_WITHIN, written).await, "{}", gateway.output());
    let unknown = sheet(&gateway, "influxdb/k6").await;
    let reason = unknown["reason"].as_str().expect("a reason");
    assert!(unknown["balanced"].is_null() && reason.contains("cumulative_to_delta"), "{unknown}");
    gateway.reload(&config(receiver, "", &to, "")).await;
    let unknown = sheet(&gateway, "influxdb/k6").await;
    let reason = unknown["reason"].as_str().expect("a reason");
    assert!(unknown["balanced"].is_null() && reason.contains("reload"), "{unknown}");
}

/// A server that gives this answer to each request.
async fn answering(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 8192];
            let _ = stream.read(&mut bytes).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            // A close with bytes that were not read would take the answer along.
            let rest = stream.read(&mut bytes);
            let _ = tokio::time::timeout(Duration::from_millis(200), rest).await;
        }
    });
    address
}

/// Guarantee: where nothing can be compared the exit code is 2, and the error names the option.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_compared_says_why() {
    let folder = TempDir::new().expect("a folder");
    let written = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("is written");
        path.display().to_string()
    };
    let summary = written("summary", r#"{"metrics": {"http_reqs": {"count": 1, "rate": 1}}}"#);
    let samples = written("samples", "metric_name,timestamp\nhttp_reqs,1\n");
    let refusing = "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\
        content-length: 33\r\n\r\n\
        {\"error\":\"authorization failed\"} ";
    let refusing = answering(refusing).await;
    let page =
        answering("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 6\r\n\r\n<html>").await;
    let away = free_addr().expect("a port");
    let [refusing, page, away] = [refusing, page, away].map(|it| format!("http://{it}"));
    let user = ["--user", "me", "--password-env", "PASSWORD"];
    let no_password = ["--user", "me", "--password-env", "SLUICE_NO_SUCH_VARIABLE"];
    for (summary, url, more, words) in [
        (&summary, &away, &[][..], "cannot connect"),
        (&summary, &refusing, &user[..], "see --user"),
        (&summary, &refusing, &no_password, "SLUICE_NO_SUCH_VARIABLE"),
        (&summary, &page, &[], "not from InfluxDB"),
        (&samples, &away, &[], "is no summary of k6"),
        (&"/no/such/file".to_owned(), &away, &[], "cannot read /no/such/file"),
        (&summary, &"http://me:secret@localhost".to_owned(), &[], "--user"),
        (&summary, &"localhost:8086".to_owned(), &[], "--influxdb"),
        (&summary, &away, &["--user", "me"], "--password-env"),
        (&summary, &away, &["--from", "yesterday"], "--from"),
    ] {
        let options = [&["--summary", summary, "--influxdb", url], more].concat();
        let (code, said) = reconcile(&options).await;
        assert!(code == 2 && said.contains(words), "{options:?}: {code} {said}");
        assert!(!said.contains("secret"), "{said}");
    }
    let Some(influxdb) = InfluxDb::start().await else { return };
    let url = format!("http://{}", influxdb.address);
    let options = ["--summary", &summary, "--influxdb", &url, "--database", "none"];
    let (code, said) = reconcile(&options).await;
    assert!(code == 2 && said.contains("database not found: none: see --database"), "{said}");
    influxdb.query("", "CREATE DATABASE none").await;
    influxdb.write("none", "http_reqs value=1").await;
    let (code, said) = reconcile(&options).await;
    assert!(code == 0 && said.contains("equal: 1 measurement"), "{said}");
    let (code, said) = reconcile(&[&options[..], &["--ledger", &away]].concat()).await;
    assert!(code == 2 && said.contains("cannot connect"), "{said}");
    let (code, said) = reconcile(&[&options[..], &["--ledger", &url]].concat()).await;
    assert!(code == 2 && said.contains("has no ledger"), "{said}");
}
