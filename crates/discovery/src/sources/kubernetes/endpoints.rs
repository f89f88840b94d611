//! The roles `endpoints` and `endpointslice`: a target for each address and port, and one for each
//! further port of the pods behind them.

use std::collections::BTreeMap;

use sluice_kubernetes::objects::{
    Address, Endpoint, EndpointPort, EndpointSlice, Endpoints, Pod, Service, ServicePort, TargetRef,
};

use super::names::{Set, host_port};
use super::pods::{add_container, add_pod, containers};
use super::services::add_service;
use super::state::State;
use crate::group::Group;
use crate::labels::Labels;

/// Pods behind the addresses, with the ports that have targets.
#[derive(Default)]
struct Behind<'a>(BTreeMap<String, (&'a Pod, Vec<i64>)>);

pub(super) fn of_endpoints(state: &State, endpoints: &Endpoints) -> Group {
    let meta = &endpoints.metadata;
    let mut labels = state.names.set();
    labels.add_namespace(state, &meta.namespace);
    if let Some(service) = state.services.get(&meta.key()) {
        add_service(&mut labels, service);
    }
    labels.add_meta("endpoints", meta);
    let (mut targets, mut behind) = (Vec::new(), Behind::default());
    for subset in &endpoints.subsets {
        for port in &subset.ports {
            for (addresses, ready) in
                [(&subset.addresses, "true"), (&subset.not_ready_addresses, "false")]
            {
                for address in addresses {
                    targets.push(target_of_address(state, address, port, ready, &mut behind));
                }
            }
        }
    }
    targets.extend(behind.further_ports(state));
    Group { key: format!("endpoints/{}", meta.key()).into(), labels: labels.labels(), targets }
}

fn target_of_address<'a>(
    state: &'a State,
    address: &Address,
    port: &ServicePort,
    ready: &str,
    behind: &mut Behind<'a>,
) -> Labels {
    let mut target = state.names.set();
    target.address(&host_port(&address.ip, port.port));
    target.add("endpoint_port_name", &port.name);
    target.add("endpoint_port_protocol", &port.protocol);
    target.add("endpoint_ready", ready);
    if let Some(object) = &address.target_ref {
        target.add("endpoint_address_target_kind", &object.kind);
        target.add("endpoint_address_target_name", &object.name);
    }
    target.add("endpoint_node_name", address.node_name.as_deref().unwrap_or_default());
    target.add("endpoint_hostname", &address.hostname);
    let of_ref = address.target_ref.as_ref().filter(|object| &*object.kind == "Node");
    let node = address.node_name.as_deref().or(of_ref.map(|object| &*object.name));
    target.add_node(state, node.unwrap_or_default());
    behind.add(&mut target, state, address.target_ref.as_ref(), Some(port.port), &port.protocol);
    target.labels()
}

pub(super) fn of_slice(state: &State, slice: &EndpointSlice) -> Group {
    let meta = &slice.metadata;
    let mut labels = state.names.set();
    labels.add_namespace(state, &meta.namespace);
    labels.add("endpointslice_address_type", &slice.address_type);
    labels.add_meta("endpointslice", meta);
    let service = meta.labels.get("kubernetes.io/service-name");
    let service =
        service.and_then(|name| state.services.get(&format!("{}/{name}", meta.namespace)));
    if let Some(service) = service {
        add_service(&mut labels, service);
    }
    let key = format!("endpointslice/{}", meta.key()).into();
    let mut group = Group { key, labels: labels.labels(), targets: Vec::new() };
    if service.is_some_and(|service| is_of_second_family(service, slice)) {
        return group;
    }
    let mut behind = Behind::default();
    for endpoint in &slice.endpoints {
        for port in &slice.ports {
            for address in &endpoint.addresses {
                let target = target_of_endpoint(state, address, endpoint, port, &mut behind);
                group.targets.push(target);
            }
        }
    }
    group.targets.extend(behind.further_ports(state));
    group
}

