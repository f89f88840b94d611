//! Real agents scrape and tail, and send to verifying backends. Where a component is missing the
//! test passes over it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1 (see tests/components/env).

#[path = "support/component.rs"]
mod component;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use component::component;
use sluice_load_test::generate::{Farm, LogFiles};
use sluice_load_test::scrape::Scrape;
use sluice_load_test::subject::{Subject, SubjectSpec, free_addr};
use sluice_load_test::{Backend, LoadReport};

/// Starts a Collector with one pipeline from this receiver to the backend.
async fn collector(binary: PathBuf, signal: &str, receiver: &str, backend: &Backend) -> Subject {
    let metrics = free_addr().unwrap();
    let name = receiver.trim().split(':').next().unwrap();
    let config = format!(
        "extensions:\n  file_storage:\n    directory: {{dir}}/checkpoints\n    create_directory: true\n\
         receivers:\n{receiver}\n\
         exporters:\n  otlp:\n    endpoint: {}\n    compression: none\n    tls:\n      insecure: true\n\
         service:\n  extensions: [file_storage]\n  telemetry:\n    metrics:\n      readers:\n        - pull:\n            \
         exporter:\n              prometheus:\n                host: {}\n                port: {}\n  pipelines:\n    \
         {signal}:\n      receivers: [{name}]\n      exporters: [otlp]\n",
        backend.addr(),
        metrics.ip(),
        metrics.port(),
    );
    let spec = SubjectSpec {
        name: "otelcol".to_owned(),
        binary,
        args: vec!["--config".to_owned(), "{config}".to_owned()],
        config,
        config_file: "config.yaml".to_owned(),
        ready: Some(metrics.into()),
        ..SubjectSpec::default()
    };
    Subject::start(spec).await.unwrap()
}

/// Waits until all acknowledged items have arrived. Returns the number of missing ones.
async fn missing_in_the_end(report: &LoadReport, backend: &Backend) -> u64 {
    let began = Instant::now();
    while report.missing_at(backend) > 0 && began.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    report.missing_at(backend)
}

/// A small farm whose series are new every second.
fn farm() -> Farm {
    Farm {
        targets: 3,
        metrics: 40,
        series: 5,
        counters: 10,
        churn_every: Some(Duration::from_secs(1)),
        scrape_every: Duration::from_millis(400),
        ..Farm::default()
    }
}

fn prometheus_yaml(targets: &[SocketAddr], indent: &str) -> String {
    let targets = targets.iter().map(|target| format!("'{target}'")).collect::<Vec<_>>().join(", ");
    [
        "global:",
        "  scrape_interval: 400ms",
        "  scrape_timeout: 400ms",
        "scrape_configs:",
        "  - job_name: farm",
        "    static_configs:",
        &format!("      - targets: [{targets}]"),
    ]
    .map(|line| format!("{indent}{line}\n"))
    .concat()
}

/// Scraped by the Collector, and handed on as OTLP: doubles, counters and new series keep their
/// identities.
#[tokio::test]
async fn every_sample_that_the_collector_scraped_arrives_once() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let backend = Backend::healthy().await.unwrap();
    let open = farm().open().unwrap();
    let receiver =
        format!("  prometheus:\n    config:\n{}", prometheus_yaml(&open.addrs, "      "));
    let subject = collector(binary, "metrics", &receiver, &backend).await;
    assert!(open.wait_for_scraper(Duration::from_secs(30)).await, "{}", subject.output_tail());
    let mut running = open.start();
    tokio::time::sleep(Duration::from_secs(3)).await;
    running.stop();
    let report = running.finish().await.unwrap();
    assert!(
        report.requests >= 9 && report.accepted == report.requests * 200,
        "{report:?} {}",
        subject.output_tail()
    );
    assert_eq!(report.failed + report.unanswered, 0, "{report:?}");
    assert_eq!(missing_in_the_end(&report, &backend).await, 0, "{}", subject.output_tail());
    let counts = backend.counts();
    assert_eq!((backend.unique_items(), counts.doubled, counts.malformed), (report.accepted, 0, 0));
    // `up` and its like are the Collector's own.
    assert!(counts.unidentified >= report.requests, "{counts:?}");
    let latency = backend.latency();
    assert!(
        latency.max < Duration::from_secs(30) && latency.count == report.accepted,
        "{latency:?}"
    );
}

