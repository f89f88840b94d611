//! `interval` in the real binary: what goes in comes out, aggregated, over an orderly end, reloads
//! and an outage.

mod gateway;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway::{Gateway, SOON, alone, eventually, faulty_backend, keeping_backend};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use prost::Message as _;
use sluice_load_test::{Backend, Faults};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const KEPT_REQUESTS: usize = 100_000;
const SERIES: u64 = 10;
const DELTA: i32 = 1;

/// From the receiver through a processor to a backend. `processors`: of the pipeline.
fn config(backend: &Backend, interval: &str, processors: &str, buffer: &str) -> String {
    let exporter = gateway::exporter("backend", backend);
    format!(
        "processors:\n  interval:\n    interval: {interval}\n    allowed_lateness: 200ms\n    \
         rules:\n      - metrics: [latency]\n        match_type: strict\n        \
         statistics: [count, sum]\n        quantiles: [0.5]\n  \
         resource: {{attributes: [{{key: behind, action: upsert, value: it}}]}}\n\
         exporters:\n{exporter}buffer:\n  \
         memory: {{limit_mib: 128}}\n{buffer}service:\n  pipelines:\n    metrics:\n      \
         receivers: [otlp]\n      processors: [{processors}]\n      \
         exporters: [otlp/backend]\n"
    )
}

fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64
}

/// A point of each series: of a sum of deltas, and of a gauge.
fn request(value: i64) -> Vec<u8> {
    let point = |series: u64| {
        let name = AnyValue { value: Some(Value::StringValue(format!("s{series}"))) };
        let key = "series".to_owned();
        NumberDataPoint {
            attributes: vec![KeyValue { key, value: Some(name), ..Default::default() }],
            time_unix_nano: now_nanos(),
            value: Some(Number::AsInt(value)),
            ..Default::default()
        }
    };
    let data_points = || (0..SERIES).map(point).collect();
    let sum =
        Sum { data_points: data_points(), aggregation_temporality: DELTA, is_monotonic: true };
    let metric =
        |name: &str, data| Metric { name: name.to_owned(), data: Some(data), ..Default::default() };
    let metrics = vec![
        metric("requests", Data::Sum(sum)),
        metric("latency", Data::Gauge(Gauge { data_points: data_points() })),
    ];
    let scope_metrics = vec![ScopeMetrics { metrics, ..Default::default() }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics, ..Default::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
}

/// Sends a request. True if it is accepted.
async fn send(server: SocketAddr, body: &[u8]) -> bool {
    let Ok(mut stream) = TcpStream::connect(server).await else { return false };
    let head = format!(
        "POST /v1/metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = Vec::new();
    let sent = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        stream.read_to_end(&mut answer).await
    };
    sent.await.is_ok() && answer.starts_with(b"HTTP/1.1 200")
}

/// Sums over all points.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    requests: i64,
    latencies: i64,
    latency_sum: i64,
}

impl Totals {
    fn of(requests: u64, value: i64) -> Totals {
        let points = (requests * SERIES) as i64;
        Totals { requests: points * value, latencies: points, latency_sum: points * value }
    }
}

/// All that a backend has, points that were not aggregated included, and the number of points.
fn at(backend: &Backend) -> (Totals, usize) {
    let (mut totals, mut points) = (Totals::default(), 0);
    for request in backend.kept() {
        let request = ExportMetricsServiceRequest::decode(request.body).expect("metrics");
        let scopes = request.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
        for metric in scopes.flat_map(|it| it.metrics) {
            let data_points = match metric.data {
                Some(Data::Sum(data)) => data.data_points,
                Some(Data::Gauge(data)) => data.data_points,
                _ => Vec::new(),
            };
            points += data_points.len();
            for point in data_points {
                let Some(Number::AsInt(value)) = point.value else { continue };
                match metric.name.as_str() {
                    "requests" => totals.requests += value,
                    "latency_count" => totals.latencies += value,
                    "latency_sum" => totals.latency_sum += value,
                    "latency" => {
                        totals.latencies += 1;
                        totals.latency_sum += value;
                    }
                    _ => {}
                }
            }
        }
    }
    (totals, points)
}

async fn arrives(backend: &Backend, wanted: Totals) {
    let arrived = eventually(SOON, async || at(backend).0 == wanted).await;
    assert!(arrived, "{:?} of {wanted:?}", at(backend));
}

/// Sends at a rate of 100 requests a second.
async fn send_many(server: SocketAddr, requests: u64, value: i64) {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..requests {
        ticks.tick().await;
        assert!(send(server, &request(value)).await, "is accepted");
    }
}

