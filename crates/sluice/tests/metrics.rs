//! The gateway's own metrics: under the Collector's names, with its labels, and true.

mod gateway;

use std::collections::{BTreeMap, BTreeSet};

use gateway::{
    Gateway, Options, SOON, assert_all_accepted, assert_arrives_once, eventually, exporter,
    fan_out, faulty_backend, get,
};
use sluice_load_test::scrape::Scrape;
use sluice_load_test::subject::free_addr;
use sluice_load_test::{Backend, Faults, Load, Protocol};
use sluice_otlp::Signal;
use sluice_telemetry::table::{MetricKind, TableDoc};

fn of(scrape: &Scrape, name: &str, labels: &[(&str, &str)]) -> u64 {
    scrape.sum(name, labels).unwrap_or_else(|| panic!("no {name} {labels:?}")) as u64
}

/// Pipelines of all three signals to one backend.
fn three_signals(backend: &Backend) -> String {
    let pipelines: String = Signal::ALL
        .iter()
        .map(|signal| {
            format!("    {signal}:\n      receivers: [otlp]\n      exporters: [otlp/backend]\n")
        })
        .collect();
    format!(
        "exporters:\n{}service:\n  pipelines:\n{pipelines}",
        gateway::exporter("backend", backend)
    )
}

/// Guarantee: accepted items, by receiver, signal and transport, and sent items, by exporter, equal
/// the counts of the generators and the backend, under the Collector's names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_agree_with_both_ends() {
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = Gateway::start(&three_signals(&backend)).await;
    for (signal, items) in
        [(Signal::Traces, 3_000), (Signal::Metrics, 2_000), (Signal::Logs, 1_000)]
    {
        let over_grpc = gateway.load(signal).items(items).run().await.expect("a load");
        let mut load = gateway.load(signal).items(items / 2);
        load.protocol = Protocol::Http;
        load.target = gateway.http;
        let over_http = load.run().await.expect("a load");
        for report in [&over_grpc, &over_http] {
            assert_all_accepted(report);
            assert_arrives_once(report, &backend, SOON).await;
        }
        let name = signal.items_name();
        let settled = async || gateway.metric("sluice_delivery_backlog_items", &[]).await == 0.0;
        assert!(eventually(SOON, settled).await);
        let scrape = gateway.scrape().await;
        let accepted = |transport| {
            of(
                &scrape,
                &format!("otelcol_receiver_accepted_{name}"),
                &[("receiver", "otlp"), ("transport", transport)],
            )
        };
        assert_eq!((accepted("grpc"), accepted("http")), (items, items / 2), "{signal}");
        let exporter = [("exporter", "otlp/backend")];
        assert_eq!(
            of(&scrape, &format!("otelcol_exporter_sent_{name}"), &exporter),
            items + items / 2
        );
        for zero in [
            format!("otelcol_receiver_refused_{name}"),
            format!("otelcol_exporter_send_failed_{name}"),
            format!("otelcol_exporter_enqueue_failed_{name}"),
        ] {
            assert_eq!(of(&scrape, &zero, &[]), 0, "{zero}");
        }
        let queue = [exporter[0], ("data_type", signal.as_str())];
        assert_eq!(of(&scrape, "otelcol_exporter_queue_size", &queue), 0);
        assert!(of(&scrape, "otelcol_exporter_queue_capacity", &queue) > 0);
    }
    let scrape = gateway.scrape().await;
    let counts = backend.counts();
    assert_eq!(
        counts.items_by_signal,
        [(Signal::Traces, 4_500), (Signal::Metrics, 3_000), (Signal::Logs, 1_500)].into()
    );
    assert_eq!(
        of(&scrape, "sluice_delivery_requests", &[("outcome", "delivered")]),
        counts.taken_requests
    );
    assert!(of(&scrape, "otelcol_process_memory_rss_bytes", &[]) > 1 << 20);
    assert!(scrape.sum("otelcol_process_uptime_seconds", &[]).is_some_and(|uptime| uptime > 0.0));
}

/// Guarantee: as in the Collector, the health check answers on all paths below one that ends in a
/// slash, whatever the method; on another it answers alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_health_check_answers_below_its_path() {
    let backend = Backend::healthy().await.expect("a backend");
    let other = sluice_load_test::subject::free_addr().expect("a free port");
    let extensions =
        format!("extensions:\n  health_check/exact:\n    endpoint: {other}\n    path: /up\n");
    let gateway = Gateway::start(
        &(extensions
            + &fan_out(Signal::Traces, 256, &[("backend", &backend)]).replace(
                "service:\n",
                "service:\n  extensions: [health_check, health_check/exact]\n",
            )),
    )
    .await;
    for (address, method, path, expected) in [
        (gateway.health, "GET", "/", 200),
        (gateway.health, "GET", "/healthz", 200),
        (gateway.health, "POST", "/a/b", 200),
        (other, "HEAD", "/up", 200),
        (other, "GET", "/up/there", 404),
    ] {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        let answer = gateway::request(address, &request).await.expect("an answer");
        assert_eq!(answer.0, expected, "{method} {path}");
    }
}

