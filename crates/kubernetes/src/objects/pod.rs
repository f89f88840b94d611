//! Pods and nodes.

use serde::Deserialize;

use super::weight::Weigh;
use super::{Meta, Object, nullable};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    pub spec: PodSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(deserialize_with = "nullable")]
    pub node_name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub hostname: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub host_network: bool,
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Container {
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub image: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ContainerPort>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerPort {
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub container_port: i64,
    #[serde(deserialize_with = "nullable")]
    pub protocol: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    #[serde(deserialize_with = "nullable")]
    pub phase: Box<str>,
    #[serde(rename = "podIP", deserialize_with = "nullable")]
    pub pod_ip: Box<str>,
    #[serde(rename = "hostIP", deserialize_with = "nullable")]
    pub host_ip: Box<str>,
    /// RFC 3339, in UTC, so that texts are in the order of times.
    #[serde(deserialize_with = "nullable")]
    pub start_time: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub status: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(rename = "containerID", deserialize_with = "nullable")]
    pub container_id: Box<str>,
    #[serde(rename = "imageID", deserialize_with = "nullable")]
    pub image_id: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub restart_count: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    pub spec: NodeSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    #[serde(rename = "providerID", deserialize_with = "nullable")]
    pub provider_id: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub addresses: Vec<NodeAddress>,
    #[serde(deserialize_with = "nullable")]
    pub daemon_endpoints: DaemonEndpoints,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub address: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DaemonEndpoints {
    #[serde(deserialize_with = "nullable")]
    kubelet_endpoint: DaemonEndpoint,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct DaemonEndpoint {
    #[serde(rename = "Port", deserialize_with = "nullable")]
    port: i64,
}

impl NodeStatus {
    /// The port of the node's kubelet.
    pub fn kubelet_port(&self) -> i64 {
        self.daemon_endpoints.kubelet_endpoint.port
    }
}

impl Object for Pod {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn heap_bytes(&self) -> usize {
        Weigh::heap_bytes(self)
    }
}

impl Object for Node {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn heap_bytes(&self) -> usize {
        Weigh::heap_bytes(self)
    }
}
