//! Objects that keep a number of pods: deployments, replica sets and others.

use sluice_kubernetes::objects::Meta;
use sluice_kubernetes::objects::observed::{DaemonSet, Workload};

use super::super::recorder::Recorder;
use super::super::tables::{Attribute, Metric};

pub(super) fn deployment(it: &Workload, out: &mut Recorder<'_>) {
    begin(&it.metadata, "k8s.deployment", Attribute::DeploymentUid, Attribute::DeploymentName, out);
    if let Some(replicas) = it.spec.replicas {
        out.int(Metric::DeploymentDesired, replicas);
    }
    out.int(Metric::DeploymentAvailable, it.status.available_replicas);
    out.finish();
}

pub(super) fn replica_set(it: &Workload, out: &mut Recorder<'_>) {
    begin(&it.metadata, "k8s.replicaset", Attribute::ReplicaSetUid, Attribute::ReplicaSetName, out);
    if let Some(replicas) = it.spec.replicas {
        out.int(Metric::ReplicaSetDesired, replicas);
        out.int(Metric::ReplicaSetAvailable, it.status.available_replicas);
    }
    out.finish();
}

pub(super) fn replication_controller(it: &Workload, out: &mut Recorder<'_>) {
    let (uid, name) = (Attribute::ReplicationControllerUid, Attribute::ReplicationControllerName);
    begin(&it.metadata, "k8s.replicationcontroller", uid, name, out);
    if let Some(replicas) = it.spec.replicas {
        out.int(Metric::ReplicationControllerDesired, replicas);
        out.int(Metric::ReplicationControllerAvailable, it.status.available_replicas);
    }
    out.finish();
}

pub(super) fn stateful_set(it: &Workload, out: &mut Recorder<'_>) {
    let (uid, name) = (Attribute::StatefulSetUid, Attribute::StatefulSetName);
    begin(&it.metadata, "k8s.statefulset", uid, name, out);
    if let Some(replicas) = it.spec.replicas {
        out.int(Metric::StatefulSetDesiredPods, replicas);
        out.int(Metric::StatefulSetReadyPods, it.status.ready_replicas);
        out.int(Metric::StatefulSetCurrentPods, it.status.current_replicas);
        out.int(Metric::StatefulSetUpdatedPods, it.status.updated_replicas);
        out.int(Metric::StatefulSetPodAvailable, it.status.available_replicas);
    }
    out.finish();
}

pub(super) fn daemon_set(it: &DaemonSet, out: &mut Recorder<'_>) {
    begin(&it.metadata, "k8s.daemonset", Attribute::DaemonSetUid, Attribute::DaemonSetName, out);
    out.int(Metric::DaemonSetCurrentScheduledNodes, it.status.current_number_scheduled);
    out.int(Metric::DaemonSetDesiredScheduledNodes, it.status.desired_number_scheduled);
    out.int(Metric::DaemonSetMisscheduledNodes, it.status.number_misscheduled);
    out.int(Metric::DaemonSetReadyNodes, it.status.number_ready);
    out.finish();
}

/// The resource that an object of a namespace is.
pub(super) fn begin(
    meta: &Meta,
    kind: &str,
    uid: Attribute,
    name: Attribute,
    out: &mut Recorder<'_>,
) {
    out.entity(kind, (uid, &meta.uid), &[(name, &meta.name)]);
    out.attribute(Attribute::NamespaceName, &meta.namespace);
}
