//! Pods: a gateway adds metadata of Kubernetes to spans. Compares the CPU time of a span with that
//! without the processor, and with the Collector's `k8s_attributes`.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::*;
#[path = "../../../kubernetes/tests/support/cluster.rs"]
mod cluster;
use cluster::{ADMIN, Cluster};

const WITHOUT: &str = "without";
const WITH: &str = "ten keys";
const PODS: usize = 10_000;
/// Pods are created by as many at a time.
const CREATORS: usize = 32;
const WITHOUT_BAR: f64 = 1.3;
const COLLECTOR_BAR: f64 = 1.0 / 8.0;
/// The namespace and the pod that the load names.
const NAMESPACE: &str = "load-test";
const POD: &str = "load-generator-7d9c5b8f4-x2x7q";

pub(super) const SCENARIO: Scenario = Scenario {
    id: "pods",
    title: "metadata of pods",
    cases: &[WITHOUT, WITH],
    case_head: "k8s_attributes",
    takes: |contestant, _| contestant.is_gateway(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| {
        compare(all, WITHOUT, "of_without", "cpu_s_per_million", Div::div);
        compare_with(all, "otelcol", "of_collector", "cpu_s_per_million");
    },
    columns: &[
        ("CPU-s/M", |series| series.cell("cpu_s_per_million", 2)),
        ("× without", |series| series.cell("of_without", 3)),
        ("× otelcol", |series| series.cell("of_collector", 3)),
        ("bytes a span", |series| series.cell("bytes_per_span", 0)),
        ("peak MiB", |series| series.mebibytes("peak_rss_bytes", 0)),
    ],
    holds: |series| {
        series.case == WITHOUT
            || series.median("of_without") <= WITHOUT_BAR
                && series.median("of_collector") <= COLLECTOR_BAR
    },
    notes: |_| {
        format!(
            "Spans as fast as they go through a gateway that knows {PODS} pods of a real API \
             server and finds the sender's by namespace and name. Ten attributes are added to each \
             request's resource. The Collector has `batch`.\nBar: CPU time of a span at most \
             {WITHOUT_BAR} × that without the processor, and at most 1/8 of the Collector's."
        )
    },
};

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let folder = TempDir::with_prefix("sluice-bench-pods-")?;
    let mut setting = Setting::of(turn, MEMORY_LIMIT_MIB, "")?.counting_lightly();
    let mut processors = vec!["memory_limiter"];
    let mut cluster = None;
    if turn.case == WITH {
        cluster = Some(start_cluster().await?);
        processors.push("k8s_attributes");
    }
    if !turn.contestant.is_sluice() {
        setting.config.processors.push("batch");
        processors.push("batch");
    }
    if let Some(cluster) = &cluster {
        let config = json!({
            "processors": { "k8s_attributes": k8s_attributes() },
            "service": { "pipelines": { "traces/0": { "processors": processors } } },
        });
        setting.args = overlay(&folder, &config)?;
        let kubeconfig = cluster.kubeconfig(ADMIN).display().to_string();
        setting.env = vec![("KUBECONFIG".to_owned(), kubeconfig)];
    }
    let stage = setting.start().await?;
    let bytes = || stage.backends[0].counts().bytes;
    let load = Load { retry: COME_BACK, grace: Duration::from_secs(1), ..stage.load() };
    let (bytes_before, spans_before) = (bytes(), stage.backends[0].items());
    let observed = stage.under_load(load, WARM_UP, turn.counted()).await?;
    let spans = (stage.backends[0].items() - spans_before) as f64;
    let figures = json!({ "bytes_per_span": (bytes() - bytes_before) as f64 / spans });
    stage.figures(&observed, figures)
}

/// Ten attributes: six facts, three labels and an annotation.
fn k8s_attributes() -> serde_json::Value {
    json!({
        "auth_type": "kubeConfig",
        "wait_for_metadata": true,
        "wait_for_metadata_timeout": "60s",
        "extract": {
            "metadata": [
                "k8s.pod.uid", "k8s.pod.start_time", "k8s.pod.ip", "k8s.node.name",
                "k8s.replicaset.name", "k8s.replicaset.uid",
            ],
            "labels": [
                { "tag_name": "app", "key": "app", "from": "pod" },
                { "tag_name": "team", "key": "team", "from": "pod" },
                { "tag_name": "version", "key": "version", "from": "pod" },
            ],
            "annotations": [{ "tag_name": "owner", "key": "owner", "from": "pod" }],
        },
        "pod_association": [{ "sources": [
            { "from": "resource_attribute", "name": "k8s.namespace.name" },
            { "from": "resource_attribute", "name": "k8s.pod.name" },
        ] }],
    })
}

async fn start_cluster() -> Result<Cluster> {
    let component = |variable: &str| {
        let path = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.exists());
        path.with_context(|| format!("{variable} names no program: tests/components/install"))
    };
    let components = [component("SLUICE_TEST_ETCD")?, component("SLUICE_TEST_KUBE_APISERVER")?];
    let cluster = Arc::new(Cluster::start(components).await);
    cluster.create("/api/v1/namespaces", json!({ "metadata": { "name": NAMESPACE } })).await;
    let mut creators = JoinSet::new();
    for creator in 0..CREATORS {
        let cluster = Arc::clone(&cluster);
        creators.spawn(async move {
            for number in (creator..PODS).step_by(CREATORS) {
                cluster.pod(NAMESPACE, pod(number), &address(number)).await;
            }
        });
    }
    creators.join_all().await;
    Arc::into_inner(cluster).context("all creators have ended")
}

fn pod(number: usize) -> serde_json::Value {
    let name = if number == 0 { POD.to_owned() } else { format!("shop-7d9c5b8f4-{number:05}") };
    json!({
        "metadata": {
            "name": name,
            "labels": { "app": "shop", "team": "checkout", "version": format!("1.{number}") },
            "annotations": { "owner": "team-checkout@example.com" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
                "name": "shop-7d9c5b8f4", "uid": "6f0a3bfa-0000-4111-8222-333344445555",
            }],
        },
        "spec": {
            "nodeName": format!("node-{}", number / 100),
            "containers": [{ "name": "main", "image": "example.com/shop:1.0" }],
        },
    })
}

fn address(number: usize) -> String {
    format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::figures::tests::series;

    #[test]
    fn both_bars_are_of_the_case_with_the_processor() {
        let turn = |cpu_s: f64| json!({ "cpu_s_per_million": cpu_s });
        let holds = |with: f64, of_collector: f64| {
            let collector =
                |case, cpu_s| Series { subject: "otelcol", ..series(case, &[turn(cpu_s)]) };
            let mut all = [
                series(WITHOUT, &[turn(1.0)]),
                series(WITH, &[turn(with)]),
                collector(WITH, of_collector),
            ];
            (SCENARIO.compare)(&mut all);
            (SCENARIO.holds)(&all[1])
        };
        assert!(holds(1.29, 12.0));
        assert!(!holds(1.31, 12.0), "more than without");
        assert!(!holds(1.2, 9.0), "the Collector is too near");
    }

    #[test]
    fn each_pod_has_its_own_name_and_address() {
        let names: HashSet<_> = (0..PODS)
            .map(|number| (pod(number)["metadata"]["name"].to_string(), address(number)))
            .collect();
        assert_eq!(names.len(), PODS);
    }
}