/// Scenario: deltas and gauges at a rate, over several buckets. Guarantee: few points arrive, by
/// themselves and through the steps behind the processor, and their totals are those of what was
/// sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_are_kept_and_points_become_few() {
    let _alone = alone().await;
    let backend = keeping_backend(KEPT_REQUESTS).await;
    let gateway = Gateway::start(&config(&backend, "1s", "interval, resource", "")).await;
    send_many(gateway.http, 300, 3).await;
    arrives(&backend, Totals::of(300, 3)).await;
    let (_, points) = at(&backend);
    let sent = 300 * 2 * SERIES as usize;
    assert!(points < sent / 5, "{points} of {sent}");
    let has = |text: &[u8]| {
        backend.kept().iter().all(|it| it.body.windows(text.len()).any(|window| window == text))
    };
    assert!(has(b"behind"), "steps behind it run");
    assert_eq!(gateway.metric("sluice_processor_passed_points", &[]).await, 0.0);
    let empty = async || gateway.metric("sluice_processor_open_buckets", &[]).await == 0.0;
    assert!(eventually(SOON, empty).await);
}

/// Scenario: SIGTERM in the middle of a bucket, under each promise to senders. Guarantee: all that
/// was acknowledged arrives before the process ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orderly_end_writes_open_buckets() {
    let _alone = alone().await;
    for ack in ["memory", "delivered"] {
        let backend = keeping_backend(KEPT_REQUESTS).await;
        let buffer = format!("  ack: {ack}\n");
        let mut gateway = Gateway::start(&config(&backend, "1h", "interval", &buffer)).await;
        send_many(gateway.http, 50, 2).await;
        assert_eq!(at(&backend).1, 0, "is kept back");
        gateway.terminate();
        let status = gateway.ended_within(SOON).await;
        assert_eq!(status.code(), Some(0), "{}", gateway.output());
        assert_eq!(at(&backend).0, Totals::of(50, 2), "{ack}: {}", gateway.output());
    }
}

fn on_disk(directory: &Path) -> String {
    format!("  directory: {}\n", directory.display())
}

/// Scenario: SIGTERM in the middle of a bucket while the backend is away, and a start when it is
/// back. Guarantee: what was kept back is on disk, and arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_buckets_wait_on_disk_for_the_next_start() {
    let _alone = alone().await;
    let directory = TempDir::new().expect("a folder");
    let away = faulty_backend(Faults::unavailable(1.0)).await;
    let buffer = on_disk(directory.path());
    let mut gateway = Gateway::start(&config(&away, "1h", "interval", &buffer)).await;
    assert!(gateway.output().contains("killed loses open buckets"), "{}", gateway.output());
    send_many(gateway.http, 30, 1).await;
    gateway.terminate();
    let status = gateway.ended_within(SOON).await;
    assert_eq!(status.code(), Some(0), "{}", gateway.output());
    let backend = keeping_backend(KEPT_REQUESTS).await;
    let gateway = Gateway::start(&config(&backend, "1h", "interval", &buffer)).await;
    arrives(&backend, Totals::of(30, 1)).await;
    send_many(gateway.http, 1, 1).await;
}

/// Scenario: under load, reloads change the exporter, the interval, the order of processors, and
/// remove the processor. Guarantee: every point arrives in one form or the other, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_lose_no_open_bucket() {
    let _alone = alone().await;
    let backend = keeping_backend(KEPT_REQUESTS).await;
    let plain = config(&backend, "1h", "interval", "");
    let gateway = Gateway::start(&plain).await;
    let server = gateway.http;
    let sending = tokio::spawn(async move { send_many(server, 600, 5).await });
    let pause = || tokio::time::sleep(Duration::from_millis(700));
    pause().await;
    gateway.reload(&(plain.clone() + "    # unchanged\n")).await;
    pause().await;
    assert_eq!(at(&backend).1, 0, "an unchanged processor goes on with its bucket");
    gateway.reload(&config(&backend, "2h", "interval", "")).await;
    let written = async || at(&backend).0.requests > 0;
    assert!(eventually(SOON, written).await, "a changed one writes it");
    gateway.reload(&config(&backend, "2h", "resource", "")).await;
    pause().await;
    gateway.reload(&config(&backend, "2h", "interval, resource", "")).await;
    pause().await;
    gateway.reload(&config(&backend, "2h", "resource", "")).await;
    sending.await.expect("all are accepted");
    arrives(&backend, Totals::of(600, 5)).await;
    assert_eq!(at(&backend).0, Totals::of(600, 5));
}

/// Scenario: the backend is away while buckets become due. Guarantee: nothing is lost, and all
/// arrives once when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_delays_aggregated_points() {
    let _alone = alone().await;
    let backend = keeping_backend(KEPT_REQUESTS).await;
    backend.faults().set(Faults::unavailable(1.0));
    let gateway = Gateway::start(&config(&backend, "500ms", "interval", "")).await;
    send_many(gateway.http, 200, 4).await;
    backend.faults().clear();
    arrives(&backend, Totals::of(200, 4)).await;
}
