//! Kinds of objects, and which of them are asked for.

use std::fmt::{self, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Kept as they are in a URL's query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    Pods,
    Services,
    Endpoints,
    Nodes,
    Namespaces,
    EndpointSlices,
    Ingresses,
    Deployments,
    ReplicaSets,
    StatefulSets,
    DaemonSets,
    Jobs,
    CronJobs,
    ReplicationControllers,
    ResourceQuotas,
    PersistentVolumes,
    PersistentVolumeClaims,
    HorizontalPodAutoscalers,
    /// Of OpenShift.
    ClusterResourceQuotas,
}

/// Objects that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub resource: Resource,
    /// `None`: all namespaces, or a kind that has none.
    pub namespace: Option<String>,
    /// Selectors as the API has them. Empty: none.
    pub labels: String,
    pub fields: String,
    /// Ask only for names, labels, annotations and owners.
    pub only_metadata: bool,
    /// The use of the objects, for messages: "attributes of namespaces".
    pub purpose: String,
}

impl Resource {
    /// The name in URLs and in roles.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Pods => "pods",
            Resource::Services => "services",
            Resource::Endpoints => "endpoints",
            Resource::Nodes => "nodes",
            Resource::Namespaces => "namespaces",
            Resource::EndpointSlices => "endpointslices",
            Resource::Ingresses => "ingresses",
            Resource::Deployments => "deployments",
            Resource::ReplicaSets => "replicasets",
            Resource::StatefulSets => "statefulsets",
            Resource::DaemonSets => "daemonsets",
            Resource::Jobs => "jobs",
            Resource::CronJobs => "cronjobs",
            Resource::ReplicationControllers => "replicationcontrollers",
            Resource::ResourceQuotas => "resourcequotas",
            Resource::PersistentVolumes => "persistentvolumes",
            Resource::PersistentVolumeClaims => "persistentvolumeclaims",
            Resource::HorizontalPodAutoscalers => "horizontalpodautoscalers",
            Resource::ClusterResourceQuotas => "clusterresourcequotas",
        }
    }

    /// The API group in roles; empty for the core.
    pub fn group(self) -> &'static str {
        match self {
            Resource::Pods
            | Resource::Services
            | Resource::Endpoints
            | Resource::Nodes
            | Resource::Namespaces
            | Resource::ReplicationControllers
            | Resource::ResourceQuotas
            | Resource::PersistentVolumes
            | Resource::PersistentVolumeClaims => "",
            Resource::EndpointSlices => "discovery.k8s.io",
            Resource::Ingresses => "networking.k8s.io",
            Resource::Deployments
            | Resource::ReplicaSets
            | Resource::StatefulSets
            | Resource::DaemonSets => "apps",
            Resource::Jobs | Resource::CronJobs => "batch",
            Resource::HorizontalPodAutoscalers => "autoscaling",
            Resource::ClusterResourceQuotas => "quota.openshift.io",
        }
    }

    fn version(self) -> &'static str {
        if self == Resource::HorizontalPodAutoscalers { "v2" } else { "v1" }
    }

    /// Whether its objects are in namespaces.
    pub fn is_namespaced(self) -> bool {
        !matches!(
            self,
            Resource::Nodes
                | Resource::Namespaces
                | Resource::PersistentVolumes
                | Resource::ClusterResourceQuotas
        )
    }
}

/// A name as a part of a path.
pub fn segment(name: &str) -> String {
    utf8_percent_encode(name, PLAIN).to_string()
}

impl Query {
    /// All objects of a kind.
    pub fn all(resource: Resource, purpose: &str) -> Query {
        let (namespace, labels, fields) = Default::default();
        let (only_metadata, purpose) = (false, purpose.to_owned());
        Query { resource, namespace, labels, fields, only_metadata, purpose }
    }

    fn path(&self) -> String {
        let (group, name) = (self.resource.group(), self.resource.name());
        let version = self.resource.version();
        let mut path = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        if let Some(namespace) = self.namespace.as_ref().filter(|_| self.resource.is_namespaced()) {
            let _ = write!(path, "/namespaces/{}", utf8_percent_encode(namespace, PLAIN));
        }
        let _ = write!(path, "/{name}?");
        for (key, value) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)] {
            if !value.is_empty() {
                let _ = write!(path, "{key}={}&", utf8_percent_encode(value, PLAIN));
            }
        }
        path
    }

    /// The path of a page. `from`: where the page before has ended, empty for the first one.
    pub(crate) fn page(&self, limit: usize, from: &str) -> String {
        let mut path = self.path();
        let _ = write!(path, "limit={limit}");
        if !from.is_empty() {
            let _ = write!(path, "&continue={}", utf8_percent_encode(from, PLAIN));
        }
        path
    }

    /// The path of a watch of changes since a version. The API server ends it after `seconds`.
    pub(crate) fn watch(&self, version: &str, seconds: u64) -> String {
        let mut path = self.path();
        let version = utf8_percent_encode(version, PLAIN);
        let _ = write!(path, "watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let _ = write!(path, "&timeoutSeconds={seconds}");
        path
    }

    /// The media types of a page and of a watch.
    pub(crate) fn accept(&self, is_list: bool) -> &'static str {
        match (self.only_metadata, is_list) {
            (false, _) => "application/json",
            (true, true) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            (true, false) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.resource.name())?;
        match &self.namespace {
            Some(namespace) if self.resource.is_namespaced() => {
                write!(formatter, " of the namespace {namespace}")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_as_the_api_has_them() {
        let query = Query {
            namespace: Some("a b".to_owned()),
            labels: "app=x,tier!=y".to_owned(),
            fields: "spec.nodeName=n1".to_owned(),
            ..Query::all(Resource::Pods, "")
        };
        let selectors = "labelSelector=app%3Dx%2Ctier%21%3Dy&fieldSelector=spec.nodeName%3Dn1";
        let path = format!("/api/v1/namespaces/a%20b/pods?{selectors}");
        assert_eq!(query.page(250, ""), format!("{path}&limit=250"));
        assert_eq!(query.page(250, "x=="), format!("{path}&limit=250&continue=x%3D%3D"));
        let watch = "watch=true&allowWatchBookmarks=true&resourceVersion=12&timeoutSeconds=60";
        assert_eq!(query.watch("12", 60), format!("{path}&{watch}"));
        let node = Query { namespace: Some("x".to_owned()), ..Query::all(Resource::Nodes, "") };
        assert_eq!(node.page(1, ""), "/api/v1/nodes?limit=1");
        let slices = Query::all(Resource::EndpointSlices, "");
        assert_eq!(slices.page(1, ""), "/apis/discovery.k8s.io/v1/endpointslices?limit=1");
        let scaling = Query::all(Resource::HorizontalPodAutoscalers, "");
        assert_eq!(scaling.page(1, ""), "/apis/autoscaling/v2/horizontalpodautoscalers?limit=1");
        assert_eq!([query.to_string(), node.to_string()], ["pods of the namespace a b", "nodes"]);
    }
}
