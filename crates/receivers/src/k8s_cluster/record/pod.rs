//! Pods and their containers.

use sluice_kubernetes::objects::observed::{Amounts, ContainerSpec, ObservedPod};
use sluice_kubernetes::{Image, Quantity};

use super::super::recorder::{Recorder, Value};
use super::super::tables::{Attribute, Metric};

const PHASES: [&str; 5] = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];
const REASONS: [&str; 6] =
    ["Evicted", "NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError", ""];
const STATES: [&str; 3] = ["running", "waiting", "terminated"];
/// Reasons of states of containers that are told.
const STATE_REASONS: [&str; 9] = [
    "ContainerCreating",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "ImagePullBackOff",
    "OOMKilled",
    "Completed",
    "Error",
    "ContainerCannotRun",
];

pub(super) fn record(pod: &ObservedPod, out: &mut Recorder<'_>) {
    let (meta, status) = (&pod.metadata, &pod.status);
    let id = (Attribute::PodUid, &*meta.uid);
    let descriptions =
        [(Attribute::PodName, &*meta.name), (Attribute::PodQosClass, &*status.qos_class)];
    out.entity("k8s.pod", id, &descriptions);
    out.attribute(Attribute::NamespaceName, &meta.namespace);
    out.attribute(Attribute::NodeName, &pod.spec.node_name);
    out.int(Metric::PodPhase, number_of(&status.phase, &PHASES));
    out.int(Metric::PodStatusReason, number_of(&status.reason, &REASONS));
    out.finish();
    pod.spec.containers.iter().for_each(|container| record_container(pod, container, out));
}

/// The place of a text, beginning at 1; the last one stands for all others.
fn number_of(text: &str, texts: &[&str]) -> i64 {
    let at = texts.iter().position(|it| *it == text).unwrap_or(texts.len() - 1);
    at as i64 + 1
}

fn record_container(pod: &ObservedPod, container: &ContainerSpec, out: &mut Recorder<'_>) {
    let mut statuses = pod.status.container_statuses.iter();
    let status = statuses.find(|status| status.name == container.name);
    let image = status.and_then(|status| Image::parse(&status.image));
    let (repository, tag) =
        image.map_or(("", ""), |image| (image.repository, image.tag.unwrap_or("latest")));
    let ended = status.and_then(|status| status.last_state.terminated.as_ref());
    let id = status.map_or("", |status| without_runtime(&status.container_id));
    let descriptions = [
        (Attribute::ContainerName, &*container.name),
        (Attribute::ContainerImageName, repository),
        (Attribute::ContainerImageTag, tag),
        (Attribute::ContainerStatusLastTerminatedReason, ended.map_or("", |ended| &*ended.reason)),
    ];
    out.entity("k8s.container", (Attribute::ContainerId, id), &descriptions);
    out.attribute(Attribute::PodUid, &pod.metadata.uid);
    out.attribute(Attribute::PodName, &pod.metadata.name);
    out.attribute(Attribute::NamespaceName, &pod.metadata.namespace);
    out.attribute(Attribute::NodeName, &pod.spec.node_name);
    let (requests, limits) = (&container.resources.requests, &container.resources.limits);
    record_amounts(
        requests,
        [
            Metric::ContainerCpuRequest,
            Metric::ContainerMemoryRequest,
            Metric::ContainerStorageRequest,
            Metric::ContainerEphemeralStorageRequest,
        ],
        out,
    );
    record_amounts(
        limits,
        [
            Metric::ContainerCpuLimit,
            Metric::ContainerMemoryLimit,
            Metric::ContainerStorageLimit,
            Metric::ContainerEphemeralStorageLimit,
        ],
        out,
    );
    if let Some(status) = status {
        out.int(Metric::ContainerRestarts, status.restart_count);
        out.int(Metric::ContainerReady, i64::from(status.ready));
        let state = &status.state;
        let is_in = [state.running.is_some(), state.waiting.is_some(), state.terminated.is_some()];
        if is_in.contains(&true) {
            for (name, is_in) in STATES.iter().zip(is_in) {
                let attributes = [("k8s.container.status.state", *name)];
                out.point(Metric::ContainerStatusState, Value::Int(i64::from(is_in)), &attributes);
            }
        }
        let reason = state.terminated.as_ref().or(state.waiting.as_ref());
        let reason = reason.map_or("", |it| &*it.reason);
        for name in STATE_REASONS {
            let value = Value::Int(i64::from(name == reason));
            let attributes = [("k8s.container.status.reason", name)];
            out.point(Metric::ContainerStatusReason, value, &attributes);
        }
    }
    out.finish();
}

fn record_amounts(
    amounts: &Amounts,
    [cpu, memory, storage, ephemeral]: [Metric; 4],
    out: &mut Recorder<'_>,
) {
    if let Some(amount) = amounts.cpu {
        out.double(cpu, cores(amount));
    }
    for (metric, amount) in [
        (memory, amounts.memory),
        (storage, amounts.storage),
        (ephemeral, amounts.ephemeral_storage),
    ] {
        if let Some(amount) = amount {
            out.int(metric, amount.units());
        }
    }
}

pub(super) fn cores(amount: Quantity) -> f64 {
    amount.thousandths() as f64 / 1000.0
}

/// The id alone: `containerd://ID`.
fn without_runtime(id: &str) -> &str {
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"_-".contains(&it))
    };
    id.split_once("://").filter(|(runtime, _)| is_name(runtime)).map_or(id, |(_, id)| id)
}
