//! Objects to points, without an API server. The values are the Collector's.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{EntityRef, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric};
use prost::Message as _;
use serde_json::{Value as Json, json};
use sluice_config::read_text;
use sluice_otlp::{Signal, scan};

use super::super::config::Options;
use super::super::recorder::{Frame, Recorder};
use super::*;

fn text_of(pair: &KeyValue) -> String {
    let value = pair.value.as_ref().and_then(|value| value.value.clone());
    match value {
        Some(Any::StringValue(text)) => format!("{}={text}", pair.key),
        Some(Any::BoolValue(value)) => format!("{}={value}", pair.key),
        other => panic!("{other:?}"),
    }
}

fn line_of(name: &str, point: &NumberDataPoint) -> String {
    let attributes: Vec<String> = point.attributes.iter().map(text_of).collect();
    let value = match point.value.expect("a value") {
        Number::AsInt(value) => value.to_string(),
        Number::AsDouble(value) => format!("{value:?}"),
    };
    format!("{name}{{{}}} {value}", attributes.join(","))
}

struct Resource {
    attributes: Vec<String>,
    entities: Vec<EntityRef>,
    points: Vec<String>,
}

/// The resources of an object, with these options.
fn resources(kept: fn(Json) -> Kept, object: Json, yaml: &str) -> Vec<Resource> {
    resources_around(&kept(object), &Endpoints::default(), yaml)
}

fn resources_around(object: &Kept, endpoints: &Endpoints, yaml: &str) -> Vec<Resource> {
    let (options, diagnostics) = read_text("receivers.k8s_cluster", yaml, Options::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let frame = Frame {
        choice: &options.choice,
        scope: "s",
        version: "v",
        schema_url: "u",
        start_ns: 1,
        time_ns: 2,
    };
    let mut recorder = Recorder::new(frame);
    record(object, &Around { nodes: &options.nodes, endpoints }, &mut recorder);
    let (bytes, items) = recorder.take();
    assert_eq!(scan(Signal::Metrics, &bytes), Ok(items));
    let request = ExportMetricsServiceRequest::decode(&bytes[..]).expect("metrics");
    let resource = |part: opentelemetry_proto::tonic::metrics::v1::ResourceMetrics| {
        let resource = part.resource.expect("a resource");
        let mut points = Vec::new();
        for metric in &part.scope_metrics[0].metrics {
            let found = match metric.data.as_ref().expect("data") {
                metric::Data::Gauge(gauge) => &gauge.data_points,
                metric::Data::Sum(sum) => &sum.data_points,
                other => panic!("{other:?}"),
            };
            points.extend(found.iter().map(|point| line_of(&metric.name, point)));
        }
        let attributes = resource.attributes.iter().map(text_of).collect();
        Resource { attributes, entities: resource.entity_refs, points }
    };
    request.resource_metrics.into_iter().map(resource).collect()
}

fn pod(object: Json) -> Kept {
    Kept::Pod(serde_json::from_value(object).expect("a pod"))
}

#[test]
fn phases_and_reasons_of_pods_are_numbers() {
    let on = "metrics: {k8s.pod.status_reason: {enabled: true}}";
    for (phase, reason, expected) in [
        ("Pending", "", [1, 6]),
        ("Running", "Evicted", [2, 1]),
        ("Succeeded", "NodeAffinity", [3, 2]),
        ("Failed", "NodeLost", [4, 3]),
        ("Unknown", "Shutdown", [5, 4]),
        ("", "UnexpectedAdmissionError", [5, 5]),
        ("Odd", "odd", [5, 6]),
    ] {
        let object = json!({"metadata": {"name": "a"},
            "status": {"phase": phase, "reason": reason}});
        let found = resources(pod, object, on);
        let [number, reason] = expected;
        let expected =
            [format!("k8s.pod.phase{{}} {number}"), format!("k8s.pod.status_reason{{}} {reason}")];
        assert_eq!(found[0].points, expected);
    }
}

fn container(status: &Json) -> Json {
    json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"},
        "spec": {"nodeName": "w", "containers": [{"name": "c"}]},
        "status": {"containerStatuses": [status]}})
}

/// Guarantee: an image is taken apart; an image or a container that is none has empty attributes;
/// the runtime is no part of the id.
#[test]
fn containers_are_known_by_their_id_and_image() {
    let digest = "0".repeat(64);
    for (image, id, expected) in [
        ("a/b:1", "containerd://x", ["x", "a/b", "1"]),
        ("a", "cri-o://y", ["y", "a", "latest"]),
        (&*format!("h:1/a@sha256:{digest}"), "z", ["z", "h:1/a", "latest"]),
        ("Not An Image", "a b://z", ["a b://z", "", ""]),
        ("", "", ["", "", ""]),
    ] {
        let status = json!({"name": "c", "image": image, "containerID": id});
        let found = &resources(pod, container(&status), "")[1];
        let [id, repository, tag] = expected;
        let expected = [
            format!("container.id={id}"),
            "k8s.container.name=c".to_owned(),
            format!("container.image.name={repository}"),
            format!("container.image.tag={tag}"),
            "k8s.pod.uid=u".to_owned(),
            "k8s.pod.name=a".to_owned(),
            "k8s.namespace.name=n".to_owned(),
            "k8s.node.name=w".to_owned(),
        ];
        assert_eq!(found.attributes, expected);
        assert_eq!(found.points, ["k8s.container.ready{} 0", "k8s.container.restarts{} 0"]);
    }
    let other = json!({"name": "other", "ready": true});
    assert_eq!(resources(pod, container(&other), "").len(), 1, "it has neither status nor amounts");
}

