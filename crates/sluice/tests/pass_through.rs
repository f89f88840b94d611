//! Unchanged requests are forwarded as they came; requests that a step or a tenant separates stay
//! separate.

mod gateway;

use std::collections::BTreeSet;
use std::time::Duration;

use gateway::{
    Gateway, SOON, assert_all_accepted, assert_arrives_once, eventually, keeping_backend,
};
use http::HeaderValue;
use sluice_load_test::{Backend, Load};
use sluice_otlp::{Encoding, Signal};

/// A pipeline of traces to a gzip exporter, with these processors.
fn config(backend: &Backend, processors: &str, names: &str) -> String {
    format!(
        "{processors}exporters:\n  otlp:\n    endpoint: {}\n    compression: gzip\n    tls:\n      insecure: true\n\
         service:\n  pipelines:\n    traces:\n      receivers: [otlp]\n      \
         processors: [{names}]\n      exporters: [otlp]\n",
        backend.addr()
    )
}

const RESOURCE: &str = "processors:\n  resource:\n    attributes:\n      \
                        - {action: insert, key: test.gateway, value: inserted-here}\n";

fn contains(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Guarantee: unchanged gzip requests of 16 KiB and more reach the backend one by one, with the
/// bytes that were sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_compressed_requests_go_out_as_they_came() {
    let backend = keeping_backend(64).await;
    let gateway = Gateway::start(&config(&backend, "", "")).await;
    let load = gateway.load(Signal::Traces).items(2_000).concurrency(2, 4);
    let load = Load { encoding: Encoding::Gzip, ..load };
    let report = load.run().await.expect("a load");
    assert_all_accepted(&report);
    assert_arrives_once(&report, &backend, SOON).await;
    let counts = backend.counts();
    assert_eq!(counts.taken_requests, report.requests, "one by one");
    // The generator's members hold constant blocks of its own making: packing them again would not
    // give the same number of bytes. Each frame that was sent has 5 bytes of gRPC before its
    // message.
    assert_eq!(counts.bytes, report.bytes_sent - 5 * report.requests, "byte for byte");
    assert!(backend.kept().iter().all(|request| request.encoding == Encoding::Gzip));
}

/// Guarantee: a change of the resource is in every request, which is compressed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_requests_are_compressed_again() {
    let backend = keeping_backend(64).await;
    let gateway = Gateway::start(&config(&backend, RESOURCE, "resource")).await;
    let load = gateway.load(Signal::Traces).items(2_000).concurrency(2, 4);
    let load = Load { encoding: Encoding::Gzip, ..load };
    let report = load.run().await.expect("a load");
    assert_all_accepted(&report);
    assert_arrives_once(&report, &backend, SOON).await;
    assert_ne!(backend.counts().bytes, report.bytes_sent - 5 * report.requests);
    for request in backend.kept() {
        assert_eq!(request.encoding, Encoding::Gzip);
        let resources =
            request.body.windows(17).filter(|window| window == b"load_test.request").count();
        let inserted = request.body.windows(13).filter(|window| window == b"inserted-here").count();
        assert_eq!(inserted, resources, "once in every resource");
    }
}

/// Guarantee: small requests, compressed or not, share requests to the backend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_requests_are_merged() {
    for encoding in [Encoding::Gzip, Encoding::Identity] {
        let backend = keeping_backend(64).await;
        let batch = "processors:\n  batch:\n    timeout: 300ms\n";
        let gateway = Gateway::start(&config(&backend, batch, "batch")).await;
        let load = gateway.load(Signal::Traces).items(600).items_per_request(2);
        let load = Load { encoding, ..load };
        let report = load.run().await.expect("a load");
        assert_all_accepted(&report);
        assert_arrives_once(&report, &backend, SOON).await;
        let requests = backend.counts().taken_requests;
        assert!(
            requests <= report.requests / 10,
            "{requests} requests of {} ({encoding:?})",
            report.requests
        );
    }
}

/// Scenario: two tenants and one sender without a tenant, all small requests, and a batch processor
/// that would merge. Guarantee: no request to the backend mixes tenants, and each carries the
/// header of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_never_share_a_request() {
    let backend = keeping_backend(4_096).await;
    let config = format!(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        include_metadata: true\n\
         extensions:\n  headers_setter:\n    headers:\n      \
         - {{action: upsert, key: x-scope-orgid, \
         from_context: x-tenant, default_value: unknown}}\n\
         processors:\n  batch:\n    timeout: 200ms\n    metadata_keys: [x-tenant]\n\
         exporters:\n  otlp:\n    endpoint: {}\n    compression: none\n    tls:\n      \
         insecure: true\n    auth:\n      \
         authenticator: headers_setter\n\
         service:\n  extensions: [health_check, headers_setter]\n  pipelines:\n    traces:\n      \
         receivers: [otlp]\n      \
         processors: [batch]\n      exporters: [otlp]\n",
        backend.addr()
    );
    let gateway = Gateway::start(&config).await;
    let tenants = [Some("alpha"), Some("beta"), None];
    let mut running = Vec::new();
    for tenant in tenants {
        let mut load =
            gateway.load(Signal::Traces).items(600).items_per_request(3).concurrency(1, 4);
        if let Some(tenant) = tenant {
            load.headers.append("x-tenant", HeaderValue::from_static(tenant));
        }
        running.push(load.start().expect("a load"));
    }
    let mut header_of = Vec::new();
    for (mut running, tenant) in running.into_iter().zip(tenants) {
        let report = running.finish().await.expect("a load");
        assert_all_accepted(&report);
        assert_arrives_once(&report, &backend, SOON).await;
        // The first half of a request's stamp is the identity of its first item, whose upper 16
        // bits are the generator.
        header_of.push((format!("{:04x}", report.generator), tenant.unwrap_or("unknown")));
    }
    let kept = backend.kept();
    let mut seen = BTreeSet::new();
    for request in &kept {
        let header =
            request.headers.get("x-scope-orgid").expect("a tenant").to_str().expect("text");
        for generator in generators(&request.body) {
            let (_, expected) =
                header_of.iter().find(|(known, _)| *known == generator).expect("a known generator");
            assert_eq!(header, *expected, "tenants are mixed");
        }
        seen.insert(header.to_owned());
    }
    assert_eq!(seen, BTreeSet::from(["alpha", "beta", "unknown"].map(str::to_owned)));
    assert!(
        kept.len() < 300,
        "requests of one tenant are merged all the same: {} requests",
        kept.len()
    );
}

