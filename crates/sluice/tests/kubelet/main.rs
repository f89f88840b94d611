//! The receiver `kubeletstats` against the real Collector's: both ask the same stand-in for a
//! kubelet with the same section `receivers`, and what arrives is the same; and a kubelet that
//! refuses, in the log.

#[path = "../gateway/mod.rs"]
mod gateway;
mod metrics;
#[path = "../peers/mod.rs"]
mod peers;
mod stand_in;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use gateway::{Gateway, Options, SOON, eventually};
use metrics::Scrapes;
use peers::component;
use sluice_load_test::subject::{Subject, SubjectSpec, free_addr};
use sluice_load_test::{Backend, BackendOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const WITHIN: Duration = Duration::from_secs(60);

/// Name of the case, name of the receiver's kind, options. `URL` is the kubelet's.
const CASES: [(&str, &str, &str); 8] = [
    ("defaults", "kubelet_stats", "{auth_type: none, endpoint: URL}"),
    (
        "sparse",
        "kubeletstats",
        "{auth_type: none, endpoint: URL, metric_groups: [container, pod, node, volume]}",
    ),
    // As an agent of Kyma has it, but for the credentials.
    (
        "agent",
        "kubeletstats",
        "{auth_type: none, endpoint: URL, insecure_skip_verify: true, \
         metric_groups: [container, pod, node, volume], extra_metadata_labels: [k8s.volume.type], \
         metrics: {container.cpu.time: {enabled: false}, k8s.pod.cpu.time: {enabled: false}}, \
         collect_all_network_interfaces: {node: true}}",
    ),
    (
        "everything",
        "kubelet_stats",
        "{auth_type: none, endpoint: URL, node: everything-node, \
         metric_groups: [container, pod, node, volume], \
         extra_metadata_labels: [container.id, k8s.volume.type], \
         k8s_api_config: {auth_type: kubeConfig}, METRICS, \
         collect_all_network_interfaces: {node: true, pod: true}, \
         resource_attributes: {aws.volume.id: {enabled: true}, fs.type: {enabled: true}, \
         partition: {enabled: true}, gce.pd.name: {enabled: true}, \
         glusterfs.endpoints.name: {enabled: true}, glusterfs.path: {enabled: true}}}",
    ),
    (
        "combined",
        "kubelet_stats",
        "{auth_type: none, endpoint: URL, metric_groups: [container, pod, node], \
         collect_all_network_interfaces: {node: true, pod: true}, metrics: {\
         k8s.node.network.io: {attributes: [direction], aggregation_strategy: avg}, \
         k8s.node.network.errors: {attributes: [interface], aggregation_strategy: max}, \
         k8s.pod.network.io: {attributes: [], aggregation_strategy: min}, \
         k8s.container.ephemeral_storage.usage: {enabled: true, attributes: []}}}",
    ),
    (
        "filtered",
        "kubelet_stats",
        "{auth_type: none, endpoint: URL, metric_groups: [container, pod, node, volume], \
         resource_attributes: {k8s.pod.uid: {enabled: false}, \
         k8s.container.name: {metrics_include: [{strict: app}, {regexp: 't.o$'}]}, \
         k8s.volume.name: {metrics_exclude: [{regexp: ^c}, {strict: data}]}, \
         k8s.namespace.name: {enabled: false, metrics_exclude: [{regexp: .}]}}}",
    ),
    ("nodes", "kubelet_stats", "{auth_type: none, endpoint: URL, metric_groups: [node]}"),
    (
        "proxied",
        "kubelet_stats",
        "{auth_type: kubeConfig, endpoint: proxied, extra_metadata_labels: [container.id]}",
    ),
];

/// Metrics that are off by default.
const OFF: [&str; 23] = [
    "container.uptime",
    "k8s.container.cpu.node.utilization",
    "k8s.container.cpu_limit_utilization",
    "k8s.container.cpu_request_utilization",
    "k8s.container.ephemeral_storage.usage",
    "k8s.container.memory.node.utilization",
    "k8s.container.memory_limit_utilization",
    "k8s.container.memory_request_utilization",
    "k8s.node.filesystem.inode.count",
    "k8s.node.filesystem.inode.free",
    "k8s.node.system_container.cpu.time",
    "k8s.node.system_container.cpu.usage",
    "k8s.node.system_container.memory.usage",
    "k8s.node.system_container.memory.working_set",
    "k8s.node.uptime",
    "k8s.pod.cpu.node.utilization",
    "k8s.pod.cpu_limit_utilization",
    "k8s.pod.cpu_request_utilization",
    "k8s.pod.memory.node.utilization",
    "k8s.pod.memory_limit_utilization",
    "k8s.pod.memory_request_utilization",
    "k8s.pod.uptime",
    "k8s.pod.volume.usage",
];

fn config(kubelets: SocketAddr, backend: &Backend, exporter: &str, more: &str) -> String {
    let off = OFF.map(|name| format!("{name}: {{enabled: true}}")).join(", ");
    let (mut receivers, mut names) = (String::new(), Vec::new());
    for (name, kind, options) in CASES {
        let options = options.replace("URL", &format!("'http://{kubelets}/{name}'"));
        let options = options.replace("METRICS", &format!("metrics: {{{off}}}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            receivers,
            "  {kind}/{name}: {{collection_interval: 2s, {}",
            options.trim_start_matches('{')
        );
        names.push(format!("{kind}/{name}"));
    }
    format!(
        "receivers:\n{receivers}exporters:\n  otlp_grpc:\n    endpoint: {}\n    tls:\n      \
         insecure: true\n{exporter}{more}  pipelines:\n    metrics:\n      receivers: [{}]\n      \
         exporters: [otlp_grpc]\n",
        backend.addr(),
        names.join(", ")
    )
}

async fn backend() -> Backend {
    let options = BackendOptions { keep_requests: usize::MAX, ..BackendOptions::default() };
    Backend::start(options).await.expect("a backend")
}

/// Scenario: nodes with all that a kubelet tells, and with little; through a kubelet's port and
/// through the API server; with all metrics, chosen ones, combined points and filters. Guarantee:
/// resources, scopes, metrics, points, values and starts are those of the Collector.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_those_of_the_collector() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let kubelets = stand_in::start().await;
    let folder = tempfile::tempdir().expect("a directory");
    let env = vec![("KUBECONFIG".to_owned(), stand_in::kubeconfig(kubelets, folder.path()))];
    let backends = [backend().await, backend().await];
    let health = free_addr().expect("a port");
    let more = format!(
        "extensions:\n  health_check:\n    endpoint: {health}\nservice:\n  \
         extensions: [health_check]\n  telemetry:\n    metrics:\n      level: none\n"
    );
    let exporter = "    sending_queue:\n      enabled: false\n";
    let collector = Subject::start(SubjectSpec {
        name: "otelcol".to_owned(),
        binary,
        args: ["--config", "{config}"].map(str::to_owned).to_vec(),
        config: config(kubelets, &backends[0], exporter, &more),
        config_file: "config.yaml".to_owned(),
        env: env.clone(),
        ready: Some(health.into()),
        ..SubjectSpec::default()
    });
    let collector = collector.await.unwrap_or_else(|error| panic!("{error}"));
    let config = config(kubelets, &backends[1], "", "service:\n");
    let options = Options { env, ..Options::default() };
    let gateway = Gateway::start_with(&config, options).await;

    let scrapes = || backends.each_ref().map(|backend| Scrapes::of(&backend.kept()));
    // The node's capacity may come only after the first scrape.
    let all = async || scrapes().iter().all(|it| CASES.iter().all(|case| it.count(case.0) >= 3));
    let arrived = eventually(WITHIN, all).await;
    assert!(arrived, "{}\n{}", collector.output(), gateway.output());
    let [expected, actual] = scrapes();
    let mut differences = Vec::new();
    for (case, ..) in CASES {
        let (expected, actual) = (expected.last(case), actual.last(case));
        if expected != actual {
            let lines = expected.iter().zip(&actual).find(|(one, other)| one != other);
            let lengths = (expected.len(), actual.len());
            differences.push(format!("{case} {lengths:?}: {lines:#?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // Cases that compare little would prove little.
    for (case, least) in [("everything", 110), ("defaults", 50), ("sparse", 4), ("proxied", 50)] {
        let points = actual.last(case).len();
        assert!(points >= least, "{case}: {points}");
    }
    assert_eq!(gateway.metric("sluice_kubeletstats_failed_scrapes_total", &[]).await, 0.0);
}

/// Scenario: a kubelet that refuses us, and answers later. Guarantee: the log names the permission
/// once and what to do, says when it works, and each scrape is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_permission_is_named_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let kubelet = listener.local_addr().expect("an address");
    let (allow, allowed) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let (status, body) = match *allowed.borrow() {
                false => ("403 Forbidden", "Forbidden (user=x, verb=get, resource=nodes)"),
                true => ("200 OK", r#"{"node": {"nodeName": "n", "fs": {"usedBytes": 1}}}"#),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let backend = backend().await;
    let gateway = Gateway::start(&format!(
        "receivers:\n  kubeletstats:\n    auth_type: none\n    endpoint: {kubelet}\n    \
         collection_interval: 200ms\nexporters:\n  otlp:\n    endpoint: {}\n    tls:\n      \
         insecure: true\nservice:\n  pipelines:\n    metrics:\n      \
         receivers: [kubeletstats]\n      exporters: [otlp]\n",
        backend.addr()
    ))
    .await;
    let failed = async || {
        let labels = [("reason", "forbidden")];
        gateway.metric("sluice_kubeletstats_failed_scrapes_total", &labels).await
    };
    assert!(eventually(SOON, async || failed().await >= 5.0).await, "{}", gateway.output());
    let output = gateway.output();
    assert_eq!(gateway.count_in_output("the kubelet gives no metrics"), 1, "{output}");
    assert!(output.contains("must allow `get` of the resource `nodes/stats`"), "{output}");
    assert_eq!(backend.kept().len(), 0);
    allow.send(true).expect("it listens");
    assert!(eventually(SOON, async || !backend.kept().is_empty()).await, "{}", gateway.output());
    gateway.wait_for_output("the kubelet gives metrics again", 1).await;
}
