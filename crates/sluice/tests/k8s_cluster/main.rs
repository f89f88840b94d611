//! The receiver `k8s_cluster` with a real API server: the binary sends to a backend.
//!
//! `expected_default.txt` and `expected_all.txt` are what a Collector 0.161.0 with its receiver
//! `k8s_cluster` sent for the same objects. The Collector that the tests build has no such receiver
//! in its version, so that this was compared by hand.

#[path = "../../../kubernetes/tests/support/cluster.rs"]
mod cluster;
#[path = "../../../load-test/tests/support/component.rs"]
mod component;
#[path = "../gateway/mod.rs"]
mod gateway;
mod lines;
mod objects;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use cluster::{ADMIN, Cluster, LIMITED};
use component::component;
use gateway::{Gateway, Options, eventually, keeping_backend};
use lines::{all_lines, point_lines};
use serde_json::json;
use sluice_load_test::Backend;

/// A watch that has failed for long tries again each half minute.
const PATIENCE: Duration = Duration::from_secs(90);
const PODS: &str = "/api/v1/namespaces/shop/pods";

async fn cluster() -> Option<Cluster> {
    let etcd = component("SLUICE_TEST_ETCD")?;
    let api_server = component("SLUICE_TEST_KUBE_APISERVER")?;
    Some(Cluster::start([etcd, api_server]).await)
}

/// Receivers with these options, each with a pipeline to its backend.
fn config(receivers: &[(&str, &str, &Backend)]) -> String {
    let mut parts = [String::new(), String::new(), String::new()];
    for (name, options, backend) in receivers {
        let options: String = options.lines().map(|line| format!("    {line}\n")).collect();
        parts[0] += &format!("  k8s_cluster/{name}:\n    auth_type: kubeConfig\n{options}");
        parts[1] += &gateway::exporter(name, backend);
        parts[2] += &format!(
            "    metrics/{name}:\n      receivers: [k8s_cluster/{name}]\n      \
             exporters: [otlp/{name}]\n"
        );
    }
    let [receivers, exporters, pipelines] = parts;
    format!("receivers:\n{receivers}exporters:\n{exporters}service:\n  pipelines:\n{pipelines}")
}

async fn start(config: &str, kubeconfig: &Path) -> Gateway {
    let env = vec![("KUBECONFIG".to_owned(), kubeconfig.display().to_string())];
    Gateway::start_with(config, Options { env, ..Options::default() }).await
}

/// Every metric and attribute that there is.
fn all_options() -> String {
    let mut options = include_str!("all.yaml").to_owned();
    options.insert_str(0, "collection_interval: 1s\n");
    options
}

/// The lines of a file beside this one.
fn expected(file: &str) -> BTreeSet<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/k8s_cluster");
    let text = std::fs::read_to_string(Path::new(folder).join(file)).expect("a file");
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// Lines that are there against what is expected, and those that are not.
fn difference(found: &BTreeSet<String>, expected: &BTreeSet<String>) -> Vec<String> {
    let more = found.difference(expected).map(|line| format!("+ {line}"));
    let less = expected.difference(found).map(|line| format!("- {line}"));
    more.chain(less).collect()
}

/// Scenario: objects of every kind with states of every kind; one receiver with defaults, one that
/// sends all that there is. Guarantee: both send what the Collector sends, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_all_objects_are_the_collectors() {
    let Some(cluster) = cluster().await else { return };
    let names = objects::make_all(&cluster).await;
    let backends = [keeping_backend(3).await, keeping_backend(3).await];
    let all = all_options();
    let config = config(&[
        ("default", "collection_interval: 1s", &backends[0]),
        ("all", all.as_str(), &backends[1]),
    ]);
    let gateway = start(&config, &cluster.kubeconfig(ADMIN)).await;
    for (backend, file) in backends.iter().zip(["expected_default.txt", "expected_all.txt"]) {
        let expected = expected(file);
        assert!(expected.len() > 100, "{file}");
        let differs = || difference(&all_lines(backend, &names), &expected);
        let came = eventually(PATIENCE, async || differs().is_empty()).await;
        assert!(came, "{:#?}\n{}", differs(), gateway.output());
    }
    let known = [("receiver", "k8s_cluster/all"), ("resource", "pods")];
    assert_eq!(gateway.metric("sluice_k8s_cluster_objects", &known).await, 3.0);
    assert!(gateway.metric("sluice_k8s_cluster_memory_bytes", &known).await > 1000.0);
    assert_eq!(gateway.metric("sluice_k8s_cluster_failing_watches", &[]).await, 0.0);
}

fn pod_phases(backend: &Backend) -> BTreeSet<String> {
    point_lines(backend, &HashMap::new(), |metric, attributes| {
        let name = attributes.get("k8s.pod.name")?;
        (metric == "k8s.pod.phase").then(|| name.clone())
    })
}

