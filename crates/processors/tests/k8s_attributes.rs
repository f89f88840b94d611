//! `k8s_attributes` with a real API server.
//!
//! A kubeconfig is named by the environment: each test runs itself once more with it.

#[path = "../../kubernetes/tests/support/cluster.rs"]
mod cluster;
#[path = "../../load-test/tests/support/component.rs"]
mod component;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{ADMIN, Cluster, LIMITED};
use component::component;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use prost::Message as _;
use serde_json::json;
use sluice_config::read_text;
use sluice_flow::Metadata;
use sluice_otlp::Signal;
use sluice_processors::{PROCESSORS, Processor, ProcessorConfig};

const PATIENCE: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Where a test that runs once more finds its folder of signals.
const AGAIN: &str = "SLUICE_TEST_K8S_AGAIN";

async fn cluster() -> Option<Cluster> {
    let etcd = component("SLUICE_TEST_ETCD")?;
    let api_server = component("SLUICE_TEST_KUBE_APISERVER")?;
    Some(Cluster::start([etcd, api_server]).await)
}

fn processor(yaml: &str, signal: Signal) -> Box<dyn Processor> {
    let kind = "k8s_attributes";
    let (config, diagnostics) =
        read_text("processors.k8s_attributes", yaml, |it| PROCESSORS.read(kind, it));
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let Some(ProcessorConfig::Edits(build)) = config else { panic!("{kind} is no processor") };
    build(signal).expect("is built").processor
}

/// The attributes of a resource with this UID of a pod, from this sender.
fn enrich(processor: &dyn Processor, uid: &str, peer: &str) -> Vec<String> {
    let value = Some(AnyValue { value: Some(Value::StringValue(uid.to_owned())) });
    let uid_of = KeyValue { key: "k8s.pod.uid".to_owned(), value, ..KeyValue::default() };
    let attributes = if uid.is_empty() { Vec::new() } else { vec![uid_of] };
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_spans = vec![ResourceSpans { resource, ..ResourceSpans::default() }];
    let request = Bytes::from(ExportTraceServiceRequest { resource_spans }.encode_to_vec());
    let metadata = Metadata { peer: Some(peer.to_owned()), headers: Vec::new() };
    let edited = processor.process(Signal::Traces, &request, &metadata, usize::MAX);
    let edited = edited.expect("is valid").expect("is within").unwrap_or(request);
    let decoded = ExportTraceServiceRequest::decode(edited).expect("is valid");
    let resource = decoded.resource_spans[0].resource.clone().unwrap_or_default();
    let shown = |attribute: &KeyValue| {
        let value = attribute.value.as_ref().and_then(|it| it.value.clone());
        let Some(Value::StringValue(text)) = value else { panic!("{attribute:?}") };
        format!("{}={text}", attribute.key)
    };
    let mut lines: Vec<String> = resource.attributes.iter().map(shown).collect();
    lines.sort();
    lines
}

async fn until(processor: &dyn Processor, uid: &str, peer: &str, expected: &[String]) {
    let began = Instant::now();
    loop {
        let found = enrich(processor, uid, peer);
        if found == expected {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{found:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs this test once more, with a kubeconfig.
async fn again(test: &str, kubeconfig: &Path, values: &str) {
    let command = std::env::current_exe().expect("a program");
    let (test, kubeconfig, values) = (test.to_owned(), kubeconfig.to_owned(), values.to_owned());
    let run = tokio::task::spawn_blocking(move || {
        Command::new(command)
            .args([&test, "--exact", "--nocapture", "--test-threads=1"])
            .env("KUBECONFIG", kubeconfig)
            .env(AGAIN, values)
            .output()
    });
    let output = run.await.expect("no panic").expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

/// Scenario: a deployment's pod and its replica set, a namespace and a node, in a real cluster.
/// Guarantee: telemetry of the pod, known by its UID or its address, gets the attributes of all of
/// them, for every signal of one configuration.
#[tokio::test(flavor = "multi_thread")]
async fn telemetry_gets_the_attributes_of_its_pod() {
    if let Ok(uids) = std::env::var(AGAIN) {
        return of_pod(&uids).await;
    }
    let Some(cluster) = cluster().await else { return };
    let labels = json!({"metadata": {"labels": {"team": "blue"}}});
    cluster.patch("/api/v1/namespaces/default", labels.clone()).await;
    let node = cluster.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "main", "image": "x"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let deployment = cluster
        .create(
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"metadata": {"name": "web", "annotations": {"owner": "me"}}, "spec": spec}),
        )
        .await;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
        "uid": deployment["metadata"]["uid"], "controller": true}]);
    let set = cluster
        .create(
            "/apis/apps/v1/namespaces/default/replicasets",
            json!({"metadata": {"name": "web-1", "ownerReferences": owner}, "spec": spec}),
        )
        .await;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1",
        "uid": set["metadata"]["uid"], "controller": true}]);
    let pod = json!({"metadata": {"name": "web-1-a", "labels": {"app": "web"},
        "ownerReferences": owner}, "spec": {"nodeName": "n1",
        "containers": [{"name": "main", "image": "example.com/web:2"}]}});
    let uid = cluster.pod("default", pod, "10.0.0.1").await;
    let uid_of =
        |object: &serde_json::Value| object["metadata"]["uid"].as_str().expect("a UID").to_owned();
    let values = [uid, uid_of(&deployment), uid_of(&node)].join(" ");
    again("telemetry_gets_the_attributes_of_its_pod", &cluster.kubeconfig(ADMIN), &values).await;
}