/// Scenario: the batch processor, the exporter's queue or a reload sets by which metadata requests
/// are batched. Guarantee: no request to the backend mixes two tenants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_told_apart_by_metadata() {
    let backend = keeping_backend(4_096).await;
    let config = |processor: &str, queue: &str| {
        format!(
            "receivers:\n  otlp:\n    protocols:\n      grpc:\n        include_metadata: true\n\
             processors:\n  batch:\n    timeout: 200ms\n{processor}\
             exporters:\n  otlp:\n    endpoint: {}\n    compression: none\n    tls:\n      \
             insecure: true\n{queue}\
             service:\n  pipelines:\n    traces:\n      receivers: [otlp]\n      \
             processors: [batch]\n      exporters: [otlp]\n",
            backend.addr()
        )
    };
    let processor = "    metadata_keys: [x-tenant]\n";
    let queue = "    sending_queue:\n      batch:\n        flush_timeout: 200ms\n        \
                 sizer: items\n        partition:\n          \
                 metadata_keys: [X-Tenant]\n";
    for (processor, queue) in [(processor, ""), ("", queue)] {
        let apart = config(processor, queue);
        let gateway = Gateway::start(&apart).await;
        assert_eq!(shared_requests(&gateway, &backend).await, 0, "{apart}");
        gateway
            .reload(&apart.replace(": [x-tenant]", ": []").replace(": [X-Tenant]", ": []"))
            .await;
        assert!(shared_requests(&gateway, &backend).await > 0, "nothing sets them apart");
        gateway.reload(&apart).await;
        assert_eq!(shared_requests(&gateway, &backend).await, 0, "after a reload: {apart}");
    }
}

/// Sends as two tenants. Returns how many of the requests that arrive hold telemetry of both.
async fn shared_requests(gateway: &Gateway, backend: &Backend) -> usize {
    let before = backend.kept().len();
    let tenants = ["alpha", "beta"].map(|tenant| {
        let mut load =
            gateway.load(Signal::Traces).items(600).items_per_request(3).concurrency(1, 4);
        load.headers.append("x-tenant", HeaderValue::from_static(tenant));
        load.start().expect("a load")
    });
    for mut running in tenants {
        let report = running.finish().await.expect("a load");
        assert_all_accepted(&report);
        assert_arrives_once(&report, backend, SOON).await;
    }
    backend.kept()[before..].iter().filter(|request| generators(&request.body).len() > 1).count()
}

/// The generators' numbers in hexadecimal that a body's resources name.
fn generators(body: &[u8]) -> BTreeSet<String> {
    let key = b"load_test.request";
    let starts =
        (0..body.len().saturating_sub(key.len())).filter(|&at| body[at..].starts_with(key));
    // After the key: the tag and length of the value, and the tag and length of the string in it.
    let stamps = starts.filter_map(|at| body.get(at + key.len() + 4..at + key.len() + 8));
    stamps.map(|stamp| String::from_utf8_lossy(stamp).into_owned()).collect()
}

/// Guarantee: a pipeline with a step sends the changed form of a request, and one without sends the
/// original.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_one_pipeline_does_not_touch_the_others() {
    let [plain, edited] = [keeping_backend(64).await, keeping_backend(64).await];
    let config = format!(
        "{RESOURCE}exporters:\n{}{}service:\n  pipelines:\n    traces/plain:\n      receivers: [otlp]\n      \
         exporters: [otlp/plain]\n    traces/edited:\n      receivers: [otlp]\n      \
         processors: [resource]\n      \
         exporters: [otlp/edited]\n",
        gateway::exporter("plain", &plain),
        gateway::exporter("edited", &edited)
    );
    let gateway = Gateway::start(&config).await;
    let report = gateway.load(Signal::Traces).items(1_000).run().await.expect("a load");
    for backend in [&plain, &edited] {
        assert_arrives_once(&report, backend, Duration::from_secs(10)).await;
    }
    assert!(eventually(SOON, async || !plain.kept().is_empty() && !edited.kept().is_empty()).await);
    assert!(plain.kept().iter().all(|request| !contains(&request.body, "inserted-here")));
    assert!(edited.kept().iter().all(|request| contains(&request.body, "inserted-here")));
}
