//! Attributes of containers.

use super::*;

const PEER: Option<&str> = Some("10.1.2.3:4711");
const ALL: &str = "extract: {metadata: [k8s.container.name, container.id, container.image.name, \
                   container.image.tag, container.image.tags, container.image.repo_digests, \
                   service.version, service.instance.id]}";
const DIGEST: &str = "sha256:dbc66f8c46d4cf4793527ca0737d73527a2bb830019953c2371b5f45f515f1a8";

fn pod() -> Json {
    let mut pod = web_pod();
    pod["metadata"]["annotations"] = json!({});
    pod["spec"]["containers"] = json!([
        {"name": "main", "image": "ghcr.io/x/main:1.2"}, {"name": "side", "image": "side"},
    ]);
    pod["spec"]["initContainers"] = json!([{"name": "first", "image": "bad image"}]);
    pod["status"]["containerStatuses"] = json!([
        {"name": "main", "containerID": "containerd://id-main", "restartCount": 2,
         "imageID": format!("docker-pullable://side@{DIGEST}")},
        {"name": "side", "containerID": "id-side", "restartCount": 0, "imageID": "side"},
    ]);
    pod
}

fn main() -> Vec<String> {
    [
        "container.image.name=ghcr.io/x/main",
        "container.image.tag=1.2",
        "container.image.tags=[1.2]",
        "service.instance.id=shop.web-6c45f8d6f6-x7k2p.main",
        "service.version=1.2",
    ]
    .map(str::to_owned)
    .into()
}

/// Guarantee: the container is the one that the resource names or whose id it has; its run is the
/// one that `k8s.container.restart_count` tells, or the present one.
#[test]
fn the_container_is_the_one_that_the_resource_names() {
    let processor = Processor::new(ALL).pod(pod());
    let digest = format!("container.image.repo_digests=[docker.io/library/side@{DIGEST}]");
    let running = ["container.id=id-main".to_owned(), digest];
    let by_name = processor.enrich(PEER, &[("k8s.container.name", "main")]);
    assert_eq!(by_name[1..], [main(), running.to_vec()].concat());
    let by_id = processor.enrich(PEER, &[("container.id", "id-main")]);
    let name = vec!["k8s.container.name=main".to_owned()];
    assert_eq!(by_id[1..], [name, main(), running[1..].to_vec()].concat());
    let value = |text: &str| Value::StringValue(text.to_owned());
    for (count, is_present) in [
        (Value::IntValue(2), true),
        (value("2"), true),
        (Value::IntValue(1), false),
        (value("two"), false),
    ] {
        let attributes = vec![
            ("k8s.container.name".to_owned(), value("main")),
            ("k8s.container.restart_count".to_owned(), count),
        ];
        let found = processor.enrich_values(PEER, attributes);
        assert_eq!(found.contains(&running[0]), is_present);
    }
    // Several containers, and one that is not there.
    assert!(processor.enrich(PEER, &[]).is_empty());
    assert_eq!(processor.enrich(PEER, &[("k8s.container.name", "x")]).len(), 1);
    // An image without a tag; one whose name cannot be read, of a container that has ended.
    let side = processor.enrich(PEER, &[("k8s.container.name", "side")]);
    assert_eq!(side[1..3], ["container.image.name=side", "container.image.tag=latest"]);
    assert!(!side.iter().any(|line| line.starts_with("service.version")));
    assert_eq!(processor.enrich(PEER, &[("k8s.container.name", "first")]).len(), 1);
}

/// Guarantee: the only container of a pod need not be named, and a container's id finds its pod.
#[test]
fn the_only_container_need_not_be_named() {
    let mut pod = pod();
    pod["spec"]["containers"] = json!([{"name": "main", "image": "ghcr.io/x/main:1.2"}]);
    pod["spec"]["initContainers"] = Json::Null;
    pod["status"]["containerStatuses"] =
        json!([{"name": "main", "containerID": "containerd://id-main", "restartCount": 0}]);
    let processor = Processor::new("extract: {metadata: [container.image.name]}").pod(pod.clone());
    assert_eq!(processor.enrich(PEER, &[]), ["container.image.name=ghcr.io/x/main"]);
    let processor = Processor::new(
        "extract: {metadata: [k8s.pod.uid, k8s.container.name]}\n\
         pod_association: [{sources: [{from: resource_attribute, name: container.id}]}]\n",
    );
    let processor = processor.pod(pod);
    let found = processor.enrich(None, &[("container.id", "id-main")]);
    assert_eq!(found[1..], ["k8s.pod.uid=uid-web", "k8s.container.name=main"]);
}