/// A service with both families has a slice for each: the same targets twice.
fn is_of_second_family(service: &Service, slice: &EndpointSlice) -> bool {
    let has_both =
        matches!(&*service.spec.ip_family_policy, "PreferDualStack" | "RequireDualStack");
    let first = service.spec.ip_families.first();
    has_both && first.is_some_and(|first| *first != slice.address_type)
}

fn target_of_endpoint<'a>(
    state: &'a State,
    address: &str,
    endpoint: &Endpoint,
    port: &EndpointPort,
    behind: &mut Behind<'a>,
) -> Labels {
    let mut target = state.names.set();
    let own = port.port.map(|port| host_port(address, port));
    target.address(own.as_deref().unwrap_or(address));
    let number = port.port.map(|port| port.to_string());
    let shown = |flag: Option<bool>| flag.map(|flag| flag.to_string());
    let conditions = &endpoint.conditions;
    for (name, value) in [
        ("port_name", port.name.as_deref()),
        ("port_protocol", port.protocol.as_deref()),
        ("port", number.as_deref()),
        ("port_app_protocol", port.app_protocol.as_deref()),
        ("endpoint_conditions_ready", shown(conditions.ready).as_deref()),
        ("endpoint_conditions_serving", shown(conditions.serving).as_deref()),
        ("endpoint_conditions_terminating", shown(conditions.terminating).as_deref()),
        ("endpoint_hostname", endpoint.hostname.as_deref()),
        ("address_target_kind", endpoint.target_ref.as_ref().map(|it| &*it.kind)),
        ("address_target_name", endpoint.target_ref.as_ref().map(|it| &*it.name)),
        ("endpoint_node_name", endpoint.node_name.as_deref()),
        ("endpoint_zone", endpoint.zone.as_deref()),
    ] {
        target.add(&format!("endpointslice_{name}"), value.unwrap_or_default());
    }
    let topology = "endpointslice_endpoint_topology_";
    for (key, value) in &endpoint.deprecated_topology {
        let key = super::names::sanitized(key);
        target.add(&format!("{topology}{key}"), value);
        target.add(&format!("{topology}present_{key}"), "true");
    }
    let of_ref = endpoint.target_ref.as_ref().filter(|object| &*object.kind == "Node");
    let node = of_ref.map(|object| &*object.name).or(endpoint.node_name.as_deref());
    target.add_node(state, node.unwrap_or_default());
    let protocol = port.protocol.as_deref().unwrap_or_default();
    behind.add(&mut target, state, endpoint.target_ref.as_ref(), port.port, protocol);
    target.labels()
}

impl<'a> Behind<'a> {
    /// Adds the labels of the pod behind an address, and of its container with the port.
    fn add(
        &mut self,
        target: &mut Set<'_>,
        state: &'a State,
        object: Option<&TargetRef>,
        port: Option<i64>,
        protocol: &str,
    ) {
        let Some(object) = object.filter(|object| &*object.kind == "Pod") else { return };
        let key = format!("{}/{}", object.namespace, object.name);
        let Some(pod) = state.pods.get(&key) else { return };
        add_pod(target, state, pod);
        for (container, is_init) in containers(pod) {
            let found = container.ports.iter().find(|it| Some(it.container_port) == port);
            if found.is_some() {
                add_container(target, container, is_init, found);
                target.add("pod_container_port_protocol", protocol);
            }
        }
        self.0.entry(key).or_insert((pod, Vec::new())).1.extend(port);
    }

    /// Targets of ports of the pods that the service does not have.
    fn further_ports(self, state: &State) -> Vec<Labels> {
        let mut targets = Vec::new();
        for (pod, seen) in self.0.into_values() {
            let address = &pod.status.pod_ip;
            if address.is_empty() {
                continue;
            }
            for (container, is_init) in containers(pod) {
                let further = container.ports.iter();
                for port in further.filter(|port| !seen.contains(&port.container_port)) {
                    let mut target = state.names.set();
                    target.address(&host_port(address, port.container_port));
                    add_container(&mut target, container, is_init, Some(port));
                    add_pod(&mut target, state, pod);
                    targets.push(target.labels());
                }
            }
        }
        targets
    }
}
