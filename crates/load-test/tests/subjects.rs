//! Real subjects between generator and backend. Where a component is missing the test passes over
//! it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1 (see tests/components/env).

#[path = "support/component.rs"]
mod component;

use std::path::PathBuf;
use std::time::Duration;

use component::component;
use sluice_load_test::demo;
use sluice_load_test::run::Definition;
use sluice_load_test::scrape::Scrape;
use sluice_load_test::subject::{GatewayConfig, Subject, SubjectSpec, free_addr, nginx_relay};
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
            args: ["-e", "{dir}/error.log", "-p", "{dir}", "-c", "{config}"]
                .map(str::to_owned)
                .to_vec(),
            config: nginx_relay(listen, backend.addr(), keepalive),
            ready: Some(listen.into()),
            ..SubjectSpec::default()
        };
        let _subject = Subject::start(spec).await.unwrap();
        for encoding in [Encoding::Identity, Encoding::Gzip] {
            let load = Load::new(Signal::Traces, listen).items(5_000);
            let report = Load { encoding, ..load }.run().await.unwrap();
            assert_eq!(
                (report.accepted, report.missing_at(&backend)),
                (5_000, 0),
                "{:?}",
                report.messages
            );
        }
        assert_eq!((backend.unique_items(), backend.counts().doubled), (10_000, 0));
    }
}

/// The Collector decodes, edits and encodes everything anew, and cuts batches of its own:
/// identities must survive.
#[tokio::test]
async fn the_collector_delivers_every_item_of_every_signal_once() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    for signal in Signal::ALL {
        let options = BackendOptions { keep_requests: 1, ..BackendOptions::default() };
        let backend = Backend::start(options).await.unwrap();
        let config = GatewayConfig {
            signal,
            gzip_out: true,
            memory_limit_mib: Some(2000),
            processors: vec!["resource", "attributes", "batch"],
            ..GatewayConfig::new(free_addr().unwrap(), free_addr().unwrap(), vec![backend.addr()])
        };
        let _subject = Subject::start(collector(binary.clone(), config.to_yaml(), config.listen))
            .await
            .unwrap();
        let mut missing = 0;
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            let load = Load::new(signal, config.listen).items(4_000).concurrency(2, 4);
            let report = Load { encoding, retry: Retry::SDK, ..load }.run().await.unwrap();
            assert_eq!(report.accepted, 4_000, "{signal} {encoding:?}: {:?}", report.messages);
            // The batch processor holds the last ones for ten seconds.
            assert!(items_arrive(&backend, 4_000).await);
            missing += report.missing_at(&backend);
        }
        assert!(items_arrive(&backend, 12_000).await, "{missing} missing at first");
        let counts = backend.counts();
        assert_eq!((counts.items, counts.doubled, counts.unidentified), (12_000, 0, 0), "{signal}");
        let last = &backend.kept()[0];
        let contains = |text: &str| memchr::memmem::find(&last.body, text.as_bytes()).is_some();
        assert!(contains("load-test-cluster") && contains("by-the-gateway"));
        let scrape = Scrape::fetch(config.metrics, "/metrics").await.unwrap();
        let accepted = format!("otelcol_receiver_accepted_{}", signal.items_name());
        assert_eq!(scrape.sum(&accepted, &[("receiver", "otlp")]), Some(12_000.0), "{signal}");
    }
}

#[tokio::test]
async fn the_demonstration_reports_each_pipeline_of_a_collector() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let mut collector = Definition::built_in("otelcol").unwrap();
    collector.set_program(&binary).unwrap();
    let (lasts, drain_within) = (Duration::from_secs(3), Duration::from_secs(2));
    let kpis = demo::GATEWAY.run(collector, 5_120.0, lasts, drain_within).await.unwrap();
    let [healthy, refusing, dead] = &kpis.pipelines[..] else { panic!("three pipelines") };
    let accepted = kpis.accepted.unwrap();
    assert!(accepted > 0 && accepted <= kpis.offered.unwrap(), "{kpis:?}");
    assert_eq!(
        (healthy.exported, healthy.lost, demo::lost(healthy)),
        (Some(accepted), Some(0), Some(0))
    );
    assert_eq!(refusing.exported.unwrap() + refusing.lost.unwrap(), accepted);
    assert_eq!((dead.exported, dead.lost, demo::lost(dead)), (Some(0), Some(accepted), None));
    assert!(healthy.queue.is_some() && dead.queue > Some(0.0), "{kpis:?}");
    assert!(kpis.memory_max_bytes > Some(0.0) && kpis.cpu_cores > Some(0.0));
}

/// Waits until this many different items have come; false if they have not by then.
async fn items_arrive(backend: &Backend, items: u64) -> bool {
    let arrived = async {
        while backend.unique_items() < items {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), arrived).await.is_ok()
}
