//! Attributes of pods and of the objects around them.

use super::*;

const PEER: Option<&str> = Some("10.1.2.3:4711");

fn found(yaml: &str, pod: Json) -> Vec<String> {
    Processor::new(yaml).pod(pod).enrich(PEER, &[])
}

/// A pod with these owners and labels, created at this time.
fn pod(name: &str, owners: Json, labels: Json) -> Json {
    let mut pod = web_pod();
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["ownerReferences"] = owners;
    pod["metadata"]["labels"] = labels;
    pod["metadata"]["annotations"] = json!({});
    pod
}

fn owner(kind: &str, name: &str) -> Json {
    json!([{"kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true}])
}

fn object(name: &str, owner: Json) -> Json {
    json!({"metadata": {
        "name": name, "uid": format!("uid-{name}"), "ownerReferences": owner,
        "labels": {"l": format!("label of {name}"), "empty": ""},
        "annotations": {"a": format!("annotation of {name}")},
    }})
}

/// Guarantee: every kind of owner gives its name and UID where they are asked for.
#[test]
fn owners_give_names_and_uids() {
    let all = "extract: {metadata: [k8s.replicaset.uid, k8s.replicaset.name, k8s.daemonset.uid, \
               k8s.daemonset.name, k8s.statefulset.uid, k8s.statefulset.name, k8s.job.uid, \
               k8s.job.name, k8s.deployment.name, k8s.cronjob.name]}";
    for (kind, key) in [("DaemonSet", "daemonset"), ("StatefulSet", "statefulset"), ("Job", "job")]
    {
        let expected = [format!("k8s.{key}.uid=uid-x"), format!("k8s.{key}.name=x")];
        assert_eq!(found(all, pod("x-1", owner(kind, "x"), json!({}))), expected, "{kind}");
    }
    let labels = json!({"pod-template-hash": "abc"});
    assert_eq!(
        found(all, pod("x-1", owner("ReplicaSet", "x-abc"), labels.clone())),
        ["k8s.replicaset.uid=uid-x-abc", "k8s.replicaset.name=x-abc", "k8s.deployment.name=x"]
    );
    for (name, labels) in [("x-abc", json!({})), ("x-abd", labels.clone()), ("-abc", labels)] {
        let found = found(all, pod("x-1", owner("ReplicaSet", name), labels));
        assert_eq!(found.len(), 2, "{found:?}");
    }
    assert!(found(all, pod("x-1", owner("Foo", "x"), json!({}))).is_empty());
}

/// Guarantee: a job's name tells its cron job only if its number is a minute near the time of the
/// pod.
#[test]
fn the_names_of_jobs_tell_their_cron_jobs() {
    let yaml = "extract: {metadata: [k8s.cronjob.name]}";
    // 2026-11-28T07:00:00Z is 29930820 minutes after 1970.
    for (job, cron_job) in [
        ("backup-29930820", Some("backup")),
        ("back-up-29929400", Some("back-up")),
        ("backup-29929300", None),
        ("backup-20261128", None),
        ("backup-2993082", None),
        ("backup", None),
    ] {
        let expected: Vec<String> =
            cron_job.iter().map(|name| format!("k8s.cronjob.name={name}")).collect();
        assert_eq!(found(yaml, pod("x", owner("Job", job), json!({}))), expected, "{job}");
    }
}

/// Guarantee: with `k8s.deployment.uid` or `k8s.cronjob.uid`, names and UIDs are those that the
/// replica sets and jobs say, whenever they come.
#[test]
fn deployments_and_cron_jobs_are_looked_up() {
    let yaml = "extract: {metadata: [k8s.deployment.name, k8s.deployment.uid]}";
    let replica_set = object("odd", owner("Deployment", "web"));
    let of_set = pod("x", owner("ReplicaSet", "odd"), json!({}));
    let expected = ["k8s.deployment.name=web", "k8s.deployment.uid=uid-web"];
    let processor = Processor::new(yaml).related(From::ReplicaSet, replica_set.clone());
    assert_eq!(processor.pod(of_set.clone()).enrich(PEER, &[]), expected);
    let late = Processor::new(yaml).pod(of_set).related(From::ReplicaSet, replica_set);
    assert_eq!(late.enrich(PEER, &[]), expected[1..]);

    let yaml = "extract: {metadata: [k8s.cronjob.name, k8s.cronjob.uid, service.name]}";
    let job = object("odd", owner("CronJob", "nightly"));
    let processor = Processor::new(yaml).related(From::Job, job);
    let processor = processor.pod(pod("x", owner("Job", "odd"), json!({})));
    assert_eq!(
        processor.enrich(PEER, &[]),
        ["service.name=nightly", "k8s.cronjob.name=nightly", "k8s.cronjob.uid=uid-nightly"]
    );
    // A replica set without a deployment has none, whatever its name.
    let yaml = "extract: {metadata: [k8s.deployment.name, k8s.deployment.uid]}";
    let processor = Processor::new(yaml).related(From::ReplicaSet, object("x-abc", json!([])));
    let labels = json!({"pod-template-hash": "abc"});
    let processor = processor.pod(pod("x", owner("ReplicaSet", "x-abc"), labels));
    assert!(processor.enrich(PEER, &[]).is_empty());
}

/// Guarantee: labels and annotations of every kind of object become attributes, with the default
/// names of the Collector, also without a pod where the resource names the object.
#[test]
fn labels_and_annotations_of_all_kinds_are_added() {
    for (from, name, owner_kind, plural) in [
        (From::Namespace, "namespace", None, "s"),
        (From::Node, "node", None, "s"),
        (From::ReplicaSet, "replicaset", Some("ReplicaSet"), ""),
        (From::StatefulSet, "statefulset", Some("StatefulSet"), ""),
        (From::DaemonSet, "daemonset", Some("DaemonSet"), ""),
        (From::Job, "job", Some("Job"), ""),
    ] {
        let yaml = format!(
            "extract:\n  metadata: []\n  labels: [{{key: l, from: {name}}}]\n  \
             annotations: [{{key: a, from: {name}, tag_name: mine}}]\n"
        );
        let object_name = match from {
            From::Namespace => "shop",
            From::Node => "node-1",
            _ => "x",
        };
        let owners = owner_kind.map_or(json!([]), |kind| owner(kind, "x"));
        let processor = Processor::new(&yaml).related(from, object(object_name, json!([])));
        let processor = processor.pod(pod("p", owners, json!({})));
        let expected = [
            format!("k8s.{name}.label{plural}.l=label of {object_name}"),
            format!("mine=annotation of {object_name}"),
        ];
        assert_eq!(processor.enrich(PEER, &[]), expected, "{name}");
        let (key, value) = match owner_kind {
            None => (format!("k8s.{name}.name"), object_name.to_owned()),
            Some(_) => (format!("k8s.{name}.uid"), "uid-x".to_owned()),
        };
        assert_eq!(processor.enrich(None, &[(&key, &value)])[1..], expected, "{name}");
    }
}

/// Guarantee: labels of a deployment or a cron job come by way of the object between.
#[test]
fn labels_of_the_owners_owner_are_added() {
    for (from, name, between, kind) in [
        (From::Deployment, "deployment", From::ReplicaSet, "ReplicaSet"),
        (From::CronJob, "cronjob", From::Job, "Job"),
    ] {
        let owner_kind = if from == From::Deployment { "Deployment" } else { "CronJob" };
        let yaml = format!("extract: {{metadata: [], labels: [{{key: l, from: {name}}}]}}");
        let processor = Processor::new(&yaml)
            .related(between, object("x", owner(owner_kind, "top")))
            .related(from, object("top", json!([])))
            .pod(pod("p", owner(kind, "x"), json!({})));
        let expected = format!("k8s.{name}.label.l=label of top");
        assert_eq!(processor.enrich(PEER, &[]), std::slice::from_ref(&expected));
        let uid = format!("k8s.{name}.uid");
        assert_eq!(processor.enrich(None, &[(&uid, "uid-top")])[1], expected);
    }
}

/// Guarantee: a `key_regex` matches whole keys, its groups make names, and empty values are left
/// out; a `key` takes them.
#[test]
fn keys_are_matched_by_regular_expressions() {
    let labels = json!({"app.kubernetes.io/name": "n", "app.kubernetes.io/part": "p", "x": ""});
    for (rule, expected) in [
        ("{key_regex: 'app.kubernetes.io/(.*)', tag_name: 'k.$1'}", vec!["k.name=n", "k.part=p"]),
        ("{key_regex: 'app.kubernetes.io/(?P<it>n.*)', tag_name: '${it}'}", vec!["name=n"]),
        ("{key_regex: 'kubernetes.*', tag_name: y}", vec![]),
        ("{key_regex: '.*/name', tag_name: y}", vec!["k8s.pod.labels.app.kubernetes.io/name=n"]),
        ("{key_regex: x}", vec![]),
        ("{key: x}", vec!["k8s.pod.labels.x="]),
        ("{key: absent, tag_name: y}", vec![]),
        ("{key: app.kubernetes.io/name, tag_name: y}", vec!["y=n"]),
    ] {
        let yaml = format!("extract: {{metadata: [], labels: [{rule}]}}");
        let rule_found = found(&yaml, pod("p", json!([]), labels.clone()));
        assert_eq!(rule_found, expected, "{rule}");
    }
}

/// Guarantee: of the names that a service may have, the most specific one counts.
#[test]
fn the_service_is_named_as_specifically_as_possible() {
    let yaml = "extract: {otel_annotations: true, metadata: [service.namespace, service.name, \
                service.version]}";
    let replica_set = owner("ReplicaSet", "x-abc");
    let labels = |more: &[(&str, &str)]| {
        let mut labels = json!({"pod-template-hash": "abc"});
        more.iter().for_each(|(key, value)| labels[*key] = (*value).into());
        labels
    };
    let name = ("app.kubernetes.io/name", "by-name");
    let instance = ("app.kubernetes.io/instance", "by-instance");
    let version = ("app.kubernetes.io/version", "2");
    for (pod, expected) in [
        (pod("alone", json!([]), json!({})), vec!["service.name=alone"]),
        (pod("p", owner("StatefulSet", "db"), json!({})), vec!["service.name=db"]),
        (pod("p", replica_set.clone(), json!({})), vec!["service.name=x-abc"]),
        (pod("p", replica_set.clone(), labels(&[])), vec!["service.name=x"]),
        (pod("p", replica_set.clone(), labels(&[name])), vec!["service.name=by-name"]),
        (
            pod("p", replica_set, labels(&[name, instance, version])),
            vec!["service.name=by-instance", "service.version=2"],
        ),
    ] {
        let mut found = found(yaml, pod);
        assert_eq!(found.remove(1), "service.namespace=shop");
        assert_eq!(found, expected);
    }
    let mut annotated = pod("p", json!([]), labels(&[name]));
    annotated["metadata"]["annotations"] = json!({
        "resource.opentelemetry.io/service.name": "said", "resource.opentelemetry.io/x.y": "z",
        "resource.opentelemetry.io/": "none", "other": "none",
    });
    let found = found(yaml, annotated);
    assert_eq!(found, ["service.name=said", "service.namespace=shop", "x.y=z"]);
}

/// Guarantee: the UIDs of the node and of the cluster are added where they are asked for.
#[test]
fn the_uids_of_node_and_cluster_are_added() {
    let yaml = "extract: {metadata: [k8s.node.uid, k8s.cluster.uid, k8s.pod.hostname]}";
    let processor = Processor::new(yaml)
        .related(From::Node, object("node-1", json!([])))
        .related(From::Namespace, object("kube-system", json!([])))
        .pod(web_pod());
    let expected =
        ["k8s.pod.hostname=web-host", "k8s.cluster.uid=uid-kube-system", "k8s.node.uid=uid-node-1"];
    assert_eq!(processor.enrich(PEER, &[]), expected);
    let by_name = processor.enrich(None, &[("k8s.node.name", "node-1")]);
    assert_eq!(by_name[1], "k8s.node.uid=uid-node-1");
}
