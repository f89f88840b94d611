//! The metrics and attributes that there are, with the Collector's names, units and descriptions.

use super::recorder::{AttributeRow, MetricRow, Shape};

/// The name of the scope: backends and processors know the metrics by it.
pub(super) const SCOPE: &str =
    "github.com/open-telemetry/opentelemetry-collector-contrib/receiver/k8sclusterreceiver";
pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.18.0";

const LIMIT: &str = "Maximum resource limit set for the container. See \
     https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.23/\
     #resourcerequirements-v1-core \
     for details";
const REQUEST: &str = "Resource requested for the container. See \
     https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.23/\
     #resourcerequirements-v1-core \
     for details";

/// Whether a row is sent unless the configuration says otherwise.
const ON: bool = true;
const OFF: bool = false;

macro_rules! metrics {
    ($($id:ident, $shape:ident, $is_sent:ident, $name:literal, $unit:literal, $about:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Metric { $($id),* }

        /// In the order in which a resource has them.
        pub(super) const METRICS: &[MetricRow] = &[$(MetricRow {
            name: $name,
            unit: $unit,
            description: $about,
            shape: Shape::$shape,
            is_sent: $is_sent,
        }),*];
    };
}

macro_rules! attributes {
    ($($id:ident, $is_sent:ident, $name:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Attribute { $($id),* }

        pub(super) const ATTRIBUTES: &[AttributeRow] =
            &[$(AttributeRow { name: $name, is_sent: $is_sent }),*];
    };
}

impl From<Metric> for usize {
    fn from(metric: Metric) -> usize {
        metric as usize
    }
}

impl From<Attribute> for usize {
    fn from(attribute: Attribute) -> usize {
        attribute as usize
    }
}

metrics! {
    ContainerCpuLimit, Gauge, ON, "k8s.container.cpu_limit", "{cpu}", LIMIT;
    ContainerCpuRequest, Gauge, ON, "k8s.container.cpu_request", "{cpu}", REQUEST;
    ContainerEphemeralStorageLimit, Gauge, ON, "k8s.container.ephemeralstorage_limit", "By", LIMIT;
    ContainerEphemeralStorageRequest, Gauge, ON,
        "k8s.container.ephemeralstorage_request", "By", REQUEST;
    ContainerMemoryLimit, Gauge, ON, "k8s.container.memory_limit", "By", LIMIT;
    ContainerMemoryRequest, Gauge, ON, "k8s.container.memory_request", "By", REQUEST;
    ContainerReady, Gauge, ON, "k8s.container.ready", "",
        "Whether a container has passed its readiness probe (0 for no, 1 for yes)";
    ContainerRestarts, Gauge, ON, "k8s.container.restarts", "{restart}",
        "How many times the container has restarted in the recent past. This value is pulled \
         directly from the K8s API and the value can go indefinitely high and be reset to 0 at \
         any time depending on how your kubelet is configured to prune dead containers. It is \
         best to not depend too much on the exact value but rather look at it as either == 0, in \
         which case you can conclude there were no restarts in the recent past, or > 0, in which \
         case you can conclude there were restarts in the recent past, and not try and analyze \
         the value beyond that.";
    ContainerStatusReason, Sum, OFF, "k8s.container.status.reason", "{container}",
        "Experimental metric, may experience breaking changes. Describes the number of K8s \
         containers that are currently in a state for a given reason. All possible container \
         state reasons will be reported at each time interval to avoid missing metrics. Only the \
         value corresponding to the current state reason will be non-zero.";
    ContainerStatusState, Sum, OFF, "k8s.container.status.state", "{container}",
        "Experimental metric, may experience breaking changes. Describes the number of K8s \
         containers that are currently in a given state. All possible container states will be \
         reported at each time interval to avoid missing metrics. Only the value corresponding \
         to the current state will be non-zero.";
    ContainerStorageLimit, Gauge, ON, "k8s.container.storage_limit", "By", LIMIT;
    ContainerStorageRequest, Gauge, ON, "k8s.container.storage_request", "By", REQUEST;
    CronJobActiveJobs, Gauge, ON, "k8s.cronjob.active_jobs", "{job}",
        "The number of actively running jobs for a cronjob";
    DaemonSetCurrentScheduledNodes, Gauge, ON, "k8s.daemonset.current_scheduled_nodes", "{node}",
        "Number of nodes that are running at least 1 daemon pod and are supposed to run the \
         daemon pod";
    DaemonSetDesiredScheduledNodes, Gauge, ON, "k8s.daemonset.desired_scheduled_nodes", "{node}",
        "Number of nodes that should be running the daemon pod (including nodes currently \
         running the daemon pod)";
    DaemonSetMisscheduledNodes, Gauge, ON, "k8s.daemonset.misscheduled_nodes", "{node}",
        "Number of nodes that are running the daemon pod, but are not supposed to run the daemon \
         pod";
    DaemonSetReadyNodes, Gauge, ON, "k8s.daemonset.ready_nodes", "{node}",
        "Number of nodes that should be running the daemon pod and have one or more of the \
         daemon pod running and ready";
    DeploymentAvailable, Gauge, ON, "k8s.deployment.available", "{pod}",
        "Total number of available pods (ready for at least minReadySeconds) targeted by this \
         deployment";
    DeploymentDesired, Gauge, ON, "k8s.deployment.desired", "{pod}",
        "Number of desired pods in this deployment";
    HpaCurrentReplicas, Gauge, ON, "k8s.hpa.current_replicas", "{pod}",
        "Current number of pod replicas managed by this autoscaler.";
    HpaDesiredReplicas, Gauge, ON, "k8s.hpa.desired_replicas", "{pod}",
        "Desired number of pod replicas managed by this autoscaler.";
    HpaMaxReplicas, Gauge, ON, "k8s.hpa.max_replicas", "{pod}",
        "Maximum number of replicas to which the autoscaler can scale up.";
    HpaMinReplicas, Gauge, ON, "k8s.hpa.min_replicas", "{pod}",
        "Minimum number of replicas to which the autoscaler can scale up.";
    JobActivePods, Gauge, ON, "k8s.job.active_pods", "{pod}",
        "The number of actively running pods for a job";
    JobDesiredSuccessfulPods, Gauge, ON, "k8s.job.desired_successful_pods", "{pod}",
        "The desired number of successfully finished pods the job should be run with";
    JobFailedPods, Gauge, ON, "k8s.job.failed_pods", "{pod}",
        "The number of pods which reached phase Failed for a job";
    JobMaxParallelPods, Gauge, ON, "k8s.job.max_parallel_pods", "{pod}",
        "The max desired number of pods the job should run at any given time";
    JobSuccessfulPods, Gauge, ON, "k8s.job.successful_pods", "{pod}",
        "The number of pods which reached phase Succeeded for a job";
    NamespacePhase, Gauge, ON, "k8s.namespace.phase", "",
        "The current phase of namespaces (1 for active and 0 for terminating)";
    NodeCondition, Gauge, OFF, "k8s.node.condition", "{condition}",
        "The condition of a particular Node.";
    VolumeStatusPhase, Sum, OFF,
        "k8s.persistentvolume.status.phase", "{persistentvolume}",
        "The current phase of the PersistentVolume (1 for the current phase, 0 for others).";
    VolumeStorageCapacity, Sum, OFF, "k8s.persistentvolume.storage.capacity", "By",
        "The storage capacity of the PersistentVolume.";
    ClaimStatusPhase, Sum, OFF,
        "k8s.persistentvolumeclaim.status.phase", "{persistentvolumeclaim}",
        "The current phase of the PersistentVolumeClaim (1 for the current phase, 0 for others).";
    ClaimStorageCapacity, Sum, OFF,
        "k8s.persistentvolumeclaim.storage.capacity", "By",
        "The actual storage capacity provisioned for the PersistentVolumeClaim. Only available \
         when bound.";
    ClaimStorageRequest, Sum, OFF,
        "k8s.persistentvolumeclaim.storage.request", "By",
        "The storage requested by the PersistentVolumeClaim.";
    PodPhase, Gauge, ON, "k8s.pod.phase", "",
        "Current phase of the pod (1 - Pending, 2 - Running, 3 - Succeeded, 4 - Failed, 5 - \
         Unknown)";
    PodStatusReason, Gauge, OFF, "k8s.pod.status_reason", "",
        "Current status reason of the pod (1 - Evicted, 2 - NodeAffinity, 3 - NodeLost, 4 - \
         Shutdown, 5 - UnexpectedAdmissionError, 6 - Unknown)";
    ReplicaSetAvailable, Gauge, ON, "k8s.replicaset.available", "{pod}",
        "Total number of available pods (ready for at least minReadySeconds) targeted by this \
         replicaset";
    ReplicaSetDesired, Gauge, ON, "k8s.replicaset.desired", "{pod}",
        "Number of desired pods in this replicaset";
    ReplicationControllerAvailable, Gauge, ON, "k8s.replication_controller.available", "{pod}",
        "Total number of available pods (ready for at least minReadySeconds) targeted by this \
         replication_controller";
    ReplicationControllerDesired, Gauge, ON, "k8s.replication_controller.desired", "{pod}",
        "Number of desired pods in this replication_controller";
    ResourceQuotaHardLimit, Gauge, ON, "k8s.resource_quota.hard_limit", "{resource}",
        "The upper limit for a particular resource in a specific namespace. Will only be sent if \
         a quota is specified. CPU requests/limits will be sent as millicores";
    ResourceQuotaUsed, Gauge, ON, "k8s.resource_quota.used", "{resource}",
        "The usage for a particular resource in a specific namespace. Will only be sent if a \
         quota is specified. CPU requests/limits will be sent as millicores";
    ServiceEndpointCount, Gauge, OFF, "k8s.service.endpoint.count", "{endpoint}",
        "The number of endpoints for a service, broken down by condition, address type, and \
         zone.";
    ServiceLoadBalancerIngressCount, Gauge, OFF,
        "k8s.service.load_balancer.ingress.count", "{ingress}",
        "The number of load balancer ingress points (external IPs/hostnames) assigned to the \
         service.";
    StatefulSetCurrentPods, Gauge, ON, "k8s.statefulset.current_pods", "{pod}",
        "The number of pods created by the StatefulSet controller from the StatefulSet version";
    StatefulSetDesiredPods, Gauge, ON, "k8s.statefulset.desired_pods", "{pod}",
        "Number of desired pods in the stateful set (the `spec.replicas` field)";
    StatefulSetPodAvailable, Sum, OFF, "k8s.statefulset.pod.available", "{pod}",
        "The number of available pods per stateful set (the `status.availableReplicas` field). A \
         pod is available once it has been `Ready` for at least `spec.minReadySeconds`.";
    StatefulSetReadyPods, Gauge, ON, "k8s.statefulset.ready_pods", "{pod}",
        "Number of pods created by the stateful set that have the `Ready` condition";
    StatefulSetUpdatedPods, Gauge, ON, "k8s.statefulset.updated_pods", "{pod}",
        "Number of pods created by the StatefulSet controller from the StatefulSet version";
    AppliedClusterQuotaLimit, Gauge, ON, "openshift.appliedclusterquota.limit", "{resource}",
        "The upper limit for a particular resource in a specific namespace.";
    AppliedClusterQuotaUsed, Gauge, ON, "openshift.appliedclusterquota.used", "{resource}",
        "The usage for a particular resource in a specific namespace.";
    ClusterQuotaLimit, Gauge, ON, "openshift.clusterquota.limit", "{resource}",
        "The configured upper limit for a particular resource.";
    ClusterQuotaUsed, Gauge, ON, "openshift.clusterquota.used", "{resource}",
        "The usage for a particular resource with a configured limit.";
}

attributes! {
    ContainerId, ON, "container.id";
    ContainerImageName, ON, "container.image.name";
    ContainerImageTag, ON, "container.image.tag";
    ContainerRuntime, OFF, "container.runtime";
    ContainerRuntimeVersion, OFF, "container.runtime.version";
    ContainerName, ON, "k8s.container.name";
    ContainerStatusLastTerminatedReason, OFF, "k8s.container.status.last_terminated_reason";
    CronJobName, ON, "k8s.cronjob.name";
    CronJobUid, ON, "k8s.cronjob.uid";
    DaemonSetName, ON, "k8s.daemonset.name";
    DaemonSetUid, ON, "k8s.daemonset.uid";
    DeploymentName, ON, "k8s.deployment.name";
    DeploymentUid, ON, "k8s.deployment.uid";
    HpaName, ON, "k8s.hpa.name";
    HpaTargetApiVersion, OFF, "k8s.hpa.scaletargetref.apiversion";
    HpaTargetKind, OFF, "k8s.hpa.scaletargetref.kind";
    HpaTargetName, OFF, "k8s.hpa.scaletargetref.name";
    HpaUid, ON, "k8s.hpa.uid";
    JobName, ON, "k8s.job.name";
    JobUid, ON, "k8s.job.uid";
    KubeletVersion, OFF, "k8s.kubelet.version";
    NamespaceName, ON, "k8s.namespace.name";
    NamespaceUid, ON, "k8s.namespace.uid";
    NodeName, ON, "k8s.node.name";
    NodeUid, ON, "k8s.node.uid";
    VolumeName, ON, "k8s.persistentvolume.name";
    VolumeReclaimPolicy, OFF, "k8s.persistentvolume.reclaim_policy";
    VolumeUid, ON, "k8s.persistentvolume.uid";
    ClaimName, ON, "k8s.persistentvolumeclaim.name";
    ClaimUid, ON, "k8s.persistentvolumeclaim.uid";
    PodName, ON, "k8s.pod.name";
    PodQosClass, OFF, "k8s.pod.qos_class";
    PodUid, ON, "k8s.pod.uid";
    ReplicaSetName, ON, "k8s.replicaset.name";
    ReplicaSetUid, ON, "k8s.replicaset.uid";
    ReplicationControllerName, ON, "k8s.replicationcontroller.name";
    ReplicationControllerUid, ON, "k8s.replicationcontroller.uid";
    ResourceQuotaName, ON, "k8s.resourcequota.name";
    ResourceQuotaUid, ON, "k8s.resourcequota.uid";
    ServiceName, ON, "k8s.service.name";
    ServicePublishNotReadyAddresses, OFF, "k8s.service.publish_not_ready_addresses";
    ServiceTrafficDistribution, OFF, "k8s.service.traffic_distribution";
    ServiceType, ON, "k8s.service.type";
    ServiceUid, ON, "k8s.service.uid";
    StatefulSetName, ON, "k8s.statefulset.name";
    StatefulSetUid, ON, "k8s.statefulset.uid";
    StorageClassName, ON, "k8s.storageclass.name";
    ClusterQuotaName, ON, "openshift.clusterquota.name";
    ClusterQuotaUid, ON, "openshift.clusterquota.uid";
    OsDescription, OFF, "os.description";
    OsType, OFF, "os.type";
}
