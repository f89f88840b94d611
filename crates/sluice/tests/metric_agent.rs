//! The binary as a metric agent: a real Prometheus is the target, and its own page is what has to
//! arrive. Where it is missing the test passes over it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod prometheus;

use std::collections::BTreeMap;
use std::time::Duration;

use gateway::{Gateway, eventually, get, keeping_backend};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use prometheus::Prometheus;
use prost::Message as _;
use sluice_load_test::Backend;

const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

fn config(target: std::net::SocketAddr, backend: &Backend, more: &str) -> String {
    format!(
        "receivers:\n  prometheus:\n    config:\n      global:\n        \
         scrape_interval: 2s\n        scrape_timeout: 2s\n      scrape_configs:\n        \
         - job_name: prometheus\n          static_configs: [{{targets: ['{target}']}}]\n{more}\
         exporters:\n  otlp:\n    endpoint: {}\n    tls:\n      insecure: true\n\
         service:\n  pipelines:\n    metrics:\n      receivers: [prometheus]\n      \
         exporters: [otlp]\n",
        backend.addr()
    )
}

/// The last value of each number by its metric's name, and the counts of histograms as
/// `NAME_count`. `None`: it has ended.
fn numbers(backend: &Backend) -> BTreeMap<String, Option<f64>> {
    let mut found = BTreeMap::new();
    for request in backend.kept() {
        let request = ExportMetricsServiceRequest::decode(request.body.clone()).expect("metrics");
        for resource in &request.resource_metrics {
            let attributes = &resource.resource.as_ref().expect("a resource").attributes;
            let job = attributes.iter().find(|it| it.key == "service.name").expect("a service");
            let job = job.value.as_ref().and_then(|value| value.value.clone());
            assert_eq!(job, Some(Value::StringValue("prometheus".to_owned())));
            for metric in resource.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
                let points = match metric.data.as_ref().expect("has data") {
                    metric::Data::Gauge(gauge) => &gauge.data_points,
                    metric::Data::Sum(sum) => &sum.data_points,
                    metric::Data::Histogram(histogram) => {
                        let count: u64 = histogram.data_points.iter().map(|it| it.count).sum();
                        found.insert(format!("{}_count", metric.name), Some(count as f64));
                        continue;
                    }
                    _ => continue,
                };
                for point in points {
                    let value = point.value.map(|value| match value {
                        number_data_point::Value::AsDouble(value) => value,
                        number_data_point::Value::AsInt(value) => value as f64,
                    });
                    found.insert(metric.name.clone(), value);
                }
            }
        }
    }
    found
}

/// The value of a series without labels on a page.
fn on_page(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name}")).trim().parse().expect("a number")
}

/// Scenario: an agent scrapes a Prometheus; a reload changes the receiver; the Prometheus ends.
/// Guarantee: what its page says arrives, with a report; a reload ends no series; when it is gone
/// its series end and `up` is 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_target_is_scraped() {
    let Some(target) = Prometheus::start("groups: []\n") else { return };
    let backend = keeping_backend(10_000).await;
    let gateway = Gateway::start(&config(target.addr, &backend, "")).await;
    let last = |name: &str| numbers(&backend).get(name).copied();
    let is_up = eventually(ARRIVES_WITHIN, async || last("up") == Some(Some(1.0))).await;
    assert!(is_up, "{:?}\n{}", numbers(&backend), gateway.output());

    // The target counts the requests of the scrapes before.
    let requests = || last("prometheus_http_request_duration_seconds_count").flatten();
    let has_requests = async || requests().is_some_and(|requests| requests >= 1.0);
    assert!(eventually(ARRIVES_WITHIN, has_requests).await, "{:?}", numbers(&backend));

    let (_, page) = get(target.addr, "/metrics").await.expect("a page");
    for name in ["prometheus_tsdb_blocks_loaded", "process_max_fds", "process_start_time_seconds"] {
        assert_eq!(last(name), Some(Some(on_page(&page, name))), "{name}");
    }
    let samples = last("scrape_samples_scraped").flatten().expect("is reported");
    let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    assert!((samples - lines as f64).abs() < 50.0, "{samples} samples, {lines} lines");

    // A Prometheus that is starting on a busy machine may answer its first scrapes too late.
    let failed = async || gateway.metric("sluice_prometheus_failed_scrapes_total", &[]).await;
    let failed_before = failed().await;
    gateway.reload(&config(target.addr, &backend, "    scrape_on_shutdown: true\n")).await;
    let points = backend.kept().len();
    let goes_on = eventually(ARRIVES_WITHIN, async || backend.kept().len() >= points + 2).await;
    assert!(goes_on, "{}", gateway.output());
    let added = last("scrape_series_added").flatten().expect("is reported");
    assert!(added < lines as f64 / 4.0, "the series are known: {added} of {lines} added");
    assert!(last("process_max_fds").flatten().is_some());
    assert_eq!(failed().await, failed_before);

    drop(target);
    let is_down = eventually(ARRIVES_WITHIN, async || last("up") == Some(Some(0.0))).await;
    assert!(is_down, "{}", gateway.output());
    assert_eq!(last("process_max_fds"), Some(None));
    assert!(gateway.output().contains("scrapes fail"), "{}", gateway.output());
}
