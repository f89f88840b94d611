//! The pod that a resource comes from.

use std::time::Duration;

use super::*;

const PEER: Option<&str> = Some("10.1.2.3:4711");
const ONLY_NAME: &str = "extract: {metadata: [k8s.pod.name]}\n";
const NAME: &str = "k8s.pod.name=web-6c45f8d6f6-x7k2p";

fn only_name(more: &str) -> Processor {
    Processor::new(&format!("{ONLY_NAME}{more}"))
}

/// Guarantee: without options, the pod is that of the resource's addresses or of the sender, and
/// its attributes are those that the Collector adds.
#[test]
fn the_senders_address_leads_to_its_pod() {
    let processor = Processor::new("{}").pod(web_pod());
    let expected = [
        "k8s.pod.name=web-6c45f8d6f6-x7k2p",
        "k8s.namespace.name=shop",
        "k8s.pod.start_time=2026-11-28T07:00:00Z",
        "k8s.pod.uid=uid-web",
        "k8s.deployment.name=web",
        "k8s.node.name=node-1",
    ];
    assert_eq!(processor.enrich(PEER, &[]), expected);
    assert_eq!(processor.enrich(Some("[::ffff:10.1.2.3]:1"), &[]), expected);
    for key in ["k8s.pod.ip", "ip", "host.name"] {
        let found = processor.enrich(None, &[(key, "10.1.2.3")]);
        assert_eq!(found[1..], expected, "{key}");
    }
    // A host name that is no address, another address, a sender that is not known.
    for (peer, attributes) in [
        (None, vec![("host.name", "web")]),
        (PEER, vec![("k8s.pod.ip", "10.9.9.9")]),
        (Some("10.9.9.9:1"), Vec::new()),
        (None, Vec::new()),
    ] {
        let attributes_before: Vec<String> =
            attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(processor.enrich(peer, &attributes), attributes_before);
    }
}

/// Guarantee: attributes that a resource has stay; those that are empty are set.
#[test]
fn what_a_resource_says_itself_stays() {
    let processor = only_name("").pod(web_pod());
    assert_eq!(processor.enrich(PEER, &[("k8s.pod.name", "mine")]), ["k8s.pod.name=mine"]);
    assert_eq!(processor.enrich(PEER, &[("k8s.pod.name", "")]), [NAME]);
}

/// Guarantee: the first association all of whose facts are there counts, and all of them must be
/// those of the pod.
#[test]
fn associations_are_tried_in_their_order() {
    let processor = only_name(
        "pod_association:\n\
         - sources: [{from: resource_attribute, name: k8s.pod.name},\n    \
           {from: resource_attribute, name: k8s.namespace.name}]\n\
         - sources: [{from: resource_attribute, name: k8s.pod.uid}]\n\
         - sources: [{from: resource_attribute, name: host.name}]\n\
         - sources: [{from: connection}]\n",
    );
    let processor = processor.pod(web_pod());
    let is_found = |peer: Option<&str>, attributes: &[(&str, &str)]| {
        processor.enrich(peer, attributes).contains(&NAME.to_owned())
    };
    let pair = [("k8s.pod.uid", "uid-web"), ("k8s.namespace.name", "shop")];
    assert!(is_found(None, &pair));
    assert!(is_found(PEER, &[("k8s.namespace.name", "shop")]));
    assert!(is_found(None, &[("host.name", "10.1.2.3")]));
    assert!(is_found(PEER, &[("host.name", "no-address")]));
    assert!(!is_found(PEER, &[("k8s.pod.uid", "other")]));
    assert!(!is_found(None, &[("k8s.pod.ip", "10.1.2.3")]));
    let named = [("k8s.pod.name", "web-6c45f8d6f6-x7k2p"), ("k8s.namespace.name", "other")];
    let found = processor.enrich(PEER, &named);
    assert_eq!(found.len(), 2);
}

