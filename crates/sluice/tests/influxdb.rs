//! Clients of InfluxDB write to the real binary: by hand, beside a real InfluxDB, and k6. Where a
//! program is missing the test passes over it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod influx;

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use component::component;
use gateway::{Gateway, alone, eventually, faulty_backend, keeping_backend};
use influx::{Answer, InfluxDb, send};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use prost::Message as _;
use sluice_load_test::subject::free_addr;
use sluice_load_test::{Backend, Faults};
use tempfile::TempDir;
use tokio::task::JoinHandle;

const LIMIT_MIB: u64 = 80;
const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// From the receiver to a backend.
fn config(receiver: SocketAddr, backend: &Backend) -> String {
    let exporter = gateway::exporter("backend", backend);
    format!(
        "receivers:\n  influxdb: {{endpoint: '{receiver}'}}\nexporters:\n{exporter}buffer:\n  \
         memory:\n    limit_mib: {LIMIT_MIB}\nservice:\n  pipelines:\n    metrics:\n      \
         receivers: [influxdb]\n      exporters: [otlp/backend]\n"
    )
}

/// Lines as k6 writes them, and their number.
fn body_larger_than_memory() -> (Vec<u8>, u64) {
    let (mut body, mut lines) = (Vec::new(), 0_u64);
    while body.len() < 64 << 20 {
        let line = format!(
            "http_req_duration,method=GET,name=http://shop/{},scenario=default,status=200 \
             value={}.5 {}\n",
            lines % 50,
            lines % 1000,
            1_700_000_000_000_000_000 + lines
        );
        body.extend_from_slice(line.as_bytes());
        lines += 1;
    }
    (body, lines)
}

/// A write that waits: its body is larger than all memory, and the backend takes nothing.
struct Waiting {
    backend: Backend,
    receiver: SocketAddr,
    gateway: Gateway,
    lines: u64,
    writing: JoinHandle<Answer>,
}

impl Waiting {
    async fn start() -> Waiting {
        let backend = faulty_backend(Faults::unavailable(1.0)).await;
        let receiver = free_addr().expect("a port");
        let gateway = Gateway::start(&config(receiver, &backend)).await;
        let (body, lines) = body_larger_than_memory();
        let writing =
            tokio::spawn(async move { send(receiver, "POST /write?db=k6", "", &body).await });
        let waits = async || gateway.metric("sluice_influxdb_waits", &[]).await > 0.0;
        assert!(eventually(ARRIVES_WITHIN, waits).await, "{}", gateway.output());
        Waiting { backend, receiver, gateway, lines, writing }
    }

    /// The client is not refused. When the backend is back, its answer is 204, and each line has
    /// arrived.
    async fn ends_well(&mut self) {
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!self.writing.is_finished(), "it waits");
        self.backend.faults().clear();
        let answer = tokio::time::timeout(2 * ARRIVES_WITHIN, &mut self.writing).await;
        assert_eq!(answer.expect("is answered").expect("an answer").status, 204);
        let (backend, lines) = (&self.backend, self.lines);
        let arrives = async || backend.items() >= lines;
        assert!(eventually(ARRIVES_WITHIN, arrives).await, "{} of {lines}", backend.items());
        assert_eq!(backend.items(), lines);
    }
}

/// Scenario: a body that is larger than all memory comes while the backend takes nothing, and
/// senders have to wait. Guarantee: the client is not refused; when the backend is back, its answer
/// is 204, each line has arrived, and memory kept to its limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_larger_than_memory_waits_for_the_backend() {
    let _alone = alone().await;
    let mut waiting = Waiting::start().await;
    waiting.ends_well().await;
    let Waiting { gateway, lines, .. } = waiting;
    assert_eq!(gateway.metric("sluice_influxdb_lines", &[]).await, lines as f64);
    assert_eq!(gateway.metric("sluice_delivery_dropped_items", &[]).await, 0.0);
    gateway.assert_memory_within(LIMIT_MIB);
}

/// Scenario: a write waits for the backend while a reload changes the receiver. Guarantee: the
/// client is not refused; when the backend is back, its answer is 204 and all lines have arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_waits_outlives_a_reload() {
    let _alone = alone().await;
    let mut waiting = Waiting::start().await;
    let before = config(waiting.receiver, &waiting.backend);
    let endpoint = format!("endpoint: '{}'", waiting.receiver);
    let after = before.replace(&endpoint, &format!("{endpoint}, max_line_bytes: 2MiB"));
    assert_ne!(after, before);
    waiting.gateway.reload(&after).await;
    waiting.ends_well().await;
}

const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";
const GZIP: &str = "content-encoding: gzip\r\n";