/// Guarantee: waiting, refused and permanently failed items are counted where the Collector counts
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_refusals_and_failures_show() {
    let dead = faulty_backend(Faults::dead()).await;
    let poison = faulty_backend(Faults::rejecting_poison()).await;
    let config = fan_out(Signal::Traces, 128, &[("dead", &dead), ("poison", &poison)]);
    let gateway = Gateway::start(&(config + "      buffer: {policy: backpressure}\n")).await;
    let load = gateway.load(Signal::Traces).items(1_000);
    let load = Load { poison_every: Some(100), ..load };
    let report = load.run().await.expect("a load");
    assert_all_accepted(&report);
    let failed = async || {
        gateway.metric("otelcol_exporter_send_failed_spans", &[("exporter", "otlp/poison")]).await
            == 10.0
    };
    assert!(eventually(SOON, failed).await, "{}", gateway.dead_letters().await);
    let scrape = gateway.scrape().await;
    let waiting = [("exporter", "otlp/dead"), ("data_type", "traces")];
    assert_eq!(of(&scrape, "otelcol_exporter_queue_size", &waiting), report.requests);
    assert_eq!(of(&scrape, "sluice_delivery_backlog_items", &[("pipeline", "traces/dead")]), 1_000);
    assert_eq!(of(&scrape, "otelcol_exporter_sent_spans", &[("exporter", "otlp/poison")]), 990);
    assert_eq!(of(&scrape, "otelcol_exporter_sent_spans", &[("exporter", "otlp/dead")]), 0);

    // Not OTLP: refused after it was read.
    let body = "\u{7}\u{7}\u{7}\u{7}";
    let head = "POST /v1/traces HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\
                content-type: application/x-protobuf";
    let bad = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (status, _) = gateway::request(gateway.http, &bad).await.expect("an answer");
    assert_eq!(status, 400);
    let refused = gateway.scrape().await;
    let labels = [("receiver", "otlp"), ("transport", "http"), ("signal", "traces")];
    assert_eq!(of(&refused, "sluice_receiver_refused_requests", &labels), 1);
    let invalid = [labels[0], labels[1], labels[2], ("reason", "invalid")];
    assert_eq!(of(&refused, "sluice_receiver_refused_requests", &invalid), 1);
    // As in the Collector: it is unknown how many items it had.
    assert_eq!(of(&refused, "otelcol_receiver_refused_spans", &labels[..2]), 0);
}

/// Guarantee: as in the Collector, either option turns `_total` and units on, even if the other is
/// true; without options names have neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suffixes_are_as_configured() {
    let backend = Backend::healthy().await.expect("a backend");
    for (options, has_suffixes) in [
        ("without_type_suffix: false", true),
        ("without_type_suffix: false\n                without_units: true", true),
        ("without_units: false\n                without_type_suffix: true", true),
        ("without_type_suffix: true", false),
        ("", false),
    ] {
        let gateway = Gateway::start(&three_signals(&backend)).await;
        let reader = format!(
            "service:\n  telemetry:\n    metrics:\n      readers:\n        - pull:\n            exporter:\n              \
             prometheus:\n                host: 127.0.0.1\n                \
             port: {}\n                \
             {}\n",
            gateway.metrics.port(),
            options
        );
        let config = three_signals(&backend).replace("service:\n", &reader);
        gateway.reload(&config).await;
        gateway.load(Signal::Traces).items(100).run().await.expect("a load");
        let (status, page) = get(gateway.metrics, "/metrics").await.expect("a page");
        assert_eq!(status, 200);
        let names: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("otelcol_receiver_accepted_spans"))
            .collect();
        assert!(!names.is_empty(), "{page}");
        for name in names {
            assert_eq!(
                name.starts_with("otelcol_receiver_accepted_spans_total{"),
                has_suffixes,
                "{options}: {name}"
            );
        }
        let uptime = page.lines().filter(|line| line.starts_with("otelcol_process_uptime"));
        let expected = match has_suffixes {
            true => "otelcol_process_uptime_seconds_total",
            false => "otelcol_process_uptime",
        };
        for line in uptime {
            let name = line.split(['{', ' ']).next();
            assert_eq!(name, Some(expected), "{options}");
        }
        assert!(page.contains("# TYPE otelcol_exporter_queue_size gauge"), "{page}");
    }
}

