//! The role `service`: a target for each port.

use sluice_kubernetes::objects::Service;

use super::names::{Set, host_port};
use super::state::State;
use crate::group::Group;

pub(super) fn group(state: &State, service: &Service) -> Group {
    let (meta, spec) = (&service.metadata, &service.spec);
    let mut labels = state.names.set();
    add_service(&mut labels, service);
    labels.add_namespace(state, &meta.namespace);
    let host = format!("{}.{}.svc", meta.name, meta.namespace);
    let targets = spec.ports.iter().map(|port| {
        let mut target = state.names.set();
        target.address(&host_port(&host, port.port));
        target.add("service_port_name", &port.name);
        target.add("service_port_number", &port.port.to_string());
        target.add("service_port_protocol", &port.protocol);
        target.add("service_type", &spec.kind);
        match &*spec.kind {
            "ExternalName" => target.add("service_external_name", &spec.external_name),
            _ => target.add("service_cluster_ip", &spec.cluster_ip),
        }
        if &*spec.kind == "LoadBalancer" {
            target.add("service_loadbalancer_ip", &spec.load_balancer_ip);
        }
        target.labels()
    });
    let targets = targets.collect();
    Group { key: format!("svc/{}", meta.key()).into(), labels: labels.labels(), targets }
}

pub(super) fn add_service(labels: &mut Set<'_>, service: &Service) {
    labels.add_meta("service", &service.metadata);
}
