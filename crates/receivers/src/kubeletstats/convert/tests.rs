//! Requests of answers that are written after the kubelet's API types.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use prost::Message as _;
use sluice_config::Pattern;
use sluice_flow::Refusal;
use sluice_otlp::Signal;

use super::*;

const NOW_NS: u64 = 1_700_000_100_000_000_000;
/// 2023-11-14T22:13:20Z.
const START_NS: u64 = 1_700_000_000_000_000_000;
const STARTED_NS: u64 = 7;

const SUMMARY: &str = r#"{
 "node": {"nodeName": "n1", "startTime": "2023-11-14T22:13:20Z",
  "systemContainers": [{"name": "kubelet", "startTime": null,
   "cpu": {"usageNanoCores": 5}, "memory": {"usageBytes": 6, "workingSetBytes": 7}}],
  "cpu": {"time": "2023-11-14T22:14:59Z", "usageNanoCores": 1500000000,
   "usageCoreNanoSeconds": 2500000000},
  "memory": {"availableBytes": 1, "usageBytes": 2, "workingSetBytes": 3, "rssBytes": 4,
   "pageFaults": 5, "majorPageFaults": 18446744073709551615},
  "network": {"name": "eth0", "rxBytes": 10, "rxErrors": 11, "txBytes": 12, "interfaces": [
   {"name": "eth0", "rxBytes": 10, "rxErrors": 11, "txBytes": 12},
   {"name": "eth1", "rxBytes": 20, "txErrors": 23}]},
  "fs": {"availableBytes": 1, "capacityBytes": 2, "usedBytes": 3, "inodes": 4, "inodesFree": 5},
  "runtime": {"imageFs": {"usedBytes": 9}}},
 "pods": [
  {"podRef": {"name": "p", "namespace": "ns", "uid": "u1"}, "startTime": "2023-11-14T22:13:20Z",
   "containers": [{"name": "c", "startTime": "2023-11-14T23:13:20+01:00",
     "cpu": {"usageNanoCores": 100000000}, "memory": {"usageBytes": 1000},
     "rootfs": {"usedBytes": 8, "capacityBytes": 9}, "logs": {"usedBytes": 4}},
    {"name": "silent"}],
   "cpu": {"usageNanoCores": 200000000}, "memory": {"usageBytes": 3000},
   "volume": [{"name": "data", "availableBytes": 1, "capacityBytes": 2, "usedBytes": 3,
     "inodes": 4, "inodesFree": 5, "inodesUsed": 6, "pvcRef": {"name": "claim"}},
    {"name": "conf", "capacityBytes": 2}, {"name": "disk", "capacityBytes": 3}],
   "ephemeral-storage": {"usedBytes": 12}},
  {"podRef": {"name": "q", "namespace": "ns", "uid": "u2"}, "containers": null, "volume": null}]}"#;

const PODS: &str = r#"{"kind": "PodList", "items": [
 {"metadata": {"name": "p", "uid": "u1"}, "spec": {
   "containers": [
    {"name": "c", "resources": {"limits": {"cpu": "400m", "memory": "4k"},
     "requests": {"cpu": "200m"}}},
    {"name": "silent", "resources": {"limits": {"cpu": 1, "memory": "2k"}}}],
   "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
    {"name": "conf", "configMap": {"name": "x"}},
    {"name": "disk", "awsElasticBlockStore": {"volumeID": "v", "fsType": "ext4",
     "partition": 3}}]},
  "status": {"containerStatuses": [{"name": "c", "containerID": "containerd://abc"},
   {"name": "silent", "containerID": ""}]}}]}"#;

fn settings() -> Settings {
    let attribute =
        |(_, is_on): &(&str, bool)| AttributeChoice { is_on: *is_on, ..AttributeChoice::default() };
    Settings {
        metrics: Choice::defaults(),
        attributes: ATTRIBUTES.iter().map(attribute).collect(),
        groups: Groups { container: true, pod: true, node: true, volume: true },
        container_ids: false,
        volume_types: false,
        all_interfaces_of_nodes: false,
        all_interfaces_of_pods: false,
    }
}

/// With the metrics that are off by default.
fn all_metrics() -> Settings {
    let mut settings = settings();
    settings.metrics.iter_mut().for_each(|choice| choice.is_on = true);
    settings
}

