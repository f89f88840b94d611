//! Services, their endpoints, and ingresses.

use serde::Deserialize;

use super::weight::Weigh;
use super::{Meta, Object, Pairs, nullable};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Service {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ServiceSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: Box<str>,
    #[serde(rename = "clusterIP", deserialize_with = "nullable")]
    pub cluster_ip: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub external_name: Box<str>,
    #[serde(rename = "loadBalancerIP", deserialize_with = "nullable")]
    pub load_balancer_ip: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ServicePort>,
    #[serde(deserialize_with = "nullable")]
    pub ip_family_policy: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub ip_families: Vec<Box<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServicePort {
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub port: i64,
    #[serde(deserialize_with = "nullable")]
    pub protocol: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    pub subsets: Vec<Subset>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Subset {
    #[serde(deserialize_with = "nullable")]
    pub addresses: Vec<Address>,
    #[serde(deserialize_with = "nullable")]
    pub not_ready_addresses: Vec<Address>,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Address {
    #[serde(deserialize_with = "nullable")]
    pub ip: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub hostname: Box<str>,
    pub node_name: Option<Box<str>>,
    pub target_ref: Option<TargetRef>,
}

/// The object behind an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetRef {
    #[serde(deserialize_with = "nullable")]
    pub kind: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub namespace: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointSlice {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    pub address_type: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<EndpointPort>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Endpoint {
    #[serde(deserialize_with = "nullable")]
    pub addresses: Vec<Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Conditions,
    pub hostname: Option<Box<str>>,
    pub node_name: Option<Box<str>>,
    pub zone: Option<Box<str>>,
    pub target_ref: Option<TargetRef>,
    #[serde(deserialize_with = "nullable")]
    pub deprecated_topology: Pairs,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Conditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointPort {
    pub name: Option<Box<str>>,
    pub protocol: Option<Box<str>>,
    pub port: Option<i64>,
    pub app_protocol: Option<Box<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Ingress {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    pub spec: IngressSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressSpec {
    pub ingress_class_name: Option<Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pub tls: Vec<IngressTls>,
    #[serde(deserialize_with = "nullable")]
    pub rules: Vec<IngressRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct IngressTls {
    #[serde(deserialize_with = "nullable")]
    pub hosts: Vec<Box<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct IngressRule {
    #[serde(deserialize_with = "nullable")]
    pub host: Box<str>,
    pub http: Option<Http>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Http {
    #[serde(deserialize_with = "nullable")]
    pub paths: Vec<IngressPath>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct IngressPath {
    #[serde(deserialize_with = "nullable")]
    pub path: Box<str>,
}

impl Object for Service {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn heap_bytes(&self) -> usize {
        Weigh::heap_bytes(self)
    }
}

impl Object for Endpoints {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn heap_bytes(&self) -> usize {
        Weigh::heap_bytes(self)
    }
}

impl Object for EndpointSlice {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn heap_bytes(&self) -> usize {
        Weigh::heap_bytes(self)
    }
}

impl Object for Ingress {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn heap_bytes(&self) -> usize {
        Weigh::heap_bytes(self)
    }
}
