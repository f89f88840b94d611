//! The metrics, as the Collector's metadata has them, in the order in which it sends them.

/// An object that metrics are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Node,
    SystemContainer,
    Pod,
    Container,
    Volume,
}

/// The number that a metric has, as the kubelet tells it or as it follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Uptime,
    CpuTime,
    CpuUsage,
    CpuOfNode,
    CpuOfLimit,
    CpuOfRequest,
    MemoryAvailable,
    MemoryUsage,
    MemoryRss,
    WorkingSet,
    PageFaults,
    MajorPageFaults,
    MemoryOfNode,
    MemoryOfLimit,
    MemoryOfRequest,
    FsAvailable,
    FsCapacity,
    FsUsed,
    FsInodes,
    FsInodesFree,
    FsInodesUsed,
    EphemeralUsed,
    NetworkIo,
    NetworkErrors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Gauge,
    /// Cumulative, not monotonic.
    Sum,
    /// Cumulative and monotonic.
    Counter,
}

pub(in crate::kubeletstats) struct Metric {
    pub(super) of: Of,
    pub(super) field: Field,
    pub(in crate::kubeletstats) name: &'static str,
    pub(super) shape: Shape,
    pub(super) unit: &'static str,
    /// By default.
    pub(in crate::kubeletstats) is_on: bool,
    pub(super) description: &'static str,
}

impl Metric {
    /// The names of the attributes that its points can have.
    pub(in crate::kubeletstats) fn attributes(&self) -> &'static [&'static str] {
        match self.field {
            Field::NetworkIo | Field::NetworkErrors => &["interface", "direction"],
            Field::EphemeralUsed => &["fs.type"],
            _ => &[],
        }
    }

    /// Whether it needs what `/pods` says of limits and requests.
    pub(super) fn needs_pods(&self) -> bool {
        use Field::{CpuOfLimit, CpuOfRequest, MemoryOfLimit, MemoryOfRequest};
        matches!(self.field, CpuOfLimit | CpuOfRequest | MemoryOfLimit | MemoryOfRequest)
    }

    /// Whether it needs the node's capacity, which the API server knows.
    pub(in crate::kubeletstats) fn needs_node(&self) -> bool {
        matches!(self.field, Field::CpuOfNode | Field::MemoryOfNode)
    }
}

macro_rules! metrics {
    (@on on) => { true };
    (@on off) => { false };
    ($($of:ident $field:ident $name:literal $shape:ident $unit:literal $on:ident
       $description:literal;)*) => {
        pub(in crate::kubeletstats) const METRICS: &[Metric] = &[$(Metric {
            of: Of::$of,
            field: Field::$field,
            name: $name,
            shape: Shape::$shape,
            unit: $unit,
            is_on: metrics!(@on $on),
            description: $description,
        }),*];
    };
}

