//! Targets from a real API server.

#[path = "../../kubernetes/tests/support/cluster.rs"]
mod cluster;
#[path = "../../load-test/tests/support/component.rs"]
mod component;

use std::time::{Duration, Instant};

use cluster::{ADMIN, Cluster, LIMITED};
use component::component;
use serde_json::json;
use sluice_config::read_text;
use sluice_discovery::{Discovery, ScrapeConfigs};

const PATIENCE: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn cluster() -> Option<Cluster> {
    let etcd = component("SLUICE_TEST_ETCD")?;
    let api_server = component("SLUICE_TEST_KUBE_APISERVER")?;
    Some(Cluster::start([etcd, api_server]).await)
}

/// A job for each source; labels of targets are those of their objects.
fn discovery(sources: &[String]) -> Discovery {
    let job = |(at, source): (usize, &String)| {
        format!(
            "- job_name: '{at}'\n  kubernetes_sd_configs: [{source}]\n  relabel_configs:\n  \
             - {{action: labelmap, regex: __meta_kubernetes_(.+)}}\n"
        )
    };
    let jobs: String = sources.iter().enumerate().map(job).collect();
    let (configs, diagnostics) =
        read_text("p", &format!("scrape_configs:\n{jobs}"), ScrapeConfigs::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    Discovery::start(configs, None, Duration::from_millis(20))
}

/// The targets of a job: addresses, with the values of some labels.
fn targets(discovery: &Discovery, job: usize, labels: &[&str]) -> Vec<String> {
    let shown = |target: &std::sync::Arc<sluice_discovery::Target>| {
        let values = labels.iter().map(|name| target.label(name).to_string());
        let address = target.label("instance").to_string();
        [address].into_iter().chain(values).collect::<Vec<_>>().join(" ")
    };
    let job = discovery.jobs().iter().find(|it| *it.config.job == *job.to_string());
    let mut found: Vec<String> = job.expect("a job").targets.targets.iter().map(shown).collect();
    found.sort();
    found
}

async fn until(discovery: &mut Discovery, job: usize, labels: &[&str], expected: &[&str]) {
    let began = Instant::now();
    loop {
        let found = targets(discovery, job, labels);
        if found == expected {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "job {job}: {found:?}, not {expected:?}");
        let _ = tokio::time::timeout(Duration::from_millis(200), discovery.next()).await;
    }
}

/// Scenario: one job for each role; pods, services and endpoints come, change and end, and the API
/// server is killed. Guarantee: targets follow all of it, and stay while it is away.
#[tokio::test(flavor = "multi_thread")]
async fn targets_follow_the_objects() {
    let Some(mut cluster) = cluster().await else { return };
    let file = cluster.kubeconfig(ADMIN);
    let (url, authority) = (cluster.url(), cluster.authority());
    let token = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), format!("{ADMIN}\n")).expect("writes");
    let by_file = format!("kubeconfig_file: '{}'", file.display());
    let by_options = format!(
        "api_server: '{url}', tls_config: {{ca_file: '{}'}}, bearer_token_file: '{}'",
        authority.display(),
        token.path().display()
    );
    let by_header = format!(
        "api_server: '{url}', tls_config: {{insecure_skip_verify: true}}, \
         authorization: {{credentials: {ADMIN}}}"
    );
    let sources = [
        format!(
            "{{role: pod, {by_options}, namespaces: {{names: [default, other]}}, \
                 attach_metadata: {{namespace: true}}}}"
        ),
        format!(
            "{{role: service, {by_file}, namespaces: {{names: [default]}}, \
                 selectors: [{{role: service, label: app=web}}]}}"
        ),
        format!(
            "{{role: endpoints, {by_header}, selectors: [{{role: endpoints, \
                 field: metadata.name=web}}]}}"
        ),
        format!(
            "{{role: endpointslice, {by_file}, namespaces: {{names: [default]}}, \
                 selectors: [{{role: endpointslice, label: app=web}}]}}"
        ),
        format!("{{role: node, {by_file}}}"),
        format!("{{role: ingress, {by_file}}}"),
    ];
    let namespace = json!({"metadata": {"name": "other", "labels": {"team": "blue"}}});
    cluster.create("/api/v1/namespaces", namespace).await;
    let mut discovery = discovery(&sources);
    let port = json!([{"name": "http", "containerPort": 8080}]);
    let pod = |name: &str| {
        json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "main", "image": "x:1", "ports": port.clone()}]}})
    };
    cluster.pod("default", pod("a"), "10.0.0.1").await;
    cluster.pod("other", pod("b"), "10.0.0.2").await;
    cluster.pod("kube-public", pod("c"), "10.0.0.3").await;
    let labels = ["pod_name", "namespace_label_team", "pod_phase"];
    let both = ["10.0.0.1:8080 a  Running", "10.0.0.2:8080 b blue Running"];
    until(&mut discovery, 0, &labels, &both).await;

    let service = json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {
        "ports": [{"name": "http", "port": 80}]}});
    cluster.create("/api/v1/namespaces/default/services", service).await;
    let of_service = ["web.default.svc:80 web http"];
    until(&mut discovery, 1, &["service_name", "service_port_name"], &of_service).await;

    let target = json!({"kind": "Pod", "name": "a", "namespace": "default"});
    let endpoints = json!({"metadata": {"name": "web"}, "subsets": [{
        "addresses": [{"ip": "10.0.0.1", "targetRef": target.clone()}],
        "ports": [{"name": "http", "port": 8080}]}]});
    cluster.create("/api/v1/namespaces/default/endpoints", endpoints).await;
    let labels = ["service_name", "pod_name", "pod_container_name", "endpoint_ready"];
    until(&mut discovery, 2, &labels, &["10.0.0.1:8080 web a main true"]).await;

    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = json!({
        "metadata": {"name": "web-1",
                     "labels": {"app": "web", "kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": target,
                       "conditions": {"ready": true}}]});
    cluster.create(slices, slice).await;
    let labels = ["service_name", "pod_name", "endpointslice_endpoint_conditions_ready"];
    until(&mut discovery, 3, &labels, &["10.0.0.1:8080 web a true"]).await;
    let change = json!({"endpoints": [{"addresses": ["10.0.0.1"],
        "conditions": {"ready": false}}]});
    cluster.patch(&format!("{slices}/web-1"), change).await;
    until(&mut discovery, 3, &labels, &["10.0.0.1:8080 web  false"]).await;

    cluster.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.9.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}});
    cluster.patch("/api/v1/nodes/n1/status", status).await;
    until(&mut discovery, 4, &["node_address_InternalIP"], &["n1 10.9.0.1"]).await;
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"rules": [{"host": "x.example.com",
        "http": {"paths": [{"path": "/p", "pathType": "Prefix", "backend": backend}]}}]}});
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    cluster.create(ingresses, ingress).await;
    until(&mut discovery, 5, &["ingress_path"], &["x.example.com /p"]).await;

    cluster.kill_api();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let _ = tokio::time::timeout(Duration::from_millis(200), discovery.next()).await;
    assert_eq!(targets(&discovery, 0, &[]).len(), 2);
    cluster.start_api().await;
    cluster.delete(&format!("{PODS}/a")).await;
    until(&mut discovery, 0, &["pod_name"], &["10.0.0.2:8080 b"]).await;
    cluster.delete(&format!("{ingresses}/i")).await;
    until(&mut discovery, 5, &[], &[]).await;
}

/// Guarantee: without permissions there are no targets, and when they are granted there are.
#[tokio::test(flavor = "multi_thread")]
async fn permissions_that_come_later_are_enough() {
    let Some(cluster) = cluster().await else { return };
    cluster.pod("default", json!({"metadata": {"name": "a"}}), "10.0.0.1").await;
    let file = cluster.kubeconfig(LIMITED);
    let source = format!("{{role: pod, kubeconfig_file: '{}'}}", file.display());
    let mut discovery = discovery(&[source]);
    discovery.next().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(targets(&discovery, 0, &[]).is_empty());
    cluster.allow("pods", "", "pods").await;
    until(&mut discovery, 0, &["pod_name"], &["10.0.0.1 a"]).await;
}
