//! Objects to metrics: a file for each kind of objects, or for those that are alike.

mod autoscaler;
mod job;
mod namespace;
mod node;
mod pod;
mod quota;
mod service;
mod volume;
mod workload;

use std::sync::Arc;

use sluice_kubernetes::Indexed;
use sluice_kubernetes::objects::observed::{
    Autoscaler, Claim, ClusterQuota, CronJob, DaemonSet, Heap as _, Job, Namespace, ObservedNode,
    ObservedPod, ObservedService, ResourceQuota, ServiceSlice, Volume, Workload,
};
use sluice_kubernetes::objects::{Meta, Object as _};

use super::recorder::Recorder;
pub(super) use node::NodeMetrics;
pub(super) use service::{Endpoints, SERVICE_NAME};

/// An object as it is kept.
#[derive(Debug)]
pub(super) enum Kept {
    Pod(ObservedPod),
    Node(ObservedNode),
    Namespace(Namespace),
    Deployment(Workload),
    ReplicaSet(Workload),
    StatefulSet(Workload),
    ReplicationController(Workload),
    DaemonSet(DaemonSet),
    Job(Job),
    CronJob(CronJob),
    Autoscaler(Autoscaler),
    ResourceQuota(ResourceQuota),
    ClusterQuota(ClusterQuota),
    Service(ObservedService),
    Slice(ServiceSlice),
    Volume(Volume),
    Claim(Claim),
}

/// Runs an expression with what a [`Kept`] has.
macro_rules! each {
    ($kept:expr, $object:ident => $run:expr) => {
        match $kept {
            Kept::Pod($object) => $run,
            Kept::Node($object) => $run,
            Kept::Namespace($object) => $run,
            Kept::Deployment($object)
            | Kept::ReplicaSet($object)
            | Kept::StatefulSet($object)
            | Kept::ReplicationController($object) => $run,
            Kept::DaemonSet($object) => $run,
            Kept::Job($object) => $run,
            Kept::CronJob($object) => $run,
            Kept::Autoscaler($object) => $run,
            Kept::ResourceQuota($object) => $run,
            Kept::ClusterQuota($object) => $run,
            Kept::Service($object) => $run,
            Kept::Slice($object) => $run,
            Kept::Volume($object) => $run,
            Kept::Claim($object) => $run,
        }
    };
}

impl Kept {
    pub(super) fn meta(&self) -> &Meta {
        each!(self, object => object.meta())
    }

    /// Forgets what no metric needs.
    pub(super) fn keep_needed(&mut self) {
        let mut service = None;
        match self {
            Kept::Pod(pod) => {
                pod.spec.containers.shrink_to_fit();
                pod.status.container_statuses.shrink_to_fit();
            }
            Kept::Slice(slice) => {
                slice.endpoints.shrink_to_fit();
                service = slice.metadata.labels.remove_entry(SERVICE_NAME);
            }
            _ => {}
        }
        let meta = each!(self, object => &mut object.metadata);
        meta.keep_names();
        meta.labels.extend(service);
    }
}

impl Indexed for Kept {
    /// They are not looked up.
    type Name = ();

    fn key(&self) -> Arc<str> {
        (&*self.meta().uid).into()
    }

    fn names(&self, _: &mut dyn FnMut(())) {}

    fn weight(&self) -> usize {
        size_of::<Kept>() + each!(self, object => object.heap())
    }
}

/// Facts beside an object that its metrics are made of.
pub(super) struct Around<'a> {
    pub(super) nodes: &'a NodeMetrics,
    pub(super) endpoints: &'a Endpoints,
}

/// Writes the resources that an object is, with their points.
pub(super) fn record(object: &Kept, around: &Around<'_>, out: &mut Recorder<'_>) {
    match object {
        Kept::Pod(pod) => pod::record(pod, out),
        Kept::Node(node) => node::record(node, around.nodes, out),
        Kept::Namespace(namespace) => namespace::record(namespace, out),
        Kept::Deployment(it) => workload::deployment(it, out),
        Kept::ReplicaSet(it) => workload::replica_set(it, out),
        Kept::StatefulSet(it) => workload::stateful_set(it, out),
        Kept::ReplicationController(it) => workload::replication_controller(it, out),
        Kept::DaemonSet(it) => workload::daemon_set(it, out),
        Kept::Job(it) => job::job(it, out),
        Kept::CronJob(it) => job::cron_job(it, out),
        Kept::Autoscaler(it) => autoscaler::record(it, out),
        Kept::ResourceQuota(it) => quota::of_namespace(it, out),
        Kept::ClusterQuota(it) => quota::of_cluster(it, out),
        Kept::Service(it) => service::record(it, around.endpoints, out),
        // They count for their services.
        Kept::Slice(_) => {}
        Kept::Volume(it) => volume::volume(it, out),
        Kept::Claim(it) => volume::claim(it, out),
    }
}

#[cfg(test)]
mod tests;