/// Scenario: pods change; the API server is killed and comes back; pods change meanwhile.
/// Guarantee: changes are in the next collections; while the API server is away, what was known is
/// sent on.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_follow_the_objects() {
    let Some(mut cluster) = cluster().await else { return };
    cluster.create("/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    for name in ["a", "b"] {
        cluster.pod("shop", json!({"metadata": {"name": name}}), "").await;
    }
    let backend = keeping_backend(2).await;
    let options = "collection_interval: 500ms\nnamespaces: [shop]";
    let config = config(&[("shop", options, &backend)]);
    let gateway = start(&config, &cluster.kubeconfig(ADMIN)).await;
    let sends = async |phases: &[&str]| {
        let expected: BTreeSet<String> = phases.iter().map(|it| (*it).to_owned()).collect();
        let came = eventually(PATIENCE, async || pod_phases(&backend) == expected).await;
        assert!(came, "{:?}, not {expected:?}\n{}", pod_phases(&backend), gateway.output());
    };
    sends(&["a 1", "b 1"]).await;
    let running = json!({"status": {"phase": "Running"}});
    cluster.patch(&format!("{PODS}/a/status"), running.clone()).await;
    sends(&["a 2", "b 1"]).await;
    cluster.delete(&format!("{PODS}/b")).await;
    sends(&["a 2"]).await;

    cluster.kill_api();
    let failing = async || {
        gateway.metric("sluice_k8s_cluster_failing_watches", &[("resource", "pods")]).await
    };
    assert!(eventually(PATIENCE, async || failing().await == 1.0).await, "{}", gateway.output());
    let collections = async || gateway.metric("sluice_k8s_cluster_collections_total", &[]).await;
    let before = collections().await;
    assert!(eventually(PATIENCE, async || collections().await > before + 2.0).await);
    assert_eq!(pod_phases(&backend), BTreeSet::from(["a 2".to_owned()]));
    let said = gateway.count_in_output("Kubernetes cannot be watched");
    assert!(said >= 1, "{}", gateway.output());

    cluster.start_api().await;
    cluster.pod("shop", json!({"metadata": {"name": "c"}}), "").await;
    cluster.patch(&format!("{PODS}/c/status"), running).await;
    cluster.delete(&format!("{PODS}/a")).await;
    sends(&["c 2"]).await;
    assert!(eventually(PATIENCE, async || failing().await == 0.0).await, "{}", gateway.output());
}

/// Scenario: permissions for pods only, and a kind that the API server does not know; a permission
/// is granted later. Guarantee: metrics of pods come all the same, each kind that is not given is
/// named once with its remedy, and comes once it is allowed.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_not_given_does_not_stop_the_others() {
    let Some(cluster) = cluster().await else { return };
    cluster.create("/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    cluster.pod("shop", json!({"metadata": {"name": "a"}}), "").await;
    cluster.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    for (group, resource) in [("", "pods"), ("quota.openshift.io", "clusterresourcequotas")] {
        cluster.allow(resource, group, resource).await;
    }
    let backend = keeping_backend(2).await;
    let options = "collection_interval: 500ms\ndistribution: openshift";
    let config = config(&[("all", options, &backend)]);
    let gateway = start(&config, &cluster.kubeconfig(LIMITED)).await;
    let came = eventually(PATIENCE, async || pod_phases(&backend).contains("a 1")).await;
    assert!(came, "{}", gateway.output());
    let node = |metric: &str, _: &lines::Attributes| {
        metric.starts_with("k8s.node.").then(|| metric.to_owned())
    };
    assert_eq!(point_lines(&backend, &HashMap::new(), node), BTreeSet::new());
    for said in [
        "a permission is missing for metrics of nodes: a ClusterRole must allow `list` and \
         `watch` of the resource `nodes`",
        "resource `horizontalpodautoscalers` in the API group `autoscaling`",
        "the API server does not have the resource `clusterresourcequotas` in the API group \
         `quota.openshift.io`",
    ] {
        // A role has its effect a little later: until then this is a missing permission.
        let is_said = eventually(PATIENCE, async || gateway.count_in_output(said) > 0).await;
        assert!(is_said, "no `{said}` in:\n{}", gateway.output());
    }
    cluster.allow("nodes", "", "nodes").await;
    let has_node = async || {
        let found = point_lines(&backend, &HashMap::new(), node);
        found.contains("k8s.node.condition_ready -1")
    };
    assert!(eventually(PATIENCE, has_node).await, "{}", gateway.output());
    assert_eq!(gateway.count_in_output("for metrics of nodes"), 1, "{}", gateway.output());
}