/// The families of a page: name, then type, meaning and the label names of all its series.
fn families(page: &str) -> BTreeMap<String, (String, String, BTreeSet<String>)> {
    let mut families: BTreeMap<String, (String, String, BTreeSet<String>)> = BTreeMap::new();
    for line in page.lines() {
        if let Some((name, meaning)) =
            line.strip_prefix("# HELP ").and_then(|line| line.split_once(' '))
        {
            families.entry(name.to_owned()).or_default().1 = meaning.to_owned();
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
        {
            families.entry(name.to_owned()).or_default().0 = kind.to_owned();
        } else if let Some((name, labels)) = line.split_once('{') {
            // No label's value has one of these characters.
            let labels = labels.split('}').next().unwrap_or_default().split(',');
            let names = labels.filter_map(|label| label.split('=').next()).map(str::to_owned);
            families.get_mut(name).expect("a TYPE line before it").2.extend(names);
        }
    }
    families
}

/// Guarantee: `/metrics` has exactly the metrics that the tables declare, with their type, meaning
/// and labels. Only metrics that are declared for a condition may be absent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_has_what_the_tables_declare_and_nothing_else() {
    let healthy = Backend::healthy().await.expect("a backend");
    let dead = faulty_backend(Faults::dead()).await;
    let mut config = three_signals(&healthy);
    config.push_str("    traces/dead:\n      receivers: [otlp]\n      exporters: [otlp/dead]\n");
    let config =
        config.replace("service:\n", &format!("{}service:\n", gateway::exporter("dead", &dead)));
    let gateway = Gateway::start(&config).await;
    gateway.load(Signal::Traces).items(100).run().await.expect("a load");
    let (status, page) = get(gateway.metrics, "/metrics").await.expect("a page");
    assert_eq!(status, 200);
    let mut found = families(&page);
    // The attributes of the resource are labels of every metric, also of those that have none of
    // their own.
    let constant = found["otelcol_process_uptime_seconds_total"].2.clone();
    // Of the receivers the configuration has only this one.
    let is_there =
        |table: &TableDoc| !table.title.starts_with("Receiver ") || table.title == "Receiver otlp";
    let declared = sluice_engine::reference::metric_tables()
        .into_iter()
        .filter(is_there)
        .flat_map(|table| table.metrics.into_iter().map(move |metric| (table.labels, metric)));
    for (common, metric) in declared {
        let suffix = if metric.kind == MetricKind::Counter { "_total" } else { "" };
        for name in &metric.names() {
            let Some((kind, meaning, labels)) = found.remove(&format!("{name}{suffix}")) else {
                assert!(metric.condition.is_some(), "{name} is declared, and is not in\n{page}");
                continue;
            };
            assert_eq!(
                (kind.as_str(), meaning.as_str()),
                (metric.kind.as_str(), metric.meaning),
                "{name}"
            );
            let own = common.iter().chain(metric.labels).map(|label| (*label).to_owned());
            let mut expected: BTreeSet<_> = own.chain(constant.iter().cloned()).collect();
            if name == "target_info" {
                let attributes = ["service_instance_id", "service_name", "service_version"];
                expected.extend(attributes.map(str::to_owned));
            }
            assert_eq!(labels, expected, "{name}");
        }
    }
    assert!(found.is_empty(), "not declared: {:?}", found.keys());
}