metrics! {
    Container CpuTime "container.cpu.time" Counter "s" on
        "Total cumulative CPU time (sum of all cores) spent by the container/pod/node since its \
         creation";
    Container CpuUsage "container.cpu.usage" Gauge "{cpu}" on
        "Total CPU usage (sum of all cores per second) averaged over the sample window";
    Container FsAvailable "container.filesystem.available" Gauge "By" on
        "Container filesystem available";
    Container FsCapacity "container.filesystem.capacity" Gauge "By" on
        "Container filesystem capacity";
    Container FsUsed "container.filesystem.usage" Gauge "By" on "Container filesystem usage";
    Container MemoryAvailable "container.memory.available" Gauge "By" on
        "Container memory available";
    Container MajorPageFaults "container.memory.major_page_faults" Gauge "1" on
        "Container memory major_page_faults";
    Container PageFaults "container.memory.page_faults" Gauge "1" on "Container memory page_faults";
    Container MemoryRss "container.memory.rss" Gauge "By" on "Container memory rss";
    Container MemoryUsage "container.memory.usage" Gauge "By" on "Container memory usage";
    Container WorkingSet "container.memory.working_set" Gauge "By" on
        "Container memory working_set";
    Container Uptime "container.uptime" Counter "s" off "The time since the container started";
    Container CpuOfNode "k8s.container.cpu.node.utilization" Gauge "1" off
        "Container cpu utilization as a ratio of the node's capacity";
    Container CpuOfLimit "k8s.container.cpu_limit_utilization" Gauge "1" off
        "Container cpu utilization as a ratio of the container's limits";
    Container CpuOfRequest "k8s.container.cpu_request_utilization" Gauge "1" off
        "Container cpu utilization as a ratio of the container's requests";
    Container EphemeralUsed "k8s.container.ephemeral_storage.usage" Sum "By" off
        "Ephemeral storage used by the container.";
    Container MemoryOfNode "k8s.container.memory.node.utilization" Gauge "1" off
        "Container memory utilization as a ratio of the node's capacity";
    Container MemoryOfLimit "k8s.container.memory_limit_utilization" Gauge "1" off
        "Container memory utilization as a ratio of the container's limits";
    Container MemoryOfRequest "k8s.container.memory_request_utilization" Gauge "1" off
        "Container memory utilization as a ratio of the container's requests";
    Node CpuTime "k8s.node.cpu.time" Counter "s" on
        "Total cumulative CPU time (sum of all cores) spent by the container/pod/node since its \
         creation";
    Node CpuUsage "k8s.node.cpu.usage" Gauge "{cpu}" on
        "Total CPU usage (sum of all cores per second) averaged over the sample window";
    Node FsAvailable "k8s.node.filesystem.available" Gauge "By" on "Node filesystem available";
    Node FsCapacity "k8s.node.filesystem.capacity" Gauge "By" on "Node filesystem capacity";
    Node FsInodes "k8s.node.filesystem.inode.count" Sum "{inode}" off
        "Total number of inodes in the node's root filesystem.";
    Node FsInodesFree "k8s.node.filesystem.inode.free" Sum "{inode}" off
        "Number of free inodes in the node's root filesystem.";
    Node FsUsed "k8s.node.filesystem.usage" Gauge "By" on "Node filesystem usage";
    Node MemoryAvailable "k8s.node.memory.available" Gauge "By" on "Node memory available";
    Node MajorPageFaults "k8s.node.memory.major_page_faults" Gauge "1" on
        "Node memory major_page_faults";
    Node PageFaults "k8s.node.memory.page_faults" Gauge "1" on "Node memory page_faults";
    Node MemoryRss "k8s.node.memory.rss" Gauge "By" on "Node memory rss";
    Node MemoryUsage "k8s.node.memory.usage" Gauge "By" on "Node memory usage";
    Node WorkingSet "k8s.node.memory.working_set" Gauge "By" on "Node memory working_set";
    Node NetworkErrors "k8s.node.network.errors" Counter "1" on "Node network errors";
    Node NetworkIo "k8s.node.network.io" Counter "By" on "Node network IO";
    SystemContainer CpuTime "k8s.node.system_container.cpu.time" Counter "s" off
        "Total cumulative CPU time (sum of all cores) spent by the system container since its \
         creation";
    SystemContainer CpuUsage "k8s.node.system_container.cpu.usage" Gauge "{cpu}" off
        "Total CPU usage (sum of all cores per second) averaged over the sample window for the \
         system container";
    SystemContainer MemoryUsage "k8s.node.system_container.memory.usage" Gauge "By" off
        "System container memory usage";
    SystemContainer WorkingSet "k8s.node.system_container.memory.working_set" Gauge "By" off
        "System container memory working_set";
    Node Uptime "k8s.node.uptime" Counter "s" off "The time since the node started";
    Pod CpuOfNode "k8s.pod.cpu.node.utilization" Gauge "1" off
        "Pod cpu utilization as a ratio of the node's capacity";
    Pod CpuTime "k8s.pod.cpu.time" Counter "s" on
        "Total cumulative CPU time (sum of all cores) spent by the container/pod/node since its \
         creation";
    Pod CpuUsage "k8s.pod.cpu.usage" Gauge "{cpu}" on
        "Total CPU usage (sum of all cores per second) averaged over the sample window";
    Pod CpuOfLimit "k8s.pod.cpu_limit_utilization" Gauge "1" off
        "Pod cpu utilization as a ratio of the pod's total container limits. If any container is \
         missing a limit the metric is not emitted.";
    Pod CpuOfRequest "k8s.pod.cpu_request_utilization" Gauge "1" off
        "Pod cpu utilization as a ratio of the pod's total container requests. If any container is \
         missing a request the metric is not emitted.";
    Pod FsAvailable "k8s.pod.filesystem.available" Gauge "By" on "Pod filesystem available";
    Pod FsCapacity "k8s.pod.filesystem.capacity" Gauge "By" on "Pod filesystem capacity";
    Pod FsUsed "k8s.pod.filesystem.usage" Gauge "By" on "Pod filesystem usage";
    Pod MemoryAvailable "k8s.pod.memory.available" Gauge "By" on "Pod memory available";
    Pod MajorPageFaults "k8s.pod.memory.major_page_faults" Gauge "1" on
        "Pod memory major_page_faults";
    Pod MemoryOfNode "k8s.pod.memory.node.utilization" Gauge "1" off
        "Pod memory utilization as a ratio of the node's capacity";
    Pod PageFaults "k8s.pod.memory.page_faults" Gauge "1" on "Pod memory page_faults";
    Pod MemoryRss "k8s.pod.memory.rss" Gauge "By" on "Pod memory rss";
    Pod MemoryUsage "k8s.pod.memory.usage" Gauge "By" on "Pod memory usage";
    Pod WorkingSet "k8s.pod.memory.working_set" Gauge "By" on "Pod memory working_set";
    Pod MemoryOfLimit "k8s.pod.memory_limit_utilization" Gauge "1" off
        "Pod memory utilization as a ratio of the pod's total container limits. If any container \
         is missing a limit the metric is not emitted.";
    Pod MemoryOfRequest "k8s.pod.memory_request_utilization" Gauge "1" off
        "Pod memory utilization as a ratio of the pod's total container requests. If any container \
         is missing a request the metric is not emitted.";
    Pod NetworkErrors "k8s.pod.network.errors" Counter "1" on "Pod network errors";
    Pod NetworkIo "k8s.pod.network.io" Counter "By" on "Pod network IO";
    Pod Uptime "k8s.pod.uptime" Counter "s" off "The time since the pod started";
    Volume FsUsed "k8s.pod.volume.usage" Sum "By" off "The number of used bytes in the pod volume.";
    Volume FsAvailable "k8s.volume.available" Gauge "By" on
        "The number of available bytes in the volume.";
    Volume FsCapacity "k8s.volume.capacity" Gauge "By" on
        "The total capacity in bytes of the volume.";
    Volume FsInodes "k8s.volume.inodes" Gauge "1" on "The total inodes in the filesystem.";
    Volume FsInodesFree "k8s.volume.inodes.free" Gauge "1" on "The free inodes in the filesystem.";
    Volume FsInodesUsed "k8s.volume.inodes.used" Gauge "1" on
        "The inodes used by the filesystem. This may not equal inodes - free because filesystem \
         may share inodes with other filesystems.";
}