/// A real Prometheus understands the pages: every target is up, every series is there, and the
/// series are replaced.
#[tokio::test]
async fn prometheus_scrapes_every_series_of_every_target() {
    let Some(binary) = component("SLUICE_TEST_PROMETHEUS") else { return };
    let open = farm().open().unwrap();
    let listen = free_addr().unwrap();
    let words = [
        "--config.file={config}",
        "--storage.tsdb.path={dir}/data",
        &format!("--web.listen-address={listen}"),
    ];
    let spec = SubjectSpec {
        name: "prometheus".to_owned(),
        binary,
        args: words.map(str::to_owned).to_vec(),
        config: prometheus_yaml(&open.addrs, ""),
        config_file: "prometheus.yaml".to_owned(),
        ready: Some(listen.into()),
        ..SubjectSpec::default()
    };
    let subject = Subject::start(spec).await.unwrap();
    assert!(open.wait_for_scraper(Duration::from_secs(30)).await, "{}", subject.output_tail());
    let mut running = open.start();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let own = Scrape::fetch(listen, "/metrics").await.unwrap();
    running.stop();
    let report = running.finish().await.unwrap();
    assert!(report.requests >= 9 && report.failed == 0, "{report:?} {}", subject.output_tail());
    let appended = own.sum("prometheus_tsdb_head_samples_appended_total", &[]).unwrap();
    assert!(appended >= 9.0 * 200.0, "{appended}");
    let series = own.sum("prometheus_tsdb_head_series", &[]).unwrap();
    assert!(series >= 3.0 * 2.0 * 200.0, "two generations of each target at least: {series}");
    assert_eq!(
        own.sum("prometheus_target_scrapes_sample_duplicate_timestamp_total", &[]),
        Some(0.0)
    );
}

fn filelog(root: &Path) -> String {
    format!(
        "  filelog:\n    include: ['{}/*/*/*.log']\n    include_file_path: true\n    start_at: beginning\n    storage: file_storage\n    \
         retry_on_failure:\n      enabled: true\n    operators:\n      - type: container\n",
        root.display()
    )
}

/// The Collector's filelog follows renamed files: no line is lost over dozens of rotations, nor
/// read twice.
#[tokio::test]
async fn every_line_that_the_collector_tailed_over_rotations_arrives_once() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let backend = Backend::healthy().await.unwrap();
    // A file of each pod is full twice a second and is looked at once a second; the Collector looks
    // every 200 ms.
    let (rotate_bytes, rotate_every) = (110_000, Duration::from_secs(1));
    let shape = LogFiles {
        pods: 3,
        lines_per_s: Some(1_500.0),
        rotate_bytes,
        rotate_every,
        ..LogFiles::default()
    };
    let open = shape.open().unwrap();
    let subject = collector(binary, "logs", &filelog(open.root()), &backend).await;
    let root = open.root().to_owned();
    let mut running = open.start(Vec::new());
    tokio::time::sleep(Duration::from_secs(4)).await;
    running.stop();
    let report = running.finish().await.unwrap();
    assert!(report.accepted >= 4_500, "{report:?}");
    let files = walk(&root);
    assert!(files > 3 * 3, "every pod's files were rotated: {files} files");
    assert_eq!(missing_in_the_end(&report, &backend).await, 0, "{}", subject.output_tail());
    let counts = backend.counts();
    assert_eq!((backend.unique_items(), counts.doubled), (report.accepted, 0), "{counts:?}");
    assert_eq!(counts.unidentified, 0, "no line was torn: {counts:?}");
}

/// Lines of more than 16 KiB come in pieces, which the Collector's container operator puts together
/// again.
#[tokio::test]
async fn a_line_in_pieces_arrives_as_one() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let backend = Backend::healthy().await.unwrap();
    let shape =
        LogFiles { pods: 2, body_bytes: 40_000, lines_per_s: Some(50.0), ..LogFiles::default() };
    let open = shape.open().unwrap();
    let subject = collector(binary, "logs", &filelog(open.root()), &backend).await;
    let mut running = open.start(Vec::new());
    tokio::time::sleep(Duration::from_secs(2)).await;
    running.stop();
    let report = running.finish().await.unwrap();
    assert!(report.accepted >= 50, "{report:?}");
    assert_eq!(missing_in_the_end(&report, &backend).await, 0, "{}", subject.output_tail());
    assert_eq!((backend.items(), backend.counts().unidentified), (report.accepted, 0));
}

/// Files below this folder.
fn walk(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { walk(&path) } else { 1 }).sum()
}
