//! Objects of every kind, with the states that a kubelet and controllers would give them.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::cluster::Cluster;

const NAMESPACES: &str = "/api/v1/namespaces";
const SHOP: &str = "/api/v1/namespaces/shop";
const APPS: &str = "/apis/apps/v1/namespaces/shop";
const BATCH: &str = "/apis/batch/v1/namespaces/shop";
const QUOTAS: &str = "/apis/quota.openshift.io/v1/clusterresourcequotas";

/// Creates objects, and remembers their UIDs.
struct Maker<'a> {
    cluster: &'a Cluster,
    names: HashMap<String, String>,
}

impl Maker<'_> {
    /// An object, and its status if there is one.
    async fn make(&mut self, collection: &str, name: &str, mut object: Value, status: Value) {
        object["metadata"]["name"] = json!(name);
        let made = self.cluster.create(collection, object).await;
        let kind = collection.rsplit('/').next().expect("a kind");
        let uid = made["metadata"]["uid"].as_str().expect("a UID").to_owned();
        self.names.insert(uid, format!("{kind}/{name}"));
        if !status.is_null() {
            let path = format!("{collection}/{name}/status");
            self.cluster.patch(&path, json!({ "status": status })).await;
        }
    }
}

/// Objects of all kinds. Returns the kind and the name of each UID.
pub(crate) async fn make_all(cluster: &Cluster) -> HashMap<String, String> {
    let mut maker = Maker { cluster, names: HashMap::new() };
    for name in ["shop", "going"] {
        maker.make(NAMESPACES, name, json!({}), Value::Null).await;
    }
    // Nothing removes its finalizer: it stays terminating.
    cluster.delete(&format!("{NAMESPACES}/going")).await;
    make_node(&mut maker).await;
    make_pods(&mut maker).await;
    make_workloads(&mut maker).await;
    make_services(&mut maker).await;
    make_volumes(&mut maker).await;
    make_quotas(&mut maker).await;
    maker.names
}

async fn make_node(maker: &mut Maker<'_>) {
    let status = json!({
        "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "False"},
            {"type": "Odd", "status": "Unknown"},
        ],
        "allocatable": {"cpu": "3920m", "memory": "12Gi", "ephemeral-storage": "47093746742",
            "pods": "110"},
        "nodeInfo": {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.1.0",
            "osImage": "Debian 13", "operatingSystem": "linux", "architecture": "amd64",
            "bootID": "b", "machineID": "m", "systemUUID": "s", "kernelVersion": "6",
            "kubeProxyVersion": ""},
    });
    maker.make("/api/v1/nodes", "n1", json!({}), status).await;
}