fn encoded(settings: &Settings, claims: &Claims) -> Encoded {
    let pods = settings.needs_pods().then_some(PODS.as_bytes());
    let scrape = Scrape::read(SUMMARY.as_bytes(), pods).expect("is understood");
    let node = Capacity { cores: 4.0, memory_bytes: 10_000.0 };
    let moment = Moment { now_ns: NOW_NS, started_ns: STARTED_NS, node, claims };
    let mut asked = 0;
    let mut room = |bytes| {
        asked = bytes;
        Ok(())
    };
    let encoded = scrape.encode(settings, &moment, &mut room).expect("there is room");
    assert!(asked >= encoded.bytes.len(), "memory was asked for");
    let scanned = sluice_otlp::scan(Signal::Metrics, &encoded.bytes);
    assert_eq!(scanned, Ok(encoded.items));
    encoded
}

fn pairs(attributes: &[KeyValue]) -> String {
    let pair = |it: &KeyValue| match it.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(value)) => format!("{}={value}", it.key),
        other => format!("{}={other:?}", it.key),
    };
    attributes.iter().map(pair).collect::<Vec<_>>().join(",")
}

/// A line for each point: its resource, its metric with shape and unit, attributes, value, start.
fn lines(encoded: &Encoded) -> Vec<String> {
    let request = ExportMetricsServiceRequest::decode(&*encoded.bytes).expect("is OTLP");
    let mut lines = Vec::new();
    for group in request.resource_metrics {
        let resource = pairs(&group.resource.expect("a resource").attributes);
        for scope in group.scope_metrics {
            let about = scope.scope.expect("a scope");
            assert!(about.name.ends_with("/kubeletstatsreceiver"));
            assert_eq!(about.version, env!("CARGO_PKG_VERSION"), "as of `k8s_cluster`");
            for metric in scope.metrics {
                assert!(!metric.description.is_empty());
                let (shape, points) = match metric.data.expect("has data") {
                    metric::Data::Gauge(gauge) => ("gauge", gauge.data_points),
                    metric::Data::Sum(sum) => {
                        assert_eq!(sum.aggregation_temporality, 2, "it is cumulative");
                        let shape = if sum.is_monotonic { "counter" } else { "sum" };
                        (shape, sum.data_points)
                    }
                    other => panic!("{other:?}"),
                };
                for point in points {
                    assert_eq!(point.time_unix_nano, NOW_NS);
                    let value = match point.value.expect("a value") {
                        number_data_point::Value::AsInt(value) => value.to_string(),
                        number_data_point::Value::AsDouble(value) => format!("{value:?}"),
                    };
                    let start = match point.start_time_unix_nano {
                        START_NS => "start",
                        STARTED_NS => "receiver",
                        0 => "none",
                        other => panic!("{other}"),
                    };
                    let (name, unit) = (&metric.name, &metric.unit);
                    let attributes = pairs(&point.attributes);
                    lines.push(format!(
                        "{resource} {name} {shape} {unit} {{{attributes}}} {value} {start}"
                    ));
                }
            }
        }
    }
    lines
}

fn assert_has(lines: &[String], expected: &[&str]) {
    for line in expected {
        assert!(lines.iter().any(|it| it == line), "{line} is not in {lines:#?}");
    }
}

/// Scenario: an answer with a node, a pod, containers and volumes, and much that is missing.
/// Guarantee: what is there becomes the Collector's metrics, with its starts, and nothing else.
#[test]
fn an_answer_becomes_the_metrics_of_the_collector() {
    let lines = lines(&encoded(&settings(), &Claims::new()));
    let pod = "k8s.pod.uid=u1,k8s.pod.name=p,k8s.namespace.name=ns";
    assert_has(
        &lines,
        &[
            "k8s.node.name=n1 k8s.node.cpu.time counter s {} 2.5 start",
            "k8s.node.name=n1 k8s.node.cpu.usage gauge {cpu} {} 1.5 start",
            "k8s.node.name=n1 k8s.node.memory.major_page_faults gauge 1 {} -1 start",
            "k8s.node.name=n1 k8s.node.network.io counter By {interface=eth0,direction=receive} 10 \
         start",
            "k8s.node.name=n1 k8s.node.network.errors counter 1 \
         {interface=eth0,direction=receive} 11 start",
            &format!("{pod},k8s.container.name=c container.filesystem.usage gauge By {{}} 8 start"),
            &format!("{pod} k8s.pod.filesystem.usage gauge By {{}} 12 start"),
            &format!("{pod},k8s.volume.name=data k8s.volume.inodes.used gauge 1 {{}} 6 receiver"),
        ],
    );
    let of = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(of("k8s.node.name"), 14);
    for absent in ["eth1", "silent", "u2", "system_container", "uptime", "k8s.volume.type"] {
        assert_eq!(of(absent), 0, "{absent}");
    }
}

