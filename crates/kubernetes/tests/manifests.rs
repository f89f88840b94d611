//! The manifests of examples and documents, as a real API server takes them.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "../../load-test/tests/support/component.rs"]
mod component;

use std::fs;
use std::path::{Path, PathBuf};

use cluster::Cluster;
use component::component;
use serde_json::json;

const NAMESPACE: &str = "telemetry";

/// The collection of a manifest's objects.
fn collection(manifest: &str) -> String {
    let field = |name: &str| {
        let value = manifest.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or_else(|| panic!("no {name} in {manifest}")).trim()
    };
    let (version, kind) = (field("apiVersion:"), field("kind:"));
    let group = if version.contains('/') { "apis" } else { "api" };
    let plural = format!("{}s", kind.to_lowercase());
    let within = match kind {
        "ClusterRole" | "ClusterRoleBinding" | "Namespace" => String::new(),
        _ => format!("/namespaces/{NAMESPACE}"),
    };
    format!("/{group}/{version}{within}/{plural}")
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("is a folder");
    let paths = entries.map(|entry| entry.expect("is read").path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension() == Some(ending.as_ref())).collect();
    paths.sort();
    paths
}

/// Manifests of the examples for Kubernetes, and those within documents, with their places.
fn manifests() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    for path in files(&root.join("examples/kubernetes"), "yaml") {
        let text = fs::read_to_string(&path).expect("is read");
        texts.push((path.display().to_string(), text));
    }
    for path in files(&root.join("docs"), "md") {
        let text = fs::read_to_string(&path).expect("is read");
        let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let objects = blocks.filter(|block| block.starts_with("apiVersion:"));
        texts.extend(objects.map(|block| (path.display().to_string(), block.to_owned())));
    }
    let parts = texts.iter().flat_map(|(place, text)| {
        text.split("\n---\n").map(move |part| (place.clone(), part.to_owned()))
    });
    parts.collect()
}

/// Guarantee: the API server knows each field of the manifests, and takes their values. One with a
/// field that it does not know is refused.
#[tokio::test(flavor = "multi_thread")]
async fn manifests_have_only_fields_that_kubernetes_knows() {
    let Some(etcd) = component("SLUICE_TEST_ETCD") else { return };
    let Some(api_server) = component("SLUICE_TEST_KUBE_APISERVER") else { return };
    let cluster = Cluster::start([etcd, api_server]).await;
    cluster.create("/api/v1/namespaces", json!({"metadata": {"name": NAMESPACE}})).await;
    let manifests = manifests();
    assert!(manifests.iter().any(|(_, text)| text.contains("kind: DaemonSet")));
    assert!(manifests.iter().any(|(_, text)| text.contains("kind: ClusterRoleBinding")));
    for (place, manifest) in &manifests {
        let path = collection(manifest);
        // A field that is not known is refused before the object is made.
        let wrong = format!("{manifest}\nunknownField: 1\n");
        let refused = cluster.create_strictly(&path, &wrong).await.expect_err("is refused");
        let is_named = refused.contains("unknown field") && refused.contains("unknownField");
        assert!(is_named, "{place}: {refused}");
        let created = cluster.create_strictly(&path, manifest).await;
        created.unwrap_or_else(|error| panic!("{place}: {error}"));
    }
}
