//! k6's own outputs for OTLP and for remote write, into the receivers of the real binary. Where a
//! program is missing the test passes over it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod k6;
mod victoria;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use component::component;
use gateway::{Gateway, alone, eventually, get, keeping_backend};
use k6::K6;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use prost::Message as _;
use sluice_load_test::Backend;
use sluice_load_test::subject::free_addr;
use tempfile::TempDir;
use victoria::VictoriaMetrics;

const ARRIVES_WITHIN: Duration = Duration::from_secs(60);
const ITERATIONS: f64 = 300.0;
const COUNTERS: [&str; 3] = ["http_reqs", "iterations", "data_received"];

type Env = Vec<(&'static str, String)>;

/// Its requests go to the health check of the gateway under test. It takes some seconds, so that
/// k6 sends more than once.
const SCRIPT: &str = "import http from 'k6/http';\nimport { sleep } from 'k6';\n\
    export const options = {vus: 10, iterations: 300};\n\
    export default function () { http.get(`http://${__ENV.TARGET}/`); sleep(0.1); }\n";

/// Runs k6 with the variables of an output. Returns the counters of its summary.
async fn counters(mut run: K6, target: SocketAddr, env: Env) -> BTreeMap<String, f64> {
    run.env.extend(env);
    let finished = run.env("TARGET", target).run().await;
    assert!(!finished.said.contains("level=error"), "k6 sends without an error: {}", finished.said);
    let counted = finished.counters();
    assert_eq!(counted["iterations"], ITERATIONS, "{counted:?}");
    counted.into_iter().filter(|(name, _)| COUNTERS.contains(&&**name)).collect()
}

/// The total of a cumulative sum, over the last points of its series. Negative where a point is of
/// another kind.
fn total(backend: &Backend, wanted: &str) -> f64 {
    let mut last: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    for request in backend.kept() {
        let request = ExportMetricsServiceRequest::decode(request.body).expect("metrics");
        let scopes = request.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
        for metric in scopes.flat_map(|it| it.metrics).filter(|it| it.name == wanted) {
            let Some(Data::Sum(sum)) = metric.data else { return -1.0 };
            for point in sum.data_points {
                let value = match point.value {
                    Some(Value::AsDouble(value)) => value,
                    Some(Value::AsInt(value)) => value as f64,
                    None => continue,
                };
                let mut attributes: Vec<String> =
                    point.attributes.iter().map(|it| format!("{it:?}")).collect();
                attributes.sort();
                let entry = last.entry(attributes.join(",")).or_default();
                if point.time_unix_nano >= entry.0 {
                    *entry = (point.time_unix_nano, value);
                }
            }
        }
    }
    last.values().map(|(_, value)| value).sum()
}

/// Scenario: k6 with `--out opentelemetry`, over gRPC and over HTTP. Guarantee: the counters that
/// arrive are those of its summary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_output_for_otlp_arrives() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let _alone = alone().await;
    for protocol in ["grpc", "http/protobuf"] {
        let backend = keeping_backend(10_000).await;
        let exporter = gateway::exporter("backend", &backend);
        let gateway = Gateway::start(&format!(
            "exporters:\n{exporter}service:\n  pipelines:\n    metrics:\n      \
             receivers: [otlp]\n      exporters: [otlp/backend]\n"
        ))
        .await;
        let env = vec![
            ("K6_OTEL_EXPORTER_PROTOCOL", protocol.to_owned()),
            ("K6_OTEL_GRPC_EXPORTER_ENDPOINT", gateway.grpc.to_string()),
            ("K6_OTEL_GRPC_EXPORTER_INSECURE", "true".to_owned()),
            ("K6_OTEL_HTTP_EXPORTER_ENDPOINT", gateway.http.to_string()),
            ("K6_OTEL_HTTP_EXPORTER_INSECURE", "true".to_owned()),
            ("K6_OTEL_EXPORT_INTERVAL", "500ms".to_owned()),
        ];
        let folder = TempDir::new().expect("a folder");
        let run = K6::new(&k6, folder.path(), SCRIPT).out("opentelemetry");
        for (name, count) in counters(run, gateway.health, env).await {
            let all = async || total(&backend, &name) == count;
            let arrived = eventually(ARRIVES_WITHIN, all).await;
            let has = total(&backend, &name);
            assert!(arrived, "{protocol}: {name}: {has} of {count}: {}", gateway.output());
        }
        let refused = gateway.metric("sluice_receiver_refused_requests", &[]).await;
        assert_eq!(refused, 0.0, "{}", gateway.output());
    }
}

/// The one number that a query of PromQL finds.
async fn value(server: SocketAddr, query: &str) -> f64 {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let path = format!("/api/v1/query?query={encoded}");
    let Some((200, answer)) = get(server, &path).await else { return -1.0 };
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let answer: serde_json::Value = serde_json::from_str(body).expect("is JSON");
    let found = answer.pointer("/data/result/0/value/1").and_then(|it| it.as_str());
    found.and_then(|text| text.parse().ok()).unwrap_or(-1.0)
}

/// Scenario: k6 with `--out experimental-prometheus-rw`, through Sluice to VictoriaMetrics.
/// Guarantee: the counters there are those of its summary, and quantiles of trends are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_output_for_remote_write_arrives() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let Some(victoria) = VictoriaMetrics::start() else { return };
    let _alone = alone().await;
    let receiver = free_addr().expect("a port");
    let gateway = Gateway::start(&format!(
        "receivers:\n  prometheusremotewrite: {{endpoint: '{receiver}'}}\nexporters:\n  \
         prometheusremotewrite:\n    endpoint: http://{}/api/v1/write\nservice:\n  pipelines:\n    \
         metrics:\n      receivers: [prometheusremotewrite]\n      \
         exporters: [prometheusremotewrite]\n",
        victoria.address
    ))
    .await;
    let env = vec![
        ("K6_PROMETHEUS_RW_SERVER_URL", format!("http://{receiver}/api/v1/write")),
        ("K6_PROMETHEUS_RW_PUSH_INTERVAL", "500ms".to_owned()),
        ("K6_PROMETHEUS_RW_TREND_STATS", "p(95),count".to_owned()),
    ];
    let folder = TempDir::new().expect("a folder");
    let run = K6::new(&k6, folder.path(), SCRIPT).out("experimental-prometheus-rw");
    for (name, count) in counters(run, gateway.health, env).await {
        let query = format!("sum(k6_{name}_total)");
        let all = async || value(victoria.address, &query).await == count;
        let arrived = eventually(ARRIVES_WITHIN, all).await;
        let has = value(victoria.address, &query).await;
        assert!(arrived, "{query}: {has}, not {count}: {}", gateway.output());
    }
    let query = "max(k6_http_req_duration_p95)";
    assert!(value(victoria.address, query).await > 0.0, "{}", gateway.output());
}