/// Guarantee: secrets of the configuration are shown nowhere: not in the log at level debug, not in
/// metrics, health check or dead letters, not in the output of `plan` and `validate`, not in an
/// error about them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_never_shown() {
    const SECRETS: [&str; 4] =
        ["s3cr3t-header-value", "s3cr3t-password", "s3cr3t-token", "s3cr3t-from-env"];
    let backend = faulty_backend(Faults::unavailable(0.5)).await;
    let config = format!(
        "exporters:\n  otlp/basic:\n    endpoint: {addr}\n    compression: none\n    tls: {{insecure: true}}\n    \
         headers: {{x-api-key: s3cr3t-header-value}}\n    auth: {{authenticator: basicauth}}\n  \
         otlp/bearer:\n    endpoint: {addr}\n    compression: none\n    \
         tls: {{insecure: true}}\n    \
         headers: {{x-other: \"${{env:TEST_SECRET}}\"}}\n    \
         auth: {{authenticator: bearertokenauth}}\n\
         extensions:\n  basicauth:\n    \
         client_auth: {{username: alice, password: s3cr3t-password}}\n  \
         bearertokenauth:\n    token: s3cr3t-token\n\
         service:\n  extensions: [health_check, basicauth, bearertokenauth]\n  telemetry:\n    \
         logs: {{level: debug}}\n  \
         pipelines:\n    traces/basic: {{receivers: [otlp], exporters: [otlp/basic]}}\n    \
         traces/bearer: {{receivers: [otlp], exporters: [otlp/bearer]}}\n",
        addr = backend.addr()
    );
    let env = vec![("TEST_SECRET".to_owned(), "s3cr3t-from-env".to_owned())];
    let gateway =
        Gateway::start_with(&config, Options { env: env.clone(), ..Options::default() }).await;
    let report = gateway.load(Signal::Traces).items(1_000).run().await.expect("a load");
    assert_all_accepted(&report);
    // Errors of connections are logged at this level.
    backend.faults().set(Faults::dead());
    gateway.wait_for_output("DEBUG", 1).await;
    // A mistake beside each secret: the error shows lines of the file.
    gateway.reconfigure(
        &config
            .replace("client_auth: {username", "client_auth: {usrname")
            .replace("headers: {x-api", "haeders: {x-api"),
    );
    gateway.wait_for_output("not reloaded", 1).await;
    let mut shown = vec![("log", gateway.output())];
    for (what, addr, path) in [
        ("metrics", gateway.metrics, "/metrics"),
        ("dead letters", gateway.metrics, "/dead-letters"),
        ("health", gateway.health, "/"),
    ] {
        shown.push((what, get(addr, path).await.expect("an answer").1));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gateway.yaml");
    let whole = format!("receivers:\n  otlp:\n    protocols: {{grpc: }}\n{config}")
        .replace("health_check, ", "");
    std::fs::write(&file, &whole).expect("a file");
    for command in ["plan", "validate"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"));
        let output =
            { output }.arg(command).arg(&file).envs(env.clone()).output().expect("sluice runs");
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{text}");
        shown.push((command, text));
    }
    for (what, text) in &shown {
        assert!(!text.is_empty());
        for secret in SECRETS.iter().chain(&["c29tZWJvZHk6czNjcjN0LXBhc3N3b3Jk"]) {
            assert!(!text.contains(secret), "{what} shows {secret}:\n{text}");
        }
    }
}

/// Scenario: a processor that two pipelines share, a dead backend beside a healthy one, and a
/// reload. Guarantee: its items are counted once and counted on, the request that waits for its
/// retry is in flight as in the Collector, and `target_info` names the process.
#[tokio::test]
async fn processors_requests_in_flight_and_the_process_are_shown() {
    let backend = Backend::healthy().await.expect("a backend");
    let dead = free_addr().expect("a free port");
    let config = format!(
        "exporters:\n{}  otlp/dead: {{endpoint: '{dead}', tls: {{insecure: true}}}}\n\
         processors:\n  resource: {{attributes: [{{key: k, value: v, action: upsert}}]}}\n\
         service:\n  pipelines:\n    traces: {{receivers: [otlp], processors: [resource], \
         exporters: [otlp/b]}}\n    traces/dead: {{receivers: [otlp], \
         processors: [resource], exporters: [otlp/dead]}}\n",
        exporter("b", &backend)
    );
    let gateway = Gateway::start(&config).await;
    let labels = [("processor", "resource"), ("otel_signal", "traces")];
    let counted = async || {
        let names =
            ["incoming", "outgoing"].map(|it| format!("otelcol_processor_{it}_items_total"));
        let scrape = gateway.scrape().await;
        names.map(|name| scrape.sum(&name, &labels).unwrap_or(0.0))
    };
    gateway.accepts(100).await;
    assert_eq!(counted().await, [100.0; 2]);
    gateway.reload(&config).await;
    gateway.accepts(100).await;
    assert_eq!(counted().await, [200.0; 2]);
    let dead = [("exporter", "otlp/dead"), ("pipeline", "traces/dead"), ("data_type", "traces")];
    let in_flight = async || gateway.metric("otelcol_exporter_in_flight_requests", &dead).await;
    assert!(eventually(SOON, async || in_flight().await >= 1.0).await, "{}", in_flight().await);
    let named = gateway.metric("target_info", &[("service_name", "sluice")]).await;
    assert_eq!(named, 1.0);
}

/// Guarantee: docs/troubleshooting.md says for each reason of a refusal what to do.
#[tokio::test]
async fn every_reason_of_a_refusal_has_its_remedy_in_the_documents() {
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = Gateway::start(&fan_out(Signal::Traces, 64, &[("backend", &backend)])).await;
    let (_, page) = get(gateway.metrics, "/metrics").await.expect("a page");
    let refused = page.lines().filter(|it| it.starts_with("sluice_receiver_refused_requests"));
    let reasons: BTreeSet<&str> =
        refused.filter_map(|line| line.split("reason=\"").nth(1)?.split('"').next()).collect();
    assert!(reasons.len() >= 12, "{reasons:?}");
    let document = include_str!("../../../docs/troubleshooting.md");
    let without = reasons.iter().find(|it| !document.contains(&format!("| `{it}` |")));
    assert_eq!(without, None, "no row in docs/troubleshooting.md");
}
