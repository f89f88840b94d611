//! Objects as an API server gives them, and the targets that they make: as Prometheus' own tests
//! expect them.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use sluice_config::read_text;
use sluice_kubernetes::Indexed as _;
use sluice_kubernetes::objects::{Endpoint, EndpointSlice};

use super::*;

/// The options, without a job.
fn config(options: &str) -> KubernetesSd {
    let (config, diagnostics) = read_text("x", options, KubernetesSd::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    config.expect("a role")
}

/// Objects of one kind.
fn known<T: Object>(objects: &[Value]) -> Indexes<T> {
    let mut index = Index::new(Duration::ZERO, LIMIT_BYTES);
    for object in objects {
        let object = serde_json::from_value(object.clone()).expect("an object");
        index.apply(Event::Added(Held::new(object)), Instant::now());
    }
    index.apply(Event::Listed, Instant::now());
    Indexes(vec![index])
}

/// All groups: the key, the common labels, and those of each target, as lines.
fn shown(state: &State) -> Vec<String> {
    let labels = |labels: &crate::labels::Labels| {
        let each = labels.iter().map(|it| {
            let name = it.name.strip_prefix("__meta_kubernetes_").unwrap_or(&it.name);
            format!("{name}={}", it.value)
        });
        each.collect::<Vec<_>>().join(" ")
    };
    let mut lines = Vec::new();
    for group in state.groups() {
        lines.push(format!("{}: {}", group.key, labels(&group.labels)));
        lines.extend(group.targets.iter().map(&labels));
    }
    lines
}

fn pod(name: &str, node: &str, owner: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": "u1", "labels": {"a/b": "c"},
                     "annotations": {"x": ""}, "ownerReferences": owner},
        "spec": {"nodeName": node, "containers": [
            {"name": "main", "image": "main:1", "ports": [
                {"name": "http", "containerPort": 9000, "protocol": "TCP"},
                {"containerPort": 9001, "protocol": "UDP"}]},
            {"name": "plain", "image": "plain:1"}],
            "initContainers": [{"name": "init", "image": "init:1"}]},
        "status": {"podIP": "fd00::1", "hostIP": "2.3.4.5", "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "main", "containerID": "docker://m"}],
            "initContainerStatuses": [{"name": "init", "containerID": "docker://i"}]}
    })
}

fn owner(kind: &str, name: &str) -> Value {
    json!([{"kind": kind, "name": name, "controller": true}])
}

const POD: &str = "pod_annotationpresent_x=true pod_controller_kind=K pod_controller_name=o \
                   pod_host_ip=2.3.4.5 pod_ip=fd00::1 pod_label_a_b=c pod_labelpresent_a_b=true \
                   pod_name=p pod_node_name=n1 pod_phase=Running pod_ready=true pod_uid=u1";

#[test]
fn pods_have_a_target_for_each_port() {
    let mut state = State::new(&config("role: pod"));
    let mut pending = pod("q", "n1", Value::Null);
    pending["status"] = json!({});
    state.pods = known(&[pod("p", "n1", owner("K", "o")), pending]);
    let container = |name: &str, id: &str, init: bool| {
        format!(
            "pod_container_id={id} pod_container_image={name}:1 pod_container_init={init} \
                 pod_container_name={name}"
        )
    };
    assert_eq!(
        shown(&state),
        [
            format!("pod/ns/p: namespace=ns {POD}"),
            format!(
                "__address__=[fd00::1]:9000 {} pod_container_port_name=http \
                 pod_container_port_number=9000 pod_container_port_protocol=TCP",
                container("main", "docker://m", false)
            ),
            format!(
                "__address__=[fd00::1]:9001 {} pod_container_port_number=9001 \
                 pod_container_port_protocol=UDP",
                container("main", "docker://m", false)
            ),
            "__address__=fd00::1 pod_container_image=plain:1 pod_container_init=false \
             pod_container_name=plain"
                .to_owned(),
            format!("__address__=fd00::1 {}", container("init", "docker://i", true)),
        ]
    );
}

