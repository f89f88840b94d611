//! k6 writes to files, and the real binary reads them. Where k6 is missing the test passes over it,
//! unless SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod k6;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use component::component;
use gateway::{Gateway, alone, eventually, keeping_backend};
use k6::K6;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use prost::Message as _;
use sluice_load_test::Backend;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// Its requests go to the health check of the gateway under test.
const SCRIPT: &str = "import http from 'k6/http';\n\
    import { check } from 'k6';\n\
    import { Counter } from 'k6/metrics';\n\
    const bought = new Counter('bought');\n\
    export const options = {vus: 5, iterations: 400};\n\
    export default function () {\n\
      const answer = http.get(`http://${__ENV.TARGET}/?a=1,b`);\n\
      check(answer, {'is up': (it) => it.status === 200});\n\
      bought.add(3, {shop: 'a b'});\n\
    }\n";

/// Two receivers, each with a backend of its own: JSON, and CSV.
fn config(folder: &Path, backends: &[Backend; 2]) -> String {
    let folder = folder.display();
    let [json, csv] = backends;
    let exporters = [gateway::exporter("json", json), gateway::exporter("csv", csv)].concat();
    format!(
        "receivers:\n  k6/json: {{include: ['{folder}/*.json'], delete_after_read: true}}\n  \
         k6/csv: {{include: ['{folder}/*.csv'], counters: [bought]}}\nexporters:\n{exporters}\
         buffer:\n  directory: {folder}/log\nservice:\n  pipelines:\n    metrics/json:\n      \
         receivers: [k6/json]\n      exporters: [otlp/json]\n    metrics/csv:\n      receivers: \
         [k6/csv]\n      exporters: [otlp/csv]\n"
    )
}

/// The number of a metric's points, their sum, and whether all are increments.
fn points_of(backend: &Backend, wanted: &str) -> (u64, f64, bool) {
    let (mut number, mut sum, mut are_increments) = (0, 0.0, true);
    for request in backend.kept() {
        let request = ExportMetricsServiceRequest::decode(request.body).expect("metrics");
        let scopes = request.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
        for metric in scopes.flat_map(|it| it.metrics).filter(|it| it.name == wanted) {
            let points = match metric.data {
                Some(Data::Sum(data)) => data.data_points,
                Some(Data::Gauge(data)) => {
                    are_increments = false;
                    data.data_points
                }
                _ => Vec::new(),
            };
            number += points.len() as u64;
            for point in points {
                let Some(Value::AsDouble(value)) = point.value else { panic!("{point:?}") };
                sum += value;
            }
        }
    }
    (number, sum, are_increments)
}

/// A run that writes both files.
fn to_files(k6: &Path, folder: &Path) -> K6 {
    let out = |kind: &str| format!("{kind}={}", folder.join(format!("k6.{kind}")).display());
    K6::new(k6, folder, SCRIPT).out(out("json")).out(out("csv"))
}

/// Scenario: k6 writes JSON and CSV at once, and the gateway is stopped and started again
/// meanwhile. Guarantee: each sample arrives once by either way, so that the sums are those of k6's
/// own summary; counters of the script are increments; the file of JSON is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_k6_arrive() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let _alone = alone().await;
    let backends = [keeping_backend(10_000).await, keeping_backend(10_000).await];
    let folder = TempDir::new().expect("a folder");
    let path = folder.path();
    let mut gateway = Gateway::start(&config(path, &backends)).await;
    let target = serve().await;
    let run = to_files(&k6, path).env("TARGET", target);
    let running = tokio::spawn(run.run());
    let some = async || backends.iter().all(|it| it.items() > 0);
    assert!(eventually(ARRIVES_WITHIN, some).await, "{}", gateway.output());
    gateway.terminate();
    let status = gateway.ended_within(ARRIVES_WITHIN).await;
    assert!(status.success(), "{}", gateway.output());
    let gateway = Gateway::start(&config(path, &backends)).await;
    let summary = running.await.expect("ends").counters();
    let counted = |name: &str| summary[name];
    assert_eq!((counted("iterations"), counted("bought")), (400.0, 1_200.0), "{summary:?}");
    for backend in &backends {
        for name in ["http_reqs", "iterations", "bought", "data_sent"] {
            let all = async || points_of(backend, name).1 >= counted(name);
            assert!(eventually(ARRIVES_WITHIN, all).await, "{name}: {}", gateway.output());
            let (_, sum, are_increments) = points_of(backend, name);
            assert_eq!((sum, are_increments), (counted(name), true), "{name}");
        }
        let checks = async || points_of(backend, "checks").0 >= 400;
        assert!(eventually(ARRIVES_WITHIN, checks).await, "{:?}", points_of(backend, "checks"));
        let (number, sum, _) = points_of(backend, "checks");
        assert_eq!((number, sum), (400, 400.0));
    }
    let [json, csv] = &backends;
    assert_eq!(json.items(), csv.items(), "both have all samples");
    for receiver in ["k6/json", "k6/csv"] {
        let labels = [("receiver", receiver)];
        assert_eq!(gateway.metric("sluice_k6_faults", &labels).await, 0.0, "{receiver}");
    }
    let is_gone = async || !path.join("k6.json").exists();
    assert!(eventually(ARRIVES_WITHIN, is_gone).await, "what was delivered is deleted");
}

/// Scenario: `include` matches a pipe, into which k6 writes JSON, and a file of CSV beside it.
/// Guarantee: the pipe is neither read nor waited for nor deleted: the file arrives, and the
/// process ends in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_holds_up_no_file() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let _alone = alone().await;
    let backends = [keeping_backend(10_000).await, keeping_backend(10_000).await];
    let folder = TempDir::new().expect("a folder");
    let pipe = folder.path().join("k6.json");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let mut gateway = Gateway::start(&config(folder.path(), &backends)).await;
    // The pipe has room for all samples of these: without a reader k6 would wait for more room.
    let run = to_files(&k6, folder.path()).env("K6_VUS", 1).env("K6_ITERATIONS", 2);
    let counted = run.env("TARGET", serve().await).run().await.counters();
    assert_eq!(counted["iterations"], 2.0, "{counted:?}");
    let [json, csv] = &backends;
    let all = async || points_of(csv, "iterations").1 == 2.0;
    assert!(eventually(ARRIVES_WITHIN, all).await, "{}", gateway.output());
    assert_eq!(json.items(), 0);
    gateway.terminate();
    let status = gateway.ended_within(ARRIVES_WITHIN).await;
    assert!(status.success(), "{}", gateway.output());
    assert!(pipe.exists());
}

/// Answers each request with 200, as long as the test runs.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}
