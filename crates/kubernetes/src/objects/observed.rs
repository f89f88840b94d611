//! Objects as a cluster's metrics need them: of each kind its numbers and its state, and no more.
//!
//! They are views of their own, beside the kinds that are kept for their attributes and addresses.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Meta, Object, Pairs, nullable};
use crate::quantity::Quantity;

/// Memory of a value beside its own size, in bytes.
pub trait Heap {
    fn heap(&self) -> usize;
}

/// An object with a specification and a status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(
    default,
    bound(deserialize = "S: Default + Deserialize<'de>, T: Default + Deserialize<'de>")
)]
pub struct Observed<S, T> {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    pub spec: S,
    #[serde(deserialize_with = "nullable")]
    pub status: T,
}

impl<S, T> Object for Observed<S, T>
where
    S: Default + DeserializeOwned + Send + 'static,
    T: Default + DeserializeOwned + Send + 'static,
{
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl<S: Heap, T: Heap> Heap for Observed<S, T> {
    fn heap(&self) -> usize {
        self.metadata.heap() + self.spec.heap() + self.status.heap()
    }
}

impl Meta {
    /// Forgets all but what names the object.
    pub fn keep_names(&mut self) {
        let (name, namespace, uid) = (&mut self.name, &mut self.namespace, &mut self.uid);
        let take = std::mem::take::<Box<str>>;
        let (name, namespace, uid) = (take(name), take(namespace), take(uid));
        *self = Meta { name, namespace, uid, ..Meta::default() };
    }
}

macro_rules! no_heap {
    ($($type:ty),*) => { $(impl Heap for $type { fn heap(&self) -> usize { 0 } })* };
}

no_heap!(bool, i64, Quantity);

impl Heap for Box<str> {
    fn heap(&self) -> usize {
        self.len()
    }
}

impl<T: Heap> Heap for Option<T> {
    fn heap(&self) -> usize {
        self.as_ref().map_or(0, Heap::heap)
    }
}

impl<T: Heap> Heap for Vec<T> {
    fn heap(&self) -> usize {
        self.capacity() * size_of::<T>() + self.iter().map(Heap::heap).sum::<usize>()
    }
}

impl Heap for Pairs {
    fn heap(&self) -> usize {
        self.iter().map(|(key, value)| key.len() + value.len() + 2 * size_of::<Box<str>>()).sum()
    }
}

impl Heap for Meta {
    fn heap(&self) -> usize {
        let Meta { name, namespace, uid, resource_version, creation_timestamp, labels, .. } = self;
        let texts = [name, namespace, uid, resource_version, creation_timestamp];
        texts.map(Heap::heap).iter().sum::<usize>() + labels.heap()
    }
}

/// Structures of the API, with the API's names for fields, and null for what is absent.
macro_rules! kept {
    ($($(#[$about:meta])* $name:ident {
        $($(#[$how:meta])* $field:ident: $type:ty,)*
    })*) => { $(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name {
            $($(#[$how])* #[serde(deserialize_with = "nullable")] pub $field: $type,)*
        }

        impl Heap for $name {
            fn heap(&self) -> usize {
                0 $(+ self.$field.heap())*
            }
        }
    )* };
}

kept! {
    /// A part of an object of which only the presence is of interest.
    Unkept {}

    /// Of deployments, replica sets, stateful sets and replication controllers.
    Replicas {
        replicas: Option<i64>,
    }
    ReplicasStatus {
        available_replicas: i64,
        ready_replicas: i64,
        current_replicas: i64,
        updated_replicas: i64,
    }

    DaemonSetStatus {
        current_number_scheduled: i64,
        desired_number_scheduled: i64,
        number_misscheduled: i64,
        number_ready: i64,
    }

    JobSpec {
        completions: Option<i64>,
        parallelism: Option<i64>,
    }
    JobStatus {
        active: i64,
        failed: i64,
        succeeded: i64,
    }

    CronJobStatus {
        active: Vec<Unkept>,
    }

    AutoscalerSpec {
        min_replicas: Option<i64>,
        max_replicas: i64,
        scale_target_ref: ScaleTarget,
    }
    ScaleTarget {
        api_version: Box<str>,
        kind: Box<str>,
        name: Box<str>,
    }
    AutoscalerStatus {
        current_replicas: i64,
        desired_replicas: i64,
    }

    /// Of namespaces and volumes.
    Phase {
        phase: Box<str>,
    }

    ObservedPodSpec {
        node_name: Box<str>,
        containers: Vec<ContainerSpec>,
    }
    ContainerSpec {
        name: Box<str>,
        resources: Resources,
    }
    Resources {
        requests: Amounts,
        limits: Amounts,
    }
    /// The resources that metrics of containers have.
    Amounts {
        cpu: Option<Quantity>,
        memory: Option<Quantity>,
        storage: Option<Quantity>,
        #[serde(rename = "ephemeral-storage")]
        ephemeral_storage: Option<Quantity>,
    }
    ObservedPodStatus {
        phase: Box<str>,
        reason: Box<str>,
        qos_class: Box<str>,
        container_statuses: Vec<ContainerState>,
    }
    ContainerState {
        name: Box<str>,
        image: Box<str>,
        #[serde(rename = "containerID")]
        container_id: Box<str>,
        restart_count: i64,
        ready: bool,
        state: State,
        last_state: State,
    }
    State {
        running: Option<Unkept>,
        waiting: Option<Reason>,
        terminated: Option<Reason>,
    }
    Reason {
        reason: Box<str>,
    }

    ObservedNodeStatus {
        allocatable: NamedAmounts,
        conditions: Vec<NodeCondition>,
        node_info: NodeInfo,
    }
    NodeCondition {
        #[serde(rename = "type")]
        kind: Box<str>,
        status: Box<str>,
    }
    NodeInfo {
        kubelet_version: Box<str>,
        container_runtime_version: Box<str>,
        os_image: Box<str>,
        operating_system: Box<str>,
    }

    /// Of quotas of a namespace and of a cluster.
    QuotaStatus {
        hard: NamedAmounts,
        used: NamedAmounts,
    }
    ClusterQuotaStatus {
        total: QuotaStatus,
        namespaces: Vec<NamespaceQuota>,
    }
    NamespaceQuota {
        namespace: Box<str>,
        status: QuotaStatus,
    }

    ObservedServiceSpec {
        #[serde(rename = "type")]
        kind: Box<str>,
        traffic_distribution: Option<Box<str>>,
        publish_not_ready_addresses: bool,
    }
    ServiceStatus {
        load_balancer: LoadBalancer,
    }
    LoadBalancer {
        ingress: Vec<Unkept>,
    }
    /// The endpoints of a service, or a part of them.
    ServiceSlice {
        metadata: Meta,
        address_type: Box<str>,
        endpoints: Vec<EndpointState>,
    }
    EndpointState {
        zone: Box<str>,
        conditions: EndpointConditions,
    }
    EndpointConditions {
        ready: Option<bool>,
        serving: Option<bool>,
        terminating: Option<bool>,
    }

    VolumeSpec {
        storage_class_name: Box<str>,
        persistent_volume_reclaim_policy: Box<str>,
        capacity: Storage,
    }
    ClaimSpec {
        storage_class_name: Box<str>,
        resources: StorageRequests,
    }
    ClaimStatus {
        phase: Box<str>,
        capacity: Storage,
    }
    StorageRequests {
        requests: Storage,
    }
    Storage {
        storage: Option<Quantity>,
    }
}

impl Object for ServiceSlice {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Amounts of resources, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<Box<str>, Quantity>")]
pub struct NamedAmounts(pub Vec<(Box<str>, Quantity)>);

impl From<BTreeMap<Box<str>, Quantity>> for NamedAmounts {
    fn from(amounts: BTreeMap<Box<str>, Quantity>) -> NamedAmounts {
        NamedAmounts(amounts.into_iter().collect())
    }
}

impl Heap for NamedAmounts {
    fn heap(&self) -> usize {
        let names = self.0.iter().map(|(name, _)| name.len()).sum::<usize>();
        self.0.capacity() * size_of::<(Box<str>, Quantity)>() + names
    }
}

/// A cluster's objects, each with what its metrics are made of.
pub type ObservedPod = Observed<ObservedPodSpec, ObservedPodStatus>;
pub type ObservedNode = Observed<Unkept, ObservedNodeStatus>;
pub type Namespace = Observed<Unkept, Phase>;
/// Deployments, replica sets, stateful sets and replication controllers.
pub type Workload = Observed<Replicas, ReplicasStatus>;
pub type DaemonSet = Observed<Unkept, DaemonSetStatus>;
pub type Job = Observed<JobSpec, JobStatus>;
pub type CronJob = Observed<Unkept, CronJobStatus>;
pub type Autoscaler = Observed<AutoscalerSpec, AutoscalerStatus>;
pub type ResourceQuota = Observed<Unkept, QuotaStatus>;
pub type ClusterQuota = Observed<Unkept, ClusterQuotaStatus>;
pub type ObservedService = Observed<ObservedServiceSpec, ServiceStatus>;
pub type Volume = Observed<VolumeSpec, Phase>;
pub type Claim = Observed<ClaimSpec, ClaimStatus>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a pod as API servers write it, with much that is not kept. Guarantee: its numbers
    /// and states are there, its memory counts, and names are all that stays of its metadata.
    #[test]
    fn a_pod_is_read_with_its_numbers_and_states() {
        let mut pod: ObservedPod = serde_json::from_str(
            r#"{"kind":"Pod","metadata":{"name":"a","namespace":"n","uid":"u","labels":{"x":"y"},
            "ownerReferences":[{"kind":"Job","name":"j"}],"resourceVersion":"7"},
            "spec":{"nodeName":"w","containers":[{"name":"c","image":"i","env":[{"name":"X"}],
            "resources":{"requests":{"cpu":"250m","memory":"1Gi","nvidia.com/gpu":"1",
            "ephemeral-storage":"2"},"limits":null}}],"initContainers":[{"name":"d"}]},
            "status":{"phase":"Running","qosClass":"Burstable","containerStatuses":[{"name":"c",
            "image":"i:1","containerID":"cri-o://1","restartCount":2,"ready":true,
            "state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}},
            "lastState":{"terminated":{"exitCode":1,"reason":"Error"}}}]}}"#,
        )
        .expect("is read");
        let requests = &pod.spec.containers[0].resources.requests;
        assert_eq!(requests.cpu.map(Quantity::thousandths), Some(250));
        assert_eq!(requests.memory.map(Quantity::units), Some(1 << 30));
        assert_eq!(requests.ephemeral_storage.map(Quantity::units), Some(2));
        assert_eq!(requests.storage, None);
        let container = &pod.status.container_statuses[0];
        assert!(container.state.running.is_some() && container.state.waiting.is_none());
        assert_eq!(&*container.last_state.terminated.as_ref().expect("ended").reason, "Error");
        let before = pod.heap();
        pod.metadata.keep_names();
        assert_eq!(before - pod.heap(), 1 + 1 + 1 + 2 * size_of::<Box<str>>());
        assert_eq!((pod.meta().key().as_str(), &*pod.meta().uid), ("n/a", "u"));
        assert_eq!(pod.meta(), &Meta { resource_version: "".into(), ..pod.meta().clone() });
    }

    #[test]
    fn amounts_have_names_and_lists_of_unkept_parts_a_length() {
        let quota: ResourceQuota = serde_json::from_str(
            r#"{"metadata":{"name":"q"},"spec":{"hard":{"pods":"9"}},
            "status":{"hard":{"pods":"10","limits.cpu":"2"},"used":null}}"#,
        )
        .expect("is read");
        let amount = |name: &str, text: &str| (name.into(), text.parse().expect("a quantity"));
        let expected = vec![amount("limits.cpu", "2"), amount("pods", "10")];
        assert_eq!(quota.status.hard, NamedAmounts(expected));
        assert_eq!(quota.status.used, NamedAmounts::default());
        let job: CronJob = serde_json::from_str(
            r#"{"metadata":{"name":"c"},"status":{"active":[{"name":"a"},{"name":"b"}]}}"#,
        )
        .expect("is read");
        assert_eq!((job.status.active.len(), job.status.heap()), (2, 0));
    }
}