/// Guarantee: what is attached comes from nodes, namespaces, replica sets and jobs; a pod on a node
/// that no selector means has no target.
#[test]
fn labels_of_other_objects_are_attached() {
    let text = "{role: pod, attach_metadata: {node: true, namespace: true, deployment: true, \
                job: true, cronjob: true}}";
    let mut state = State::new(&config(text));
    let meta = |name: &str, namespace: &str, owners: Value| {
        json!({"metadata": {"name": name, "namespace": namespace, "labels": {"l": name},
                            "ownerReferences": owners}})
    };
    state.pods = known(&[
        pod("a", "n1", owner("ReplicaSet", "rs")),
        pod("b", "n1", owner("Job", "job")),
        pod("c", "n2", owner("K", "o")),
    ]);
    state.nodes = known(&[meta("n1", "", Value::Null)]);
    state.namespaces = known(&[meta("ns", "", Value::Null)]);
    state.replica_sets = known(&[meta("rs", "ns", owner("Deployment", "web"))]);
    state.jobs = known(&[meta("job", "ns", owner("CronJob", "nightly"))]);
    let groups: Vec<String> =
        shown(&state).into_iter().filter(|line| line.starts_with("pod/")).collect();
    assert_eq!(groups.len(), 2, "{groups:?}");
    for (group, own) in groups.iter().zip([
        vec!["pod_deployment_name=web", "pod_controller_kind=ReplicaSet"],
        vec!["pod_job_name=job", "pod_cronjob_name=nightly"],
    ]) {
        let of_all = ["node_name=n1", "node_label_l=n1", "namespace_label_l=ns"];
        for label in own.iter().chain(&of_all) {
            assert!(group.contains(label), "{label}: {group}");
        }
    }
}

