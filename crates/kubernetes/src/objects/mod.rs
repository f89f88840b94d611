//! The fields of objects that are kept. All others are skipped while they are read.
//!
//! Servers in Go write null for what is empty: null is read as absent everywhere.

mod network;
pub mod observed;
mod pod;
mod weight;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

pub use network::{
    Address, Conditions, Endpoint, EndpointPort, EndpointSlice, Endpoints, Http, Ingress,
    IngressPath, IngressRule, IngressSpec, IngressTls, Service, ServicePort, ServiceSpec, Subset,
    TargetRef,
};
pub use pod::{
    Condition, Container, ContainerPort, ContainerStatus, Node, NodeAddress, NodeSpec, NodeStatus,
    Pod, PodSpec, PodStatus,
};

/// Labels or annotations.
pub type Pairs = BTreeMap<Box<str>, Box<str>>;

/// An object of the API.
pub trait Object: for<'de> Deserialize<'de> + Send + 'static {
    fn meta(&self) -> &Meta;

    /// Memory besides its own structure, in bytes, about.
    fn heap_bytes(&self) -> usize {
        weight::Weigh::heap_bytes(self.meta())
    }
}

/// The metadata that all objects have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta {
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub namespace: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub uid: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub resource_version: Box<str>,
    /// RFC 3339, in UTC.
    #[serde(deserialize_with = "nullable")]
    pub creation_timestamp: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub labels: Pairs,
    #[serde(deserialize_with = "nullable")]
    pub annotations: Pairs,
    #[serde(deserialize_with = "nullable")]
    pub owner_references: Vec<Owner>,
}

/// An object that another one belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Owner {
    #[serde(deserialize_with = "nullable")]
    pub kind: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub uid: Box<str>,
    /// It manages the object.
    #[serde(deserialize_with = "nullable")]
    pub controller: bool,
}

/// An object of which only the metadata is of interest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Partial {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Meta,
}

impl Object for Partial {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Meta {
    /// `namespace/name`, or the name alone.
    pub fn key(&self) -> String {
        match &*self.namespace {
            "" => self.name.to_string(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }

    /// The owner that manages the object.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// The first owner of a kind.
    pub fn owner(&self, kind: &str) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| &*owner.kind == kind)
    }
}

/// Null is the default.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: objects as API servers write them, with fields that are not kept, and with null
    /// for lists. Guarantee: what is kept is there, and nothing else is an error.
    #[test]
    fn objects_are_read_with_what_is_kept_of_them() {
        let pod: Pod = serde_json::from_str(
            r#"{"kind":"Pod","metadata":{"name":"a","namespace":"n","uid":"u","labels":null,
            "managedFields":[{"fieldsV1":{"f:x":{}}}],
            "ownerReferences":[{"kind":"ReplicaSet","name":"r","uid":"v","controller":true}]},
            "spec":{"nodeName":"w","containers":[{"name":"c","image":"i","ports":[
            {"containerPort":80,"protocol":"TCP"}],"env":[{"name":"X"}]}],"initContainers":null},
            "status":{"podIP":"10.0.0.1","phase":"Running","containerStatuses":[
            {"name":"c","containerID":"containerd://1","restartCount":2,"state":{}}]}}"#,
        )
        .expect("is read");
        assert_eq!(pod.meta().key(), "n/a");
        assert_eq!(pod.meta().controller().map(|owner| &*owner.name), Some("r"));
        assert_eq!(pod.spec.containers[0].ports[0].container_port, 80);
        assert_eq!(pod.status.container_statuses[0].restart_count, 2);
        let slice: EndpointSlice = serde_json::from_str(
            r#"{"metadata":{"name":"s"},"addressType":"IPv4","endpoints":null,"ports":null}"#,
        )
        .expect("is read");
        assert!(slice.endpoints.is_empty() && slice.ports.is_empty());
        assert_eq!(slice.meta().key(), "s");
    }
}