/// Guarantee: any attribute that is extracted from pods may be a fact.
#[test]
fn extracted_attributes_can_identify_a_pod() {
    let processor = Processor::new(
        "extract: {metadata: [k8s.deployment.name], labels: [{key: app, tag_name: app}]}\n\
         pod_association: [{sources: [{from: resource_attribute, name: app},\n  \
         {from: resource_attribute, name: k8s.deployment.name}]}]\n",
    );
    let processor = processor.pod(web_pod());
    let known = [("app", "web"), ("k8s.deployment.name", "web"), ("k8s.pod.name", "")];
    assert_eq!(processor.enrich(None, &known).len(), 3);
    let processor = Processor::new(
        "extract: {metadata: [k8s.pod.name], labels: [{key: app, tag_name: app}]}\n\
         pod_association: [{sources: [{from: resource_attribute, name: app}]}]\n",
    );
    let processor = processor.pod(web_pod());
    assert_eq!(processor.enrich(None, &[("app", "web")]), ["app=web", NAME]);
}

/// Guarantee: pods in the network of their node are not found by its address, but by their UID.
#[test]
fn pods_in_the_network_of_the_node_have_no_address_of_their_own() {
    let mut pod = web_pod();
    pod["spec"]["hostNetwork"] = true.into();
    let processor = only_name("").pod(pod.clone());
    assert!(processor.enrich(PEER, &[]).is_empty());
    let by_uid = "pod_association: [{sources: [{from: resource_attribute, name: k8s.pod.uid}]}]\n";
    let processor = only_name(by_uid).pod(pod);
    assert_eq!(processor.enrich(None, &[("k8s.pod.uid", "uid-web")]).len(), 2);
}

/// Guarantee: excluded pods, and those that ask for it, give nothing.
#[test]
fn excluded_pods_give_nothing() {
    let found = |yaml: &str, name: &str, annotation: &str| {
        let mut pod = web_pod();
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["annotations"] =
            json!({"opentelemetry.io/k8s-processor/ignore": annotation});
        !only_name(yaml).pod(pod).enrich(PEER, &[]).is_empty()
    };
    assert!(found("", "web", ""));
    assert!(!found("", "jaeger-agent-1", ""));
    assert!(!found("", "web", " True "));
    let own = "exclude: {pods: [{name: '^web$'}]}\n";
    assert!(!found(own, "web", "false"));
    assert!(found(own, "web-2", ""));
    assert!(found(own, "jaeger-agent", ""));
}

/// Scenario: a pod ends, and another one gets its address. Guarantee: late telemetry of the first
/// one is its own until then, and for the grace; without a grace not at all.
#[test]
fn pods_that_are_gone_are_known_for_a_while() {
    let processor = only_name("").pod(web_pod());
    processor.pod_event(Event::Deleted(web_pod()));
    assert_eq!(processor.enrich(PEER, &[]), [NAME]);
    let mut next = web_pod();
    next["metadata"]["name"] = "next".into();
    next["metadata"]["uid"] = "uid-next".into();
    next["status"]["startTime"] = "2026-11-28T08:00:00Z".into();
    processor.pod_event(Event::Added(next));
    assert_eq!(processor.enrich(PEER, &[]), ["k8s.pod.name=next"]);
    let processor = only_name("pod_delete_grace_period: 0s\n").pod(web_pod());
    processor.pod_event(Event::Deleted(web_pod()));
    std::thread::sleep(Duration::from_millis(2));
    processor.pod_event(Event::Restarted);
    assert!(processor.enrich(PEER, &[]).is_empty());
}

/// Guarantee: with `passthrough` a resource gets the address only, and with `k8s.pod.ip` the one
/// that counts as the sender's.
#[test]
fn the_address_is_added_where_it_is_asked_for() {
    let processor = Processor::new("passthrough: true").pod(web_pod());
    assert_eq!(processor.enrich(Some("10.7.7.7:1"), &[]), ["k8s.pod.ip=10.7.7.7"]);
    assert_eq!(processor.enrich(None, &[("ip", "10.8.8.8")])[1], "k8s.pod.ip=10.8.8.8");
    assert!(processor.enrich(None, &[]).is_empty());
    let processor = Processor::new("extract: {metadata: [k8s.pod.ip]}").pod(web_pod());
    assert_eq!(processor.enrich(PEER, &[]), ["k8s.pod.ip=10.1.2.3"]);
    assert_eq!(processor.enrich(Some("10.9.9.9:1"), &[]), ["k8s.pod.ip=10.9.9.9"]);
}