/// Guarantee: an entity names the attributes that are sent; without the one that identifies it,
/// there is no entity.
#[test]
fn entities_have_the_attributes_that_are_sent() {
    let object = json!({"metadata": {"name": "a", "uid": "u"}, "status": {"qosClass": "q"}});
    let entities = |yaml: &str| {
        let found = resources(pod, object.clone(), yaml).remove(0);
        let entities = found.entities.into_iter();
        let entities: Vec<_> =
            entities.map(|it| (it.r#type, it.id_keys, it.description_keys)).collect();
        (found.attributes.len(), entities)
    };
    let texts = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let of = |names: &[&str]| vec![("k8s.pod".to_owned(), texts(&["k8s.pod.uid"]), texts(names))];
    assert_eq!(entities(""), (4, of(&["k8s.pod.name"])));
    let more = "resource_attributes: {k8s.pod.qos_class: {enabled: true}}";
    assert_eq!(entities(more), (5, of(&["k8s.pod.name", "k8s.pod.qos_class"])));
    let without = "resource_attributes: {k8s.pod.uid: {enabled: false}}";
    assert_eq!(entities(without), (3, Vec::new()));
}

/// Guarantee: a resource is left out by the values of its attributes, and if it has no points.
#[test]
fn resources_are_left_out_by_options() {
    let object = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}});
    for (yaml, expected) in [
        ("resource_attributes: {k8s.namespace.name: {metrics_include: [{strict: n}]}}", 1),
        ("resource_attributes: {k8s.namespace.name: {metrics_include: [{strict: m}]}}", 0),
        ("resource_attributes: {k8s.namespace.name: {metrics_exclude: [{regexp: '^n'}]}}", 0),
        ("resource_attributes: {k8s.namespace.name: {metrics_exclude: [{regexp: 'x'}]}}", 1),
        (
            "resource_attributes: {k8s.pod.name: {enabled: false, metrics_exclude: [{strict: a}]}}",
            1,
        ),
        ("metrics: {k8s.pod.phase: {enabled: false}}", 0),
    ] {
        assert_eq!(resources(pod, object.clone(), yaml).len(), expected, "{yaml}");
    }
}

/// Guarantee: conditions and amounts that a node does not have are unknown or left out.
#[test]
fn nodes_have_the_conditions_and_amounts_that_options_name() {
    let node = |object| Kept::Node(serde_json::from_value(object).expect("a node"));
    let object = json!({"metadata": {"name": "w", "uid": "u"}, "status": {
        "conditions": [{"type": "Ready", "status": "False"}], "allocatable": {"cpu": "1900m"}}});
    let yaml = "node_conditions_to_report: [Ready, PIDPressure]\n\
                allocatable_types_to_report: [cpu, memory]\n\
                metrics: {k8s.node.condition: {enabled: true}}";
    let found = resources(node, object, yaml);
    let expected = [
        "k8s.node.condition_ready{} 0",
        "k8s.node.condition_pid_pressure{} -1",
        "k8s.node.allocatable_cpu{} 1.9",
    ];
    assert_eq!(found[0].points, expected);
    assert!(found[0].entities.is_empty());
    assert_eq!(found[1].points, ["k8s.node.condition{condition=Ready} 0"]);
    assert_eq!(found[1].entities.len(), 1);
}

/// Guarantee: endpoints of all slices of a service add up, by type of address and zone.
#[test]
fn endpoints_of_slices_are_counted_for_their_service() {
    let slice = |name: &str, kind: &str, conditions: Json| {
        let object = json!({"metadata": {"name": name, "namespace": "n", "uid": name,
            "labels": {SERVICE_NAME: "s", "x": "y"}}, "addressType": kind,
            "endpoints": [{"zone": "z", "conditions": conditions}]});
        let mut kept = Kept::Slice(serde_json::from_value(object).expect("a slice"));
        kept.keep_needed();
        assert_eq!(kept.meta().labels.len(), 1, "the service's name");
        kept
    };
    let mut endpoints = Endpoints::default();
    for object in [
        slice("a", "IPv4", json!({})),
        slice("b", "IPv4", json!({"ready": false, "serving": true, "terminating": true})),
        slice("c", "IPv4", json!({"ready": false})),
        slice("d", "Odd", json!({})),
    ] {
        let Kept::Slice(slice) = &object else { panic!("{object:?}") };
        endpoints.add(slice);
    }
    let service = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"type": "X"}});
    let service = Kept::Service(serde_json::from_value(service).expect("a service"));
    let yaml = "metrics: {k8s.service.endpoint.count: {enabled: true}}";
    let found = resources_around(&service, &endpoints, yaml);
    let line = |condition: &str, count: i64| {
        format!(
            "k8s.service.endpoint.count{{k8s.service.endpoint.address_type=IPv4,\
             k8s.service.endpoint.condition={condition},k8s.service.endpoint.zone=z}} {count}"
        )
    };
    assert_eq!(found[0].points, [line("ready", 1), line("serving", 2), line("terminating", 1)]);
}

/// Guarantee: a usual pod is kept in little more than 1 KB.
#[test]
fn a_pod_takes_about_a_kilobyte() {
    let labels: Json = (0..30).map(|it| (format!("label-{it}"), json!("x".repeat(60)))).collect();
    let object = json!({"metadata": {"name": "some-deployment-5f7d8c9b4-abcde", "namespace": "shop",
        "uid": "00000000-0000-0000-0000-000000000000", "labels": labels, "annotations": labels},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "resources":
            {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [
            {"name": "main", "image": "registry.example.com/shop/main:1.2.3", "containerID":
            format!("containerd://{}", "0".repeat(64)), "state": {"running": {}}}]}});
    let mut kept = pod(object);
    let before = kept.weight();
    kept.keep_needed();
    assert!(before > 2500 && kept.weight() < 1300, "{before} {}", kept.weight());
}
