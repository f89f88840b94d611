//! Against real backends: Prometheus and VictoriaMetrics. Where one is missing its test passes over
//! it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../../load-test/tests/support/component.rs"]
mod component;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar,
    number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use sluice_flow::Outcome;
use sluice_otlp::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::tests::text;
use crate::tests::{exporter, packed};
use component::component;

const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// A backend that ends when dropped.
pub(crate) struct Real {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Real {
    /// `config`: the content of `config.yml` in its folder.
    async fn start(
        variable: &str,
        config: &str,
        ready: &str,
        arguments: impl Fn(&str, SocketAddr) -> Vec<String>,
    ) -> Option<Real> {
        let binary = component(variable)?;
        let folder = TempDir::new().expect("a folder");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = free.local_addr().expect("has an address");
        drop(free);
        let path = folder.path().display().to_string();
        std::fs::write(format!("{path}/config.yml"), config).expect("writes");
        let child = Command::new(binary)
            .args(arguments(&path, address))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        let real = Real { child, address, _folder: folder };
        let begin = std::time::Instant::now();
        while !real.get(ready).await.starts_with("HTTP/1.1 200") {
            assert!(begin.elapsed() < STARTS_WITHIN, "{variable} does not start");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Some(real)
    }

    async fn prometheus() -> Option<Real> {
        Real::prometheus_with("scrape_configs: []\n").await
    }

    pub(crate) async fn prometheus_with(config: &str) -> Option<Real> {
        Real::start("SLUICE_TEST_PROMETHEUS", config, "/-/ready", |path, address| {
            vec![
                format!("--config.file={path}/config.yml"),
                format!("--storage.tsdb.path={path}/data"),
                format!("--web.listen-address={address}"),
                "--web.enable-remote-write-receiver".to_owned(),
                "--enable-feature=native-histograms,exemplar-storage".to_owned(),
            ]
        })
        .await
    }

    /// Empty if there is no answer.
    pub(crate) async fn get(&self, path: &str) -> String {
        let Ok(mut stream) = tokio::net::TcpStream::connect(self.address).await else {
            return String::new();
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The value of the only series that a query finds, once it finds one.
    pub(crate) async fn value(&self, query: &str) -> String {
        let begin = std::time::Instant::now();
        loop {
            let answer = self.get(&format!("/api/v1/query?query={query}")).await;
            if let Some((_, value)) = answer.split_once("\"value\":[") {
                let value = value.split('"').nth(1).unwrap_or_default();
                return value.to_owned();
            }
            assert!(begin.elapsed() < STARTS_WITHIN, "{query}: {answer}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("is later").as_nanos() as u64
}

fn number(time_ns: u64, value: f64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: vec![text("zone.name", "a")],
        time_unix_nano: time_ns,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn metric(name: &str, data: Data) -> Metric {
    Metric { name: name.to_owned(), data: Some(data), ..Metric::default() }
}

/// A metric of each kind.
pub(crate) fn metrics(time_ns: u64) -> Vec<Metric> {
    let mut counted = number(time_ns, 7.0);
    counted.exemplars = vec![Exemplar {
        time_unix_nano: time_ns,
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        value: Some(exemplar::Value::AsDouble(1.0)),
        ..Exemplar::default()
    }];
    let histogram = HistogramDataPoint {
        time_unix_nano: time_ns,
        count: 6,
        sum: Some(21.5),
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![0.5, 10.0],
        ..HistogramDataPoint::default()
    };
    let native = ExponentialHistogramDataPoint {
        time_unix_nano: time_ns,
        count: 9,
        sum: Some(5.0),
        scale: 1,
        positive: Some(Buckets { offset: -1, bucket_counts: vec![4, 2, 0, 3] }),
        ..ExponentialHistogramDataPoint::default()
    };
    let aggregation_temporality = 2;
    vec![
        metric("load", Data::Gauge(Gauge { data_points: vec![number(time_ns, 1.5)] })),
        metric(
            "orders",
            Data::Sum(Sum {
                data_points: vec![counted],
                aggregation_temporality,
                is_monotonic: true,
            }),
        ),
        metric(
            "took",
            Data::Histogram(Histogram { data_points: vec![histogram], aggregation_temporality }),
        ),
        metric(
            "native",
            Data::ExponentialHistogram(ExponentialHistogram {
                data_points: vec![native],
                aggregation_temporality,
            }),
        ),
    ]
}

fn request(metrics: Vec<Metric>) -> bytes::Bytes {
    let attributes = vec![text("service.name", "shop"), text("host.name", "h1")];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let resource_metrics =
        vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into()
}

async fn send(options: &str, metrics: Vec<Metric>) -> Outcome {
    let exporter = exporter("prometheusremotewrite", options);
    exporter.send(&packed(&*exporter, Signal::Metrics, vec![request(metrics)])).await
}

/// Guarantee: every kind of metric can be queried, with its labels, exemplars and the end of its
/// series.
#[tokio::test]
async fn prometheus_takes_all_kinds_of_metrics() {
    let Some(real) = Real::prometheus().await else { return };
    let options = format!(
        "{{endpoint: 'http://{}/api/v1/write', external_labels: {{cluster: c}}}}",
        real.address
    );
    let time_ns = now_ns();
    assert_eq!(send(&options, metrics(time_ns)).await, Outcome::Delivered);
    let labels = "{job=%22shop%22,cluster=%22c%22}";
    let zone = "{job=%22shop%22,zone_name=%22a%22}";
    assert_eq!(real.value(&format!("load{zone}")).await, "1.5");
    assert_eq!(real.value(&format!("orders_total{zone}")).await, "7");
    assert_eq!(real.value(&format!("took_sum{labels}")).await, "21.5");
    assert_eq!(real.value("took_bucket{le=%2210%22}").await, "3");
    assert_eq!(real.value("target_info{host_name=%22h1%22}").await, "1");
    assert_eq!(real.value("histogram_count(native)").await, "9");
    let seconds = time_ns / 1_000_000_000;
    let (from, to) = (seconds - 60, seconds + 60);
    let path = format!("/api/v1/query_exemplars?query=orders_total&start={from}&end={to}");
    let exemplars = real.get(&path).await;
    assert!(exemplars.contains(&"01".repeat(16)), "{exemplars}");

    let mut ended = number(time_ns + 1_000_000, 0.0);
    ended.flags = 1;
    let ended = metric("load", Data::Gauge(Gauge { data_points: vec![ended] }));
    assert_eq!(send(&options, vec![ended]).await, Outcome::Delivered);
    let answer = real.get(&format!("/api/v1/query?query=load&time={}", seconds + 1)).await;
    assert!(answer.contains("\"result\":[]"), "{answer}");
}

/// Guarantee: a sample that is too old or out of order is not sent again.
#[tokio::test]
async fn samples_that_prometheus_refuses_are_not_sent_again() {
    let Some(real) = Real::prometheus().await else { return };
    let options = format!("{{endpoint: 'http://{}/api/v1/write'}}", real.address);
    let time_ns = now_ns();
    let gauge = |time_ns, value| {
        vec![metric("load", Data::Gauge(Gauge { data_points: vec![number(time_ns, value)] }))]
    };
    assert_eq!(send(&options, gauge(time_ns, 1.0)).await, Outcome::Delivered);
    assert_eq!(send(&options, gauge(time_ns, 1.0)).await, Outcome::Delivered, "the same again");
    for (time_ns, value, words) in
        [(time_ns - 1_000_000_000, 1.0, "out of order"), (time_ns, 2.0, "duplicate sample")]
    {
        let outcome = send(&options, gauge(time_ns, value)).await;
        let Outcome::Rejected { reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains(words), "{reason}");
    }
    let day_ns = 24 * 3600 * 1_000_000_000;
    let outcome = send(&options, gauge(time_ns - day_ns, 1.0)).await;
    // The series and `target_info` are one point.
    let Outcome::PartlyRejected { items: 1, reason } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("out of bounds"), "{reason}");
}

/// Guarantee: this release of Prometheus does not know 2.0, and no data is lost by that.
#[tokio::test]
async fn a_prometheus_without_version_2_holds_the_delivery() {
    let Some(real) = Real::prometheus().await else { return };
    let options = format!(
        "{{endpoint: 'http://{}/api/v1/write', protobuf_message: io.prometheus.write.v2.Request}}",
        real.address
    );
    let outcome = send(&options, metrics(now_ns())).await;
    assert!(matches!(outcome, Outcome::Misconfigured { .. }), "{outcome:?}");
}

#[tokio::test]
async fn victoria_metrics_takes_metrics() {
    let real = Real::start("SLUICE_TEST_VICTORIA_METRICS", "", "/health", |path, address| {
        vec![format!("-storageDataPath={path}/data"), format!("-httpListenAddr={address}")]
    });
    let Some(real) = real.await else { return };
    let options = format!("{{endpoint: 'http://{}/api/v1/write'}}", real.address);
    let mut metrics = metrics(now_ns() - 60 * 1_000_000_000);
    metrics.retain(|metric| metric.name != "native");
    assert_eq!(send(&options, metrics).await, Outcome::Delivered);
    real.get("/internal/force_flush").await;
    assert_eq!(real.value("load{job=%22shop%22,zone_name=%22a%22}").await, "1.5");
    assert_eq!(real.value("took_bucket{le=%2210%22}").await, "3");
}