/// Scenario: all metrics are on. Guarantee: each of the table is there, but for those whose
/// numbers the kubelet does not tell; limits of a pod are those of all of its containers.
#[test]
fn metrics_that_are_off_can_be_sent() {
    let mut settings = all_metrics();
    settings.all_interfaces_of_nodes = true;
    let lines = lines(&encoded(&settings, &Claims::new()));
    let pod = "k8s.pod.uid=u1,k8s.pod.name=p,k8s.namespace.name=ns";
    let container = format!("{pod},k8s.container.name=c");
    let system = "k8s.node.name=n1,k8s.node.system_container.name=kubelet";
    assert_has(
        &lines,
        &[
            "k8s.node.name=n1 k8s.node.uptime counter s {} 100 start",
            "k8s.node.name=n1 k8s.node.filesystem.inode.count sum {inode} {} 4 start",
            "k8s.node.name=n1 k8s.node.network.errors counter 1 \
         {interface=eth1,direction=transmit} 23 start",
            &format!("{system} k8s.node.system_container.memory.usage gauge By {{}} 6 none"),
            &format!("{container} k8s.container.cpu_limit_utilization gauge 1 {{}} 0.25 start"),
            &format!("{container} k8s.container.cpu_request_utilization gauge 1 {{}} 0.5 start"),
            &format!("{container} k8s.container.memory_limit_utilization gauge 1 {{}} 0.25 start"),
            &format!("{container} k8s.container.cpu.node.utilization gauge 1 {{}} 0.025 start"),
            &format!("{container} k8s.container.memory.node.utilization gauge 1 {{}} 0.1 start"),
            &format!(
                "{container} k8s.container.ephemeral_storage.usage sum By {{fs.type=logs}} 4 start"
            ),
            &format!("{pod} k8s.pod.memory_limit_utilization gauge 1 {{}} 0.5 start"),
            &format!("{pod},k8s.volume.name=data k8s.pod.volume.usage sum By {{}} 3 receiver"),
        ],
    );
    let has = |name: &str| lines.iter().any(|line| line.contains(&format!(" {name} ")));
    for absent in ["k8s.pod.cpu_request_utilization", "k8s.container.memory_request_utilization"] {
        assert!(!has(absent), "{absent}: not all have a request");
    }
    let missing: Vec<&str> = METRICS.iter().map(|it| it.name).filter(|name| !has(name)).collect();
    let untold = |name: &&&str| {
        let parts = ["memory", "request", "cpu.time", "network", "filesystem"];
        !parts.iter().any(|part| name.contains(part))
    };
    assert_eq!(missing.iter().find(untold), None, "{missing:?}");
}

