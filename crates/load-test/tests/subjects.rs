//! Real subjects between generator and backend. Where a component is missing the test passes over it, unless
//! SLUICE_TEST_REQUIRE_COMPONENTS=1 (see tests/components/env).

#[path = "support/component.rs"]
mod component;

use std::path::PathBuf;
use std::time::Duration;

use component::component;
use sluice_load_test::bench::{Contestant, Kind, all_rows, measure};
use sluice_load_test::demo::{self, DemoBackends, DemoOptions};
use sluice_load_test::scrape::Scrape;
use sluice_load_test::subject::{Dialect, GatewayConfig, Subject, SubjectSpec, free_addr, nginx_relay};
use sluice_load_test::{Backend, BackendOptions, Load, Retry};
use sluice_otlp::{Encoding, Signal};

fn collector(binary: PathBuf, config: String, ready: std::net::SocketAddr) -> SubjectSpec {
    SubjectSpec {
        name: "otelcol".to_owned(),
        binary,
        args: vec!["--config".to_owned(), "{config}".to_owned()],
        config,
        config_file: "config.yaml".to_owned(),
        ready: Some(ready.into()),
        ..SubjectSpec::default()
    }
}

#[tokio::test]
async fn nginx_relays_every_item_once() {
    let Some(binary) = component("SLUICE_TEST_NGINX") else { return };
    for keepalive in [false, true] {
        let backend = Backend::healthy().await.unwrap();
        let listen = free_addr().unwrap();
        let spec = SubjectSpec {
            name: "nginx".to_owned(),
            binary: binary.clone(),
            args: ["-e", "{dir}/error.log", "-p", "{dir}", "-c", "{config}"].map(str::to_owned).to_vec(),
            config: nginx_relay(listen, backend.addr(), keepalive),
            ready: Some(listen.into()),
            ..SubjectSpec::default()
        };
        let _subject = Subject::start(spec).await.unwrap();
        for encoding in [Encoding::Identity, Encoding::Gzip] {
            let report = Load::new(Signal::Traces, listen).items(5_000).encoding(encoding).run().await.unwrap();
            assert_eq!((report.accepted, report.missing_at(&backend)), (5_000, 0), "{:?}", report.messages);
        }
        assert_eq!((backend.unique_items(), backend.counts().doubled), (10_000, 0));
    }
}

/// The Collector decodes, edits and encodes everything anew, and cuts batches of its own: identities must survive.
#[tokio::test]
async fn the_collector_delivers_every_item_of_every_signal_once() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    for signal in Signal::ALL {
        let backend = Backend::start(BackendOptions::default().keep_requests(1)).await.unwrap();
        let config = GatewayConfig {
            dialect: Dialect::Collector,
            signal,
            listen: free_addr().unwrap(),
            metrics: free_addr().unwrap(),
            backends: vec![backend.addr()],
            gzip_out: true,
            resource_insert: true,
            attributes_upsert: true,
            batch: true,
        };
        let _subject = Subject::start(collector(binary.clone(), config.to_yaml(), config.listen)).await.unwrap();
        let mut missing = 0;
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            let load = Load::new(signal, config.listen).encoding(encoding).concurrency(2, 4);
            let report = load.items(4_000).retry(Retry::SDK).run().await.unwrap();
            assert_eq!(report.accepted, 4_000, "{signal} {encoding:?}: {:?}", report.messages);
            // The batch processor holds the last ones for ten seconds.
            assert!(backend.wait_for_items(4_000, Duration::from_secs(30)).await);
            missing += report.missing_at(&backend);
        }
        assert!(backend.wait_for_items(12_000, Duration::from_secs(30)).await, "{missing} missing at first");
        let counts = backend.counts();
        assert_eq!((counts.items, counts.doubled, counts.unidentified), (12_000, 0, 0), "{signal}");
        let last = &backend.kept()[0];
        let contains = |text: &str| memchr::memmem::find(&last.body, text.as_bytes()).is_some();
        assert!(contains("load-test-cluster") && contains("by-the-gateway"));
        let scrape = Scrape::fetch(config.metrics).await.unwrap();
        let accepted = format!("otelcol_receiver_accepted_{}", signal.items_name());
        assert_eq!(scrape.sum(&accepted, &[("receiver", "otlp")]), Some(12_000.0), "{signal}");
    }
}

#[tokio::test]
async fn the_demonstration_reports_each_pipeline_of_a_collector() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let backends = DemoBackends::start().await.unwrap();
    let (listen, metrics) = (free_addr().unwrap(), free_addr().unwrap());
    let spec = collector(binary, backends.gateway_config(listen, metrics), listen);
    let subject = Subject::start(spec).await.unwrap();
    let options = DemoOptions {
        spans_per_s: 5_120.0,
        duration: Duration::from_secs(3),
        drain_within: Duration::from_secs(2),
        ..DemoOptions::new(listen, metrics, subject.pid())
    };
    let report = demo::run(&options, &backends).await.unwrap();
    let [healthy, refusing, dead] = &report.pipelines[..] else { panic!("three pipelines") };
    assert!(report.accepted > 0 && report.accepted <= report.offered, "{report:?}");
    assert_eq!((healthy.exported, healthy.missing, healthy.lost()), (report.accepted, 0, Some(0)));
    assert_eq!(refusing.exported + refusing.missing, report.accepted);
    assert_eq!((dead.exported, dead.missing, dead.lost()), (0, report.accepted, None));
    assert!(healthy.queue_size.is_some() && dead.queue_size > Some(0.0), "{report:?}");
    assert!(report.memory_max_bytes > 0 && report.cpu_cores > 0.0);
}

#[tokio::test]
async fn every_row_can_be_measured_with_the_collector() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let contestant = Contestant::Collector { binary };
    for row in all_rows().iter().filter(|row| row.signal == Signal::Traces) {
        let one = measure(&contestant, row, Duration::from_secs(2), &[]).await.unwrap();
        assert!(one.rss_bytes > 0, "{}", row.id);
        assert!(row.kind == Kind::MemoryAtRest || one.items_per_s > 0.0, "{}", row.id);
    }
}
