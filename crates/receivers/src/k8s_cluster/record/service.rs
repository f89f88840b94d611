//! Services, with the endpoints that their slices have.

use std::collections::{BTreeMap, HashMap};

use sluice_kubernetes::objects::observed::{ObservedService, ServiceSlice};

use super::super::recorder::{Recorder, Value};
use super::super::tables::{Attribute, Metric};

/// The label of a slice that names its service.
pub(in crate::k8s_cluster) const SERVICE_NAME: &str = "kubernetes.io/service-name";
const ADDRESS_TYPES: [&str; 3] = ["IPv4", "IPv6", "FQDN"];
const CONDITIONS: [&str; 3] = ["ready", "serving", "terminating"];

/// Endpoints of each service: by namespace and name, then by type of address and zone, as many as
/// are ready, serving and terminating.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::k8s_cluster) struct Endpoints(HashMap<(Box<str>, Box<str>), OfService>);

type OfService = BTreeMap<(Box<str>, Box<str>), [i64; 3]>;

impl Endpoints {
    pub(in crate::k8s_cluster) fn add(&mut self, slice: &ServiceSlice) {
        let Some(service) = slice.metadata.labels.get(SERVICE_NAME) else { return };
        let service = (slice.metadata.namespace.clone(), service.clone());
        let of_service = self.0.entry(service).or_default();
        for endpoint in &slice.endpoints {
            let conditions = &endpoint.conditions;
            let is_ready = conditions.ready.unwrap_or(true);
            let is_serving = conditions.serving.unwrap_or(is_ready);
            let is_so = [is_ready, is_serving, conditions.terminating == Some(true)];
            let key = (slice.address_type.clone(), endpoint.zone.clone());
            let counts = of_service.entry(key).or_default();
            for (count, is_so) in counts.iter_mut().zip(is_so) {
                *count += i64::from(is_so);
            }
        }
    }
}

pub(super) fn record(it: &ObservedService, endpoints: &Endpoints, out: &mut Recorder<'_>) {
    let (meta, spec) = (&it.metadata, &it.spec);
    out.attribute(Attribute::ServiceName, &meta.name);
    out.attribute(Attribute::ServiceUid, &meta.uid);
    out.attribute(Attribute::NamespaceName, &meta.namespace);
    out.attribute(Attribute::ServiceType, &spec.kind);
    if let Some(distribution) = &spec.traffic_distribution {
        out.attribute(Attribute::ServiceTrafficDistribution, distribution);
    }
    out.flag(Attribute::ServicePublishNotReadyAddresses, spec.publish_not_ready_addresses);
    let service = (meta.namespace.clone(), meta.name.clone());
    for ((address_type, zone), counts) in endpoints.0.get(&service).into_iter().flatten() {
        if !ADDRESS_TYPES.contains(&&**address_type) {
            continue;
        }
        for (condition, count) in CONDITIONS.iter().zip(counts) {
            let attributes = [
                ("k8s.service.endpoint.address_type", &**address_type),
                ("k8s.service.endpoint.condition", *condition),
                ("k8s.service.endpoint.zone", &**zone),
            ];
            out.point(Metric::ServiceEndpointCount, Value::Int(*count), &attributes);
        }
    }
    if &*spec.kind == "LoadBalancer" {
        let points = it.status.load_balancer.ingress.len() as i64;
        out.int(Metric::ServiceLoadBalancerIngressCount, points);
    }
    out.finish();
}