#[test]
fn services_have_a_target_for_each_port() {
    let mut state = State::new(&config("role: service"));
    let service = |name: &str, spec: Value| {
        let meta = json!({"name": name, "namespace": "ns", "labels": {"l": "x"}});
        json!({"metadata": meta, "spec": spec})
    };
    let port = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    state.services = known(&[
        service("a", json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": port})),
        service("b", json!({"type": "ExternalName", "externalName": "e.x", "ports": port})),
        service(
            "c",
            json!({"type": "LoadBalancer", "clusterIP": "10.0.0.2",
                            "loadBalancerIP": "1.2.3.4", "ports": port}),
        ),
        service("d", json!({"ports": null})),
    ]);
    let group = |name: &str| {
        format!(
            "svc/ns/{name}: namespace=ns service_label_l=x service_labelpresent_l=true \
                 service_name={name}"
        )
    };
    let target = |name: &str, first: &str, last: &str| {
        format!(
            "__address__={name}.ns.svc:80 {first}service_port_name=http \
                 service_port_number=80 service_port_protocol=TCP service_type={last}"
        )
    };
    assert_eq!(
        shown(&state),
        [
            group("a"),
            target("a", "service_cluster_ip=10.0.0.1 ", "ClusterIP"),
            group("b"),
            target("b", "service_external_name=e.x ", "ExternalName"),
            group("c"),
            target(
                "c",
                "service_cluster_ip=10.0.0.2 service_loadbalancer_ip=1.2.3.4 ",
                "LoadBalancer"
            ),
        ]
    );
}

/// Guarantee: addresses have the labels of the pod behind them and of its container, the service's
/// are common, and further ports of the pods have targets of their own.
#[test]
fn endpoints_have_targets_for_addresses_and_further_ports() {
    let mut state = State::new(&config("role: endpoints"));
    state.pods = known(&[pod("p", "n1", owner("K", "o"))]);
    state.services = known(&[json!({"metadata": {"name": "s", "namespace": "ns"}})]);
    state.endpoints = known(&[json!({
        "metadata": {"name": "s", "namespace": "ns", "labels": {"l": "x"}},
        "subsets": [{
            "addresses": [{"ip": "fd00::1", "nodeName": "n1", "hostname": "h",
                           "targetRef": {"kind": "Pod", "name": "p", "namespace": "ns"}}],
            "notReadyAddresses": [{"ip": "2.2.2.2"}],
            "ports": [{"name": "web", "port": 9000, "protocol": "TCP"}]
        }]
    })]);
    let main = "pod_container_image=main:1 pod_container_init=false pod_container_name=main";
    assert_eq!(
        shown(&state),
        [
            "endpoints/ns/s: endpoints_label_l=x endpoints_labelpresent_l=true endpoints_name=s \
             namespace=ns service_name=s"
                .to_owned(),
            format!(
                "__address__=[fd00::1]:9000 endpoint_address_target_kind=Pod \
                 endpoint_address_target_name=p endpoint_hostname=h endpoint_node_name=n1 \
                 endpoint_port_name=web endpoint_port_protocol=TCP endpoint_ready=true {}",
                merged(
                    POD,
                    &format!(
                        "{main} pod_container_port_name=http \
                        pod_container_port_number=9000 pod_container_port_protocol=TCP"
                    )
                )
            ),
            "__address__=2.2.2.2:9000 endpoint_port_name=web endpoint_port_protocol=TCP \
             endpoint_ready=false"
                .to_owned(),
            format!(
                "__address__=[fd00::1]:9001 {}",
                merged(
                    POD,
                    &format!(
                        "{main} pod_container_port_number=9001 \
                        pod_container_port_protocol=UDP"
                    )
                )
            ),
        ]
    );
}

/// Both sets of labels in the order of their names.
fn merged(one: &str, other: &str) -> String {
    let mut labels: Vec<&str> = one.split(' ').chain(other.split(' ')).collect();
    labels.sort_by_key(|label| label.split('=').next().map(str::to_owned));
    labels.join(" ")
}

/// Guarantee: slices give what endpoints give, with their own labels; the second family of a
/// service gives nothing.
#[test]
fn slices_have_targets_for_addresses_and_further_ports() {
    let mut state = State::new(&config("role: endpointslice"));
    state.pods = known(&[pod("p", "n1", owner("K", "o"))]);
    state.services = known(&[json!({"metadata": {"name": "s", "namespace": "ns"}, "spec": {
        "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}})]);
    let slice = |name: &str, family: &str| {
        json!({
            "metadata": {"name": name, "namespace": "ns",
                         "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": family,
            "endpoints": [
                {"addresses": ["fd00::1"], "conditions": {"ready": true, "terminating": false},
                 "zone": "z", "nodeName": "n1", "deprecatedTopology": {"a/b": "t"},
                 "targetRef": {"kind": "Pod", "name": "p", "namespace": "ns"}},
                {"addresses": ["fd00::2"], "targetRef": {"kind": "Node", "name": "n9"}}],
            "ports": [{"name": "web", "port": 9000, "protocol": "TCP", "appProtocol": "h2"},
                      {"name": null, "port": null}]
        })
    };
    state.slices = known(&[slice("a", "IPv6"), slice("b", "IPv4")]);
    let lines = shown(&state);
    assert_eq!(
        lines[0],
        "endpointslice/ns/a: endpointslice_address_type=IPv6 \
         endpointslice_label_kubernetes_io_service_name=s \
         endpointslice_labelpresent_kubernetes_io_service_name=true endpointslice_name=a \
         namespace=ns service_name=s"
    );
    let of_pod = "endpointslice_address_target_kind=Pod endpointslice_address_target_name=p \
                  endpointslice_endpoint_conditions_ready=true \
                  endpointslice_endpoint_conditions_terminating=false \
                  endpointslice_endpoint_node_name=n1 endpointslice_endpoint_topology_a_b=t \
                  endpointslice_endpoint_topology_present_a_b=true endpointslice_endpoint_zone=z";
    assert!(
        lines[1].starts_with(&format!(
            "__address__=[fd00::1]:9000 {of_pod} \
        endpointslice_port=9000 endpointslice_port_app_protocol=h2 endpointslice_port_name=web \
        endpointslice_port_protocol=TCP pod_annotationpresent_x=true \
        pod_container_image=main:1"
        )),
        "{}",
        lines[1]
    );
    assert!(lines[2].starts_with(&format!("__address__=fd00::1 {of_pod} pod_ann")), "{}", lines[2]);
    assert_eq!(
        lines[3],
        "__address__=[fd00::2]:9000 endpointslice_address_target_kind=Node \
         endpointslice_address_target_name=n9 endpointslice_port=9000 \
         endpointslice_port_app_protocol=h2 endpointslice_port_name=web \
         endpointslice_port_protocol=TCP"
    );
    assert!(lines[5].starts_with("__address__=[fd00::1]:9001 pod_"), "{}", lines[5]);
    assert_eq!(lines.len(), 6);
}

#[test]
fn nodes_are_their_kubelets() {
    let mut state = State::new(&config("role: node"));
    state.nodes = known(&[
        json!({"metadata": {"name": "n", "labels": {"l": "x"}}, "spec": {"providerID": "aws:1"},
               "status": {"conditions": [{"type": "DiskPressure", "status": "False"}],
                   "addresses": [{"type": "Hostname", "address": "h"},
                                 {"type": "InternalIP", "address": "1.1.1.1"},
                                 {"type": "InternalIP", "address": "2.2.2.2"}],
                   "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}),
        json!({"metadata": {"name": "without-address"}}),
    ]);
    assert_eq!(
        shown(&state),
        [
            "node/n: node_condition_diskpressure=false node_label_l=x node_labelpresent_l=true \
             node_name=n node_provider_id=aws:1",
            "__address__=1.1.1.1:10250 node_address_Hostname=h node_address_InternalIP=1.1.1.1 \
             instance=n",
        ]
    );
}

#[test]
fn ingresses_have_a_target_for_each_path() {
    let mut state = State::new(&config("role: ingress"));
    state.ingresses = known(&[json!({
        "metadata": {"name": "i", "namespace": "ns"},
        "spec": {"ingressClassName": "nginx", "tls": [{"hosts": ["*.x.com", "y.com"]}], "rules": [
            {"host": "a.x.com", "http": {"paths": [{"path": "/p"}, {}]}},
            {"host": "a.b.x.com"}, {"host": "y.com", "http": {"paths": []}}]}
    })]);
    let target = |host: &str, path: &str, scheme: &str| {
        format!(
            "__address__={host} ingress_host={host} ingress_path={path} ingress_scheme={scheme}"
        )
    };
    assert_eq!(
        shown(&state),
        [
            "ingress/ns/i: ingress_class_name=nginx ingress_name=i namespace=ns".to_owned(),
            target("a.x.com", "/p", "https"),
            target("a.x.com", "/", "https"),
            target("a.b.x.com", "/", "http"),
        ]
    );
}

/// Guarantee: an object weighs as much as what is held of it: each endpoint counts.
#[test]
fn objects_weigh_what_is_held_of_them() {
    let slice = |endpoints: usize| {
        let endpoint = json!({
            "addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "node-1",
            "zone": "eu-west-1a", "targetRef": {"kind": "Pod", "namespace": "d", "name": "pod-1"}
        });
        let object = json!({
            "metadata": {"name": "s", "namespace": "d"}, "endpoints": vec![endpoint; endpoints]
        });
        Held::new(serde_json::from_value::<EndpointSlice>(object).expect("an object")).weight()
    };
    let of_one = (slice(500) - slice(0)) / 500;
    assert!((size_of::<Endpoint>() + 60..1000).contains(&of_one), "{of_one}");
}

/// Scenario: many changes come at once. Guarantee: each is taken in at once, and none waits for the
/// next report.
#[tokio::test]
async fn changes_do_not_wait_for_a_report() {
    let taken = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = unbounded_channel();
    for _ in 0..3 {
        let taken = taken.clone();
        let change = move |_: &mut State| {
            taken.fetch_add(1, Ordering::Relaxed);
        };
        assert!(sender.send(Message::Change(Box::new(change))).is_ok());
    }
    let mut outlet = Outlet::new("j".into(), crate::index::Index::new(Arc::default()).reporter());
    let state = State::new(&config("role: node"));
    let report = tokio::spawn(async move { report(state, receiver, "x", &mut outlet).await });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(taken.load(Ordering::Relaxed), 3);
    report.abort();
}
