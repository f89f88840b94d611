//! The memory of objects, about.

use super::{
    Address, Condition, Container, ContainerPort, ContainerStatus, Endpoint, EndpointPort,
    EndpointSlice, Endpoints, Http, Ingress, IngressPath, IngressRule, IngressSpec, IngressTls,
    Meta, Node, NodeAddress, NodeSpec, NodeStatus, Owner, Pairs, Pod, PodSpec, PodStatus, Service,
    ServicePort, ServiceSpec, Subset, TargetRef,
};

/// Memory of a text besides its bytes.
const TEXT_BYTES: usize = 16;
/// Memory of a pair besides its texts.
const PAIR_BYTES: usize = 48;

/// A value with memory besides its own structure.
pub(super) trait Weigh {
    fn heap_bytes(&self) -> usize;
}

impl Weigh for Box<str> {
    fn heap_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { TEXT_BYTES + self.len() }
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, Weigh::heap_bytes)
    }
}

impl<T: Weigh> Weigh for Vec<T> {
    fn heap_bytes(&self) -> usize {
        self.capacity() * size_of::<T>() + self.iter().map(Weigh::heap_bytes).sum::<usize>()
    }
}

impl Weigh for Pairs {
    fn heap_bytes(&self) -> usize {
        let pairs = self.iter();
        pairs.map(|(key, value)| PAIR_BYTES + key.heap_bytes() + value.heap_bytes()).sum()
    }
}

/// A structure has the memory of its fields.
macro_rules! fields {
    ($($kind:ident { $($field:ident),* })*) => {$(
        impl Weigh for $kind {
            fn heap_bytes(&self) -> usize {
                0 $(+ self.$field.heap_bytes())*
            }
        }
    )*};
}

fields! {
    Meta { name, namespace, uid, resource_version, creation_timestamp, labels, annotations,
           owner_references }
    Owner { kind, name, uid }
    Pod { metadata, spec, status }
    PodSpec { node_name, hostname, containers, init_containers }
    Container { name, image, ports }
    ContainerPort { name, protocol }
    PodStatus { phase, pod_ip, host_ip, start_time, conditions, container_statuses,
                init_container_statuses }
    Condition { kind, status }
    ContainerStatus { name, container_id, image_id }
    Node { metadata, spec, status }
    NodeSpec { provider_id }
    NodeStatus { conditions, addresses }
    NodeAddress { kind, address }
    Service { metadata, spec }
    ServiceSpec { kind, cluster_ip, external_name, load_balancer_ip, ports, ip_family_policy,
                  ip_families }
    ServicePort { name, protocol }
    Endpoints { metadata, subsets }
    Subset { addresses, not_ready_addresses, ports }
    Address { ip, hostname, node_name, target_ref }
    TargetRef { kind, name, namespace }
    EndpointSlice { metadata, address_type, endpoints, ports }
    Endpoint { addresses, hostname, node_name, zone, target_ref, deprecated_topology }
    EndpointPort { name, protocol, app_protocol }
    Ingress { metadata, spec }
    IngressSpec { ingress_class_name, tls, rules }
    IngressTls { hosts }
    IngressRule { host, http }
    Http { paths }
    IngressPath { path }
}