async fn of_pod(uids: &str) {
    let [pod, deployment, node] = uids.split(' ').collect::<Vec<_>>()[..] else { panic!("{uids}") };
    let yaml = "auth_type: kubeConfig\n\
                wait_for_metadata: true\n\
                wait_for_metadata_timeout: 60s\n\
                extract:\n  \
                metadata: [k8s.pod.name, k8s.deployment.name, k8s.deployment.uid,\n    \
                k8s.node.uid, container.image.tag]\n  \
                labels: [{key: team, from: namespace, tag_name: team}]\n  \
                annotations: [{key: owner, from: deployment, tag_name: owner}]\n\
                pod_association:\n\
                - sources: [{from: resource_attribute, name: k8s.pod.uid}]\n\
                - sources: [{from: connection}]\n";
    let processor = processor(yaml, Signal::Traces);
    processor.start().await.expect("is ready");
    let mut expected = vec![
        "container.image.tag=2".to_owned(),
        "k8s.deployment.name=web".to_owned(),
        format!("k8s.deployment.uid={deployment}"),
        format!("k8s.node.uid={node}"),
        "k8s.pod.name=web-1-a".to_owned(),
        "owner=me".to_owned(),
        "team=blue".to_owned(),
    ];
    assert_eq!(enrich(&*processor, "", "10.0.0.1:4711"), expected);
    expected.insert(5, format!("k8s.pod.uid={pod}"));
    assert_eq!(enrich(&*processor, pod, "10.9.9.9:1"), expected);
    // A successor knows it at once.
    let next = self::processor(yaml, Signal::Traces);
    next.take_over(processor.running().expect("runs"), true);
    drop(processor);
    assert_eq!(enrich(&*next, pod, "10.9.9.9:1"), expected);
}

/// Scenario: pods come, change and end; a namespace filter leaves others out. Guarantee: telemetry
/// follows.
#[tokio::test(flavor = "multi_thread")]
async fn attributes_follow_the_pods() {
    if let Ok(folder) = std::env::var(AGAIN) {
        return followed(Path::new(&folder)).await;
    }
    let Some(cluster) = cluster().await else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().to_owned();
    let named =
        |name: &str, value: &str| json!({"metadata": {"name": name, "labels": {"version": value}}});
    let steps = async {
        cluster.pod("default", named("a", "1"), "10.0.0.1").await;
        cluster.pod("kube-public", named("z", "1"), "10.0.0.2").await;
        signal(&path, "created").await;
        seen(&path, "created").await;
        let change = json!({"metadata": {"labels": {"version": "2"}}});
        cluster.patch(&format!("{PODS}/a"), change).await;
        signal(&path, "changed").await;
        seen(&path, "changed").await;
        cluster.delete(&format!("{PODS}/a")).await;
        cluster.pod("default", named("b", "3"), "10.0.0.1").await;
        signal(&path, "deleted").await;
    };
    let file = cluster.kubeconfig(ADMIN);
    let values = path.display().to_string();
    tokio::join!(steps, again("attributes_follow_the_pods", &file, &values));
}

async fn followed(folder: &Path) {
    let yaml = "auth_type: kubeConfig\npod_delete_grace_period: 0s\n\
                filter: {namespace: default}\n\
                extract: {metadata: [k8s.pod.name], labels: [{key: version, tag_name: v}]}\n";
    let processor = processor(yaml, Signal::Logs);
    processor.start().await.expect("starts");
    let expected =
        |name: &str, version: &str| [format!("k8s.pod.name={name}"), format!("v={version}")];
    await_signal(folder, "created").await;
    until(&*processor, "", "10.0.0.1:1", &expected("a", "1")).await;
    assert!(enrich(&*processor, "", "10.0.0.2:1").is_empty());
    signal(folder, "seen-created").await;
    await_signal(folder, "changed").await;
    until(&*processor, "", "10.0.0.1:1", &expected("a", "2")).await;
    signal(folder, "seen-changed").await;
    await_signal(folder, "deleted").await;
    until(&*processor, "", "10.0.0.1:1", &expected("b", "3")).await;
}

async fn signal(folder: &Path, name: &str) {
    std::fs::write(folder.join(name), "").expect("writes");
}

async fn seen(folder: &Path, name: &str) {
    await_signal(folder, &format!("seen-{name}")).await;
}

async fn await_signal(folder: &Path, name: &str) {
    let began = Instant::now();
    while !folder.join(name).exists() {
        assert!(began.elapsed() < PATIENCE, "no signal {name}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Guarantee: with `wait_for_metadata`, a missing permission ends the start with its name; without
/// it the processor starts, and adds nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_permissions_says_which() {
    if std::env::var(AGAIN).is_ok() {
        let yaml = "auth_type: kubeConfig\n";
        let waits = "wait_for_metadata: true\nwait_for_metadata_timeout: 8s\n";
        let reason = processor(&format!("{yaml}{waits}"), Signal::Logs).start().await;
        let reason = reason.expect_err("is refused");
        assert!(
            reason.contains("within 8s: a permission is missing for attributes of pods"),
            "{reason}"
        );
        let processor = processor(yaml, Signal::Logs);
        processor.start().await.expect("does not wait");
        assert!(enrich(&*processor, "", "10.0.0.1:1").is_empty());
        return;
    }
    let Some(cluster) = cluster().await else { return };
    let file = cluster.kubeconfig(LIMITED);
    again("a_start_without_permissions_says_which", &file, "x").await;
}