/// Scenario: the same requests to a real InfluxDB 1.6 and to Sluice. Guarantee: status, body and
/// the headers that clients look at are the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_a_real_influxdb() {
    let Some(influxdb) = InfluxDb::start().await else { return };
    let backend = Backend::healthy().await.expect("a backend");
    let receiver = free_addr().expect("a port");
    let gateway = Gateway::start(&config(receiver, &backend)).await;
    let packed = sluice_net::compress::compress(
        sluice_otlp::Encoding::Gzip,
        &[bytes::Bytes::from_static(b"m v=1\n")],
        None,
    );
    let packed = packed.expect("compresses");
    let write = "POST /write?db=db";
    let faulty = b"m v=1\nbad\nm v=2 x\nn,a=b\nn v=2";
    let cases: &[(&str, &str, &[u8])] = &[
        ("POST /query?q=CREATE+DATABASE+db", "", b""),
        ("POST /query", FORM, b"q=CREATE+DATABASE+%22e+f%22"),
        ("GET /query?q=SHOW+DATABASES", "", b""),
        ("GET /query", "", b""),
        (write, "", b"m v=1\n"),
        (write, "", b"m,a=b\\ c v=1i,w=t,s=\"a b\" 1700000000000000000\n"),
        (write, "", b""),
        (write, "", b"\n# a comment\n"),
        (write, "", faulty),
        (write, "", b"bad"),
        (write, "", b"bad\nworse\n"),
        (write, "", b"m v=1,v= 1\n"),
        (write, "", b"m v=\"a\n"),
        (write, "", b"m,a v=1\n"),
        (write, "", b"m v=1e400\n"),
        (write, "", b"m v=9223372036854775808i\n"),
        (write, GZIP, &packed),
        ("POST /write", "", b"m v=1\n"),
        ("POST /write?db=", "", b"m v=1\n"),
        ("POST /write?db=db&consistency=some", "", b"m v=1\n"),
        ("POST /write?db=db&consistency=ALL&precision=ms&rp=autogen", "", b"m v=1 1\n"),
        ("GET /ping", "", b""),
        ("HEAD /ping", "", b""),
        ("GET /write?db=db", "", b""),
        ("POST /ping", "", b""),
        ("GET /nothing", "", b""),
    ];
    for (line, headers, body) in cases {
        let case = format!("{line} {:?}", String::from_utf8_lossy(body));
        let theirs = send(influxdb.address, line, headers, body).await;
        let ours = send(receiver, line, headers, body).await;
        assert_eq!(ours.status, theirs.status, "{case}: {ours:?} {theirs:?}");
        assert_eq!(ours.content(), theirs.content(), "{case}");
        for name in ["content-type", "x-influxdb-error", "x-influxdb-build"] {
            assert_eq!(ours.header(name), theirs.header(name), "{case}: {name}");
        }
        assert!(ours.header("x-influxdb-version").is_some(), "{case}");
    }
    assert_eq!(gateway.metric("sluice_receiver_refused_requests", &[]).await, 3.0);
}

/// A script whose requests go to the receiver's own probe.
const SCRIPT: &str = "import http from 'k6/http';\n\
    export const options = {vus: 5, iterations: 400};\n\
    export default function () { http.get(`http://${__ENV.TARGET}/ping`); }\n";

/// The sum of a metric's values over all requests that arrived, and the kind of its data.
fn sum_of(backend: &Backend, wanted: &str) -> (f64, bool) {
    let (mut sum, mut is_sum) = (0.0, false);
    for request in backend.kept() {
        let request = ExportMetricsServiceRequest::decode(request.body).expect("metrics");
        let scopes = request.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
        for metric in scopes.flat_map(|it| it.metrics).filter(|it| it.name == wanted) {
            let points = match metric.data {
                Some(Data::Sum(data)) => {
                    is_sum = true;
                    data.data_points
                }
                Some(Data::Gauge(data)) => data.data_points,
                _ => Vec::new(),
            };
            for point in points {
                match point.value {
                    Some(Value::AsDouble(value)) => sum += value,
                    Some(Value::AsInt(value)) => sum += value as f64,
                    None => {}
                }
            }
        }
    }
    (sum, is_sum)
}

/// Scenario: k6 runs with its output to InfluxDB. Guarantee: each sample arrives, so that the sum
/// of `http_reqs` is the number of requests in k6's own summary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_k6_measures_arrives() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let backend = keeping_backend(1000).await;
    let receiver = free_addr().expect("a port");
    let gateway = Gateway::start(&config(receiver, &backend)).await;
    let folder = TempDir::new().expect("a folder");
    let (script, summary) = (folder.path().join("script.js"), folder.path().join("summary.json"));
    std::fs::write(&script, SCRIPT).expect("is written");
    let mut command = Command::new(k6);
    command
        .args(["run", "--quiet", "--no-usage-report", "--address", "localhost:0", "--out"])
        .arg(format!("influxdb=http://{receiver}/k6"))
        .arg("--summary-export")
        .arg(&summary)
        .arg(&script)
        .env("TARGET", receiver.to_string())
        .env("HOME", folder.path())
        .stdin(Stdio::null());
    let finished = tokio::task::spawn_blocking(move || command.output()).await;
    let finished = finished.expect("ends").expect("k6 runs");
    let output = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert!(finished.status.success(), "{output}");
    let summary = std::fs::read(&summary).expect("a summary");
    let summary: serde_json::Value = serde_json::from_slice(&summary).expect("is JSON");
    let requests = summary["metrics"]["http_reqs"]["count"].as_f64().expect("a count");
    assert_eq!(requests, 400.0, "{summary}");
    for name in ["http_reqs", "iterations"] {
        let arrive = async || sum_of(&backend, name) == (requests, true);
        let came = eventually(ARRIVES_WITHIN, arrive).await;
        assert!(came, "{name}: {:?}, {output}", sum_of(&backend, name));
    }
    let lines = gateway.metric("sluice_influxdb_lines", &[]).await;
    assert!(lines >= 9.0 * requests, "{lines}");
    assert_eq!(gateway.metric("sluice_influxdb_line_faults", &[]).await, 0.0);
}