async fn make_pods(maker: &mut Maker<'_>) {
    let pods = format!("{SHOP}/pods");
    let resources = json!({
        "requests": {"cpu": "250m", "memory": "64Mi", "ephemeral-storage": "1G"},
        "limits": {"cpu": "1.5", "memory": "128Mi", "ephemeral-storage": "2G"},
    });
    let containers = json!([
        {"name": "main", "image": "registry.example.com:5000/shop/web:1.2", "resources": resources},
        {"name": "side", "image": "side"},
    ]);
    let spec = json!({"nodeName": "n1", "containers": containers,
        "initContainers": [{"name": "first", "image": "first"}]});
    let status = json!({"phase": "Running", "qosClass": "Burstable", "containerStatuses": [
        {"name": "main", "image": "registry.example.com:5000/shop/web:1.2", "imageID": "i",
            "containerID": "containerd://0a1b", "restartCount": 3, "ready": true,
            "state": {"running": {"startedAt": "2026-11-28T07:00:00Z"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled",
                "containerID": "containerd://0000"}}},
        {"name": "side", "image": "side", "imageID": "", "containerID": "", "restartCount": 0,
            "ready": false, "state": {"waiting": {"reason": "ImagePullBackOff"}}},
    ]});
    maker.make(&pods, "web-a", json!({"spec": spec}), status).await;
    let container = json!([{"name": "main", "image": "x"}]);
    let pending = json!({"spec": {"containers": container}});
    maker.make(&pods, "waits", pending.clone(), Value::Null).await;
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": [
        {"name": "main", "image": "Not An Image", "imageID": "", "restartCount": 1, "ready": false,
            "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]});
    maker.make(&pods, "evicted", pending, evicted).await;
}

async fn make_workloads(maker: &mut Maker<'_>) {
    let labels = json!({"app": "web"});
    let pod = json!({"containers": [{"name": "main", "image": "x"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let selector = json!({"matchLabels": labels});
    let spec = json!({"replicas": 3, "selector": selector, "template": template});
    let of = |spec: &Value| json!({ "spec": spec });
    let status = json!({"replicas": 3, "readyReplicas": 2, "availableReplicas": 2});
    maker.make(&format!("{APPS}/deployments"), "web", of(&spec), status.clone()).await;
    maker.make(&format!("{APPS}/replicasets"), "web-1", of(&spec), status.clone()).await;
    let controller = json!({"replicas": 3, "selector": labels, "template": template});
    let controllers = format!("{SHOP}/replicationcontrollers");
    maker.make(&controllers, "old", of(&controller), status).await;
    let mut stateful = spec.clone();
    stateful["serviceName"] = json!("db");
    let status = json!({"replicas": 3, "readyReplicas": 2, "currentReplicas": 1,
        "updatedReplicas": 2, "availableReplicas": 2});
    maker.make(&format!("{APPS}/statefulsets"), "db", of(&stateful), status).await;
    let daemon = json!({"selector": selector, "template": template});
    let status = json!({"currentNumberScheduled": 4, "desiredNumberScheduled": 5,
        "numberMisscheduled": 1, "numberReady": 3});
    maker.make(&format!("{APPS}/daemonsets"), "agent", of(&daemon), status).await;
    let mut once = pod.clone();
    once["restartPolicy"] = json!("Never");
    let job = json!({"completions": 5, "parallelism": 2, "template": {"spec": once}});
    let status =
        json!({"active": 2, "failed": 1, "succeeded": 1, "startTime": "2026-11-28T07:00:00Z"});
    maker.make(&format!("{BATCH}/jobs"), "report", of(&job), status).await;
    let cron = json!({"schedule": "0 0 * * *", "jobTemplate": {"spec": job}});
    let status = json!({"active": [{"name": "a", "kind": "Job", "apiVersion": "batch/v1"},
        {"name": "b", "kind": "Job", "apiVersion": "batch/v1"}]});
    maker.make(&format!("{BATCH}/cronjobs"), "nightly", of(&cron), status).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let scaler = json!({"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 9});
    let status = json!({"currentReplicas": 3, "desiredReplicas": 4, "conditions": []});
    let scalers = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers";
    maker.make(scalers, "web", of(&scaler), status).await;
}

async fn make_services(maker: &mut Maker<'_>) {
    let services = format!("{SHOP}/services");
    let ports = json!([{"port": 80}]);
    let spec = json!({"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports,
        "publishNotReadyAddresses": true, "trafficDistribution": "PreferSameZone"});
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}]}});
    maker.make(&services, "web", json!({"spec": spec}), status).await;
    maker.make(&services, "inner", json!({"spec": {"ports": ports}}), Value::Null).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    let endpoint = |address: &str, zone: &str, ready: Value, serving: Value, going: bool| {
        json!({"addresses": [address], "zone": zone, "conditions":
            {"ready": ready, "serving": serving, "terminating": going}})
    };
    let of_web = json!({"labels": {"kubernetes.io/service-name": "web"}});
    let first = json!({"metadata": of_web, "addressType": "IPv4", "endpoints": [
        endpoint("10.0.0.1", "z1", json!(true), json!(true), false),
        endpoint("10.0.0.2", "z1", json!(false), json!(true), true),
        {"addresses": ["10.0.0.3"]},
    ]});
    maker.make(slices, "web-1", first, Value::Null).await;
    let second = json!({"metadata": of_web, "addressType": "IPv6", "endpoints": [
        endpoint("fd00::1", "z2", json!(false), Value::Null, false)]});
    maker.make(slices, "web-2", second, Value::Null).await;
    let stray = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.9"]}]});
    maker.make(slices, "stray", stray, Value::Null).await;
}

async fn make_volumes(maker: &mut Maker<'_>) {
    let volume = json!({"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast", "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": "/data"}});
    let volumes = "/api/v1/persistentvolumes";
    maker.make(volumes, "v1", json!({"spec": volume}), json!({"phase": "Bound"})).await;
    let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
        "resources": {"requests": {"storage": "8Gi"}}});
    let status = json!({"phase": "Bound", "capacity": {"storage": "10Gi"}});
    let claims = format!("{SHOP}/persistentvolumeclaims");
    maker.make(&claims, "data", json!({"spec": claim}), status).await;
    let mut lost = claim.clone();
    lost["storageClassName"] = json!("");
    maker.make(&claims, "lost", json!({"spec": lost}), json!({"phase": "Lost"})).await;
}

async fn make_quotas(maker: &mut Maker<'_>) {
    let hard = json!({"pods": "10", "requests.cpu": "2500m", "limits.memory": "4Gi", "cpu": "3"});
    let used = json!({"pods": "3", "requests.cpu": "250m", "limits.memory": "128Mi", "cpu": "1m"});
    let status = json!({"hard": hard, "used": used});
    let quotas = format!("{SHOP}/resourcequotas");
    maker.make(&quotas, "shop", json!({"spec": {"hard": hard}}), status).await;
    let schema = json!({"openAPIV3Schema": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "metadata": {"name": "clusterresourcequotas.quota.openshift.io"},
        "spec": {"group": "quota.openshift.io", "scope": "Cluster",
            "names": {"plural": "clusterresourcequotas", "singular": "clusterresourcequota",
                "kind": "ClusterResourceQuota", "listKind": "ClusterResourceQuotaList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    maker.cluster.create(definitions, definition).await;
    maker.cluster.is_served(QUOTAS).await;
    let part = json!({"hard": {"pods": "20"}, "used": {"pods": "4", "limits.cpu": "1500m"}});
    let quota = json!({
        "apiVersion": "quota.openshift.io/v1", "kind": "ClusterResourceQuota",
        "spec": {"quota": {"hard": {"pods": "20"}}, "selector": {}},
        "status": {"total": part, "namespaces": [{"namespace": "shop", "status": part}]},
    });
    maker.make(QUOTAS, "team", quota, Value::Null).await;
}
