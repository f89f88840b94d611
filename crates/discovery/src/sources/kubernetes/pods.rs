//! The role `pod`: a target for each port of each container.

use sluice_kubernetes::objects::{Container, ContainerPort, Pod};

use super::names::{Set, host_port};
use super::state::State;
use crate::group::Group;

pub(super) fn group(state: &State, pod: &Pod) -> Group {
    let (meta, address) = (&pod.metadata, &pod.status.pod_ip);
    let mut group = Group { key: format!("pod/{}", meta.key()).into(), ..Group::default() };
    // A node that no selector means.
    let is_left_out = state.attach_node && state.nodes.get(&pod.spec.node_name).is_none();
    if address.is_empty() || is_left_out {
        return group;
    }
    let mut labels = state.names.set();
    add_pod(&mut labels, state, pod);
    labels.add_namespace(state, &meta.namespace);
    labels.add_node(state, &pod.spec.node_name);
    group.labels = labels.labels();
    for (container, is_init) in containers(pod) {
        let id = container_id(pod, container, is_init);
        let target = |port: Option<&ContainerPort>| {
            let mut target = state.names.set();
            let own = port.map(|port| host_port(address, port.container_port));
            target.address(own.as_deref().unwrap_or(address));
            target.add("pod_container_id", id);
            add_container(&mut target, container, is_init, port);
            target.labels()
        };
        if container.ports.is_empty() {
            // Rules give it a port.
            group.targets.push(target(None));
        }
        group.targets.extend(container.ports.iter().map(|port| target(Some(port))));
    }
    group
}

/// Containers, and then those that begin first and end.
pub(super) fn containers(pod: &Pod) -> impl Iterator<Item = (&Container, bool)> {
    let own = pod.spec.containers.iter().map(|container| (container, false));
    own.chain(pod.spec.init_containers.iter().map(|container| (container, true)))
}

fn container_id<'a>(pod: &'a Pod, container: &Container, is_init: bool) -> &'a str {
    let status = &pod.status;
    let statuses =
        if is_init { &status.init_container_statuses } else { &status.container_statuses };
    let found = statuses.iter().find(|status| status.name == container.name);
    found.map_or("", |status| &status.container_id)
}

pub(super) fn add_container(
    target: &mut Set<'_>,
    container: &Container,
    is_init: bool,
    port: Option<&ContainerPort>,
) {
    target.add("pod_container_name", &container.name);
    target.add("pod_container_image", &container.image);
    target.add("pod_container_init", if is_init { "true" } else { "false" });
    if let Some(port) = port {
        target.add("pod_container_port_name", &port.name);
        target.add("pod_container_port_number", &port.container_port.to_string());
        target.add("pod_container_port_protocol", &port.protocol);
    }
}

/// The labels of a pod, its namespace left out.
pub(super) fn add_pod(labels: &mut Set<'_>, state: &State, pod: &Pod) {
    let (meta, status) = (&pod.metadata, &pod.status);
    let ready = status.conditions.iter().find(|condition| &*condition.kind == "Ready");
    let ready = ready.map_or("unknown".to_owned(), |ready| ready.status.to_lowercase());
    labels.add("pod_ip", &status.pod_ip);
    labels.add("pod_ready", &ready);
    labels.add("pod_phase", &status.phase);
    labels.add("pod_node_name", &pod.spec.node_name);
    labels.add("pod_host_ip", &status.host_ip);
    labels.add("pod_uid", &meta.uid);
    labels.add_meta("pod", meta);
    let Some(controller) = meta.controller() else { return };
    labels.add("pod_controller_kind", &controller.kind);
    labels.add("pod_controller_name", &controller.name);
    let key = format!("{}/{}", meta.namespace, controller.name);
    let (owner, kind, name) = match &*controller.kind {
        "ReplicaSet" if state.attach_deployment => {
            (state.replica_sets.get(&key), "Deployment", "pod_deployment_name")
        }
        "Job" => {
            if state.attach_job {
                labels.add("pod_job_name", &controller.name);
            }
            let job = state.jobs.get(&key).filter(|_| state.attach_cron_job);
            (job, "CronJob", "pod_cronjob_name")
        }
        _ => return,
    };
    let owner = owner.and_then(|owner| owner.metadata.controller());
    if let Some(owner) = owner.filter(|owner| &*owner.kind == kind) {
        labels.add(name, &owner.name);
    }
}