/// Scenario: ids of containers and types of volumes are wanted, of which some are not known.
/// Guarantee: they are attributes; an object without them is left out, counted and named.
#[test]
fn metadata_of_pods_become_attributes() {
    let mut settings = Settings { container_ids: true, volume_types: true, ..settings() };
    for (choice, (name, _)) in settings.attributes.iter_mut().zip(ATTRIBUTES) {
        choice.is_on |= ["partition", "fs.type", "aws.volume.id"].contains(name);
    }
    let scrape = Scrape::read(SUMMARY.as_bytes(), Some(PODS.as_bytes())).expect("is understood");
    let claims = scrape.claims(&settings);
    assert_eq!(claims, [Claim { namespace: "ns".into(), name: "claim".into() }]);
    let volume = "k8s.pod.uid=u1,k8s.pod.name=p,k8s.namespace.name=ns,k8s.volume.name=";
    let claimed = |claim: Option<Result<&str, &str>>| {
        let known = claim.map(|claim| {
            let source = claim.map(|json| serde_json::from_str(json).expect("a source"));
            (claims[0].clone(), source.map_err(str::to_owned))
        });
        let encoded = encoded(&settings, &known.into_iter().collect());
        let lines = lines(&encoded);
        assert_has(
            &lines,
            &[
                &format!(
                    "{volume}conf,k8s.volume.type=configMap k8s.volume.capacity gauge By {{}} 2 \
                 receiver"
                ),
                &format!(
                    "{volume}disk,aws.volume.id=v,k8s.volume.type=awsElasticBlockStore,fs.type=ext4,\
                 partition=3 k8s.volume.capacity gauge By {{}} 3 receiver"
                ),
            ],
        );
        assert!(lines.iter().any(|line| line.contains("container.id=abc container.cpu.usage")));
        let of = lines.into_iter().find(|line| line.contains("k8s.volume.name=data"));
        (of, encoded.skipped, encoded.reason)
    };
    let (of, skipped, reason) = claimed(None);
    let kind = ",k8s.persistentvolumeclaim.name=claim,k8s.volume.type=persistentVolumeClaim ";
    assert!(of.expect("it is sent").contains(kind));
    assert_eq!(skipped, 1, "the container `silent` has no id");
    let reason = reason.expect("it is told");
    assert_eq!(reason, "the container \"silent\" of the pod \"ns\"/\"p\": it has no id yet");
    let (of, ..) = claimed(Some(Ok(r#"{"local": {"path": "/x"}}"#)));
    assert!(of.expect("it is sent").contains(",k8s.volume.type=local "));
    let (of, ..) = claimed(Some(Ok(r#"{"csi": {"driver": "x"}}"#)));
    assert!(of.expect("it is sent").contains(kind));
    let (of, skipped, _) = claimed(Some(Err("it is gone")));
    assert_eq!((of, skipped), (None, 2));
}

/// Guarantee: attributes that are off are not sent, and filters leave whole resources out.
#[test]
fn resources_are_chosen_by_their_attributes() {
    let at = |name: &str| ATTRIBUTES.iter().position(|(it, _)| *it == name).expect("is known");
    let sent = |change: &dyn Fn(&mut Vec<AttributeChoice>)| {
        let mut settings = settings();
        change(&mut settings.attributes);
        lines(&encoded(&settings, &Claims::new()))
    };
    let strict = |text: &str| vec![Filter::Strict(text.to_owned())];
    let regexp = |text: &str| vec![Filter::Regexp(Pattern::new(text).expect("a pattern"))];
    let off = sent(&|it| it[at("k8s.pod.uid")].is_on = false);
    assert!(off.iter().all(|line| !line.contains("k8s.pod.uid")));
    let included = sent(&|it| it[at("k8s.container.name")].include = strict("other"));
    assert!(included.iter().all(|line| !line.contains("k8s.container.name")));
    assert!(included.iter().any(|line| line.contains("k8s.node.name")), "it has no such attribute");
    let excluded = sent(&|it| it[at("k8s.volume.name")].exclude = regexp("^da"));
    assert!(excluded.iter().all(|line| !line.contains("k8s.volume.name=data")));
    assert!(excluded.iter().any(|line| line.contains("k8s.volume.name=conf")));
}

/// Guarantee: answers of other servers, and broken ones, are errors that name the path.
#[test]
fn answers_that_are_none_are_errors() {
    for (summary, pods, path) in [
        ("<html>", "{}", "/stats/summary"),
        (r#"{"node": {"cpu": {"usageNanoCores": -1}}}"#, "{}", "/stats/summary"),
        (r#"{"node": {"startTime": "yesterday"}}"#, "{}", "/stats/summary"),
        (r#"{"pods": [{"podRef": 3}]}"#, "{}", "/stats/summary"),
        (r#"{"pods": ["#, "{}", "/stats/summary"),
        ("{}", "[1]", "/pods"),
        (
            "{}",
            r#"{"items": [{"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}}]}"#,
            "/pods",
        ),
    ] {
        let error = Scrape::read(summary.as_bytes(), Some(pods.as_bytes())).err();
        assert_eq!(error.map(|(path, _)| path), Some(path), "{summary} {pods}");
    }
    assert!(Scrape::read(b"{}", None).is_ok(), "a kubelet that has just started knows nothing");
}

/// Scenario: an answer whose texts are repeated for each of its many containers. Guarantee: memory
/// is asked for as the request grows, and a refusal ends it soon.
#[test]
fn a_request_ends_when_there_is_no_room() {
    let containers = vec![r#"{"name":"c","cpu":{"usageNanoCores":1}}"#; 10_000].join(",");
    let name = "n".repeat(100_000);
    let summary =
        format!(r#"{{"pods":[{{"podRef":{{"name":"{name}"}},"containers":[{containers}]}}]}}"#);
    let scrape = Scrape::read(summary.as_bytes(), None).expect("is understood");
    assert!(read_bytes(summary.as_bytes()) > 10_000 * 200);
    let claims = Claims::new();
    let node = Capacity::default();
    let moment = Moment { now_ns: NOW_NS, started_ns: STARTED_NS, node, claims: &claims };
    let mut most = 0;
    let mut room = |bytes: usize| {
        most = most.max(bytes);
        if bytes > 10 << 20 { Err(Refusal::overloaded("no room")) } else { Ok(()) }
    };
    let refused = scrape.encode(&settings(), &moment, &mut room);
    assert!(refused.is_err());
    assert!(most < (10 << 20) + 300_000, "{most}");
}
