//! The options: what is refused, and which objects are watched.

use super::*;

/// Guarantee: what the Collector refuses is refused at its place, with a reason.
#[test]
fn mistakes_are_named() {
    for (yaml, place, reason) in [
        ("extract: {metadata: [k8s.cluster.name]}", "extract.metadata", "no attribute that can be"),
        ("extract: {labels: [{key: a, key_regex: b}]}", "key_regex", "cannot be given both"),
        ("extract: {labels: [{key_regex: '['}]}", "key_regex", "cannot be used"),
        ("extract: {annotations: [{key: a, from: unknown}]}", "from", "must be one of"),
        ("filter: {labels: [{key: a, op: unknown}]}", "op", "must be one of"),
        ("filter: {fields: [{key: a, op: exists}]}", "op", "must be one of"),
        ("filter: {node_from_env_var: SLUICE_ABSENT_NODE}", "node_from_env_var", "is not set"),
        ("auth_type: tls", "auth_type", "must be one of"),
        ("pod_delete_grace_period: -30s", "pod_delete_grace_period", ""),
        ("watch_sync_period: -20s", "watch_sync_period", ""),
        (
            "pod_association: [{sources: [{from: resource_attribute}]}]",
            "sources",
            "name` is required",
        ),
        (
            "pod_association: [{sources: [{from: connection}, {from: resource_attribute, name: a}, \
             {from: resource_attribute, name: b}, {from: resource_attribute, name: c}, \
             {from: resource_attribute, name: d}]}]",
            "sources",
            "at most 4",
        ),
        (
            "pod_association: [{sources: [{from: connection}, {from: resource_attribute, name: a}]}, \
             {sources: [{from: resource_attribute, name: a}, {from: connection}]}]",
            "pod_association",
            "the same sources twice",
        ),
        ("exclude: {pods: [{name: '('}]}", "name", "regular expression"),
    ] {
        let (_, diagnostics) = read_text("p", yaml, Options::read);
        let said = diagnostics.render(false);
        assert!(diagnostics.has_errors(), "{yaml}");
        assert!(said.contains(place) && said.contains(reason), "{yaml}: {said}");
    }
}

/// Guarantee: options without effect say so.
#[test]
fn options_without_effect_say_so() {
    for yaml in ["kube_api_qps: 5", "kube_api_burst: 9", "watch_sync_period: 20s", "context: a"] {
        let (_, diagnostics) = read_text("p", yaml, Options::read);
        let said = diagnostics.render(false);
        assert!(!diagnostics.has_errors() && said.contains("has no effect"), "{yaml}: {said}");
    }
    let (_, diagnostics) = read_text("p", "watch_sync_period: 0s", Options::read);
    assert_eq!(diagnostics.render(false), "");
}

/// Guarantee: only objects that the options need are asked for, with the selectors that they name.
#[test]
fn only_needed_objects_are_watched() {
    let asked = |yaml: &str| {
        let processor = Processor::new(yaml);
        let queries = queries(&processor.options).into_iter();
        let shown = queries.map(|(_, it)| format!("{it}?{}&{}", it.labels, it.fields));
        shown.collect::<Vec<_>>()
    };
    assert_eq!(asked("{}"), ["pods?&"]);
    assert_eq!(
        asked(
            "filter:\n  node: n1\n  namespace: ns\n  labels: [{key: a, value: b}, \
             {key: c, value: d, op: not-equals}, {key: e, op: exists},\n    \
             {key: f, op: does-not-exist}]\n  \
             fields: [{key: status.phase, value: 'x,y', op: not-equals}]\n\
             extract: {metadata: [k8s.node.uid, k8s.cluster.uid, k8s.deployment.uid]}\n"
        ),
        [
            "namespaces?&metadata.name=kube-system",
            "nodes?&metadata.name=n1",
            "replicasets of the namespace ns?&",
            r"pods of the namespace ns?a=b,c!=d,e,!f&status.phase!=x\,y,spec.nodeName=n1",
        ]
    );
    for (from, objects) in [
        ("namespace", vec!["namespaces"]),
        ("node", vec!["nodes"]),
        ("deployment", vec!["replicasets", "deployments"]),
        ("replicaset", vec!["replicasets"]),
        ("statefulset", vec!["statefulsets"]),
        ("daemonset", vec!["daemonsets"]),
        ("job", vec!["jobs"]),
        ("cronjob", vec!["jobs", "cronjobs"]),
    ] {
        let asked = asked(&format!("extract: {{labels: [{{key: a, from: {from}}}]}}"));
        let expected = objects.into_iter().chain(["pods"]).map(|name| format!("{name}?&"));
        assert_eq!(asked, expected.collect::<Vec<_>>(), "{from}");
    }
}

/// Guarantee: another fingerprint for each option that changes what is added, and only then.
#[test]
fn the_fingerprint_follows_the_effect() {
    let fingerprint = |yaml: &str| {
        let mut fingerprint = crate::fingerprint::Fingerprint::new("k8s_attributes");
        Processor::new(yaml).options.fingerprint(&mut fingerprint);
        fingerprint.finish()
    };
    let base = fingerprint("{}");
    assert_eq!(base, fingerprint("wait_for_metadata: true"));
    for yaml in [
        "auth_type: none",
        "passthrough: true",
        "extract: {metadata: [k8s.pod.name]}",
        "extract: {labels: [{key: a}]}",
        "extract: {otel_annotations: true}",
        "filter: {namespace: a}",
        "filter: {labels: [{key: a}]}",
        "pod_association: [{sources: [{from: connection}]}]",
        "exclude: {pods: [{name: a}]}",
        "pod_delete_grace_period: 1s",
    ] {
        assert_ne!(base, fingerprint(yaml), "{yaml}");
    }
}
