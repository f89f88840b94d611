//! The detector `k8s_api` (`k8snode`): the node and the cluster, at Kubernetes' API server.

use serde_json::Value as Json;
use sluice_config::Fields;
use sluice_flow::BoxFuture;
use sluice_kubernetes::{Access, Client, Failure as ApiFailure, segment};

use super::super::detector::{Detected, Detector, Enabled, Failure};
use super::super::surroundings::{ANSWER_TIMEOUT, Surroundings, text_in};

const ATTRIBUTES: [(&str, bool); 3] =
    [("k8s.cluster.uid", true), ("k8s.node.name", true), ("k8s.node.uid", true)];
const NODE_VARIABLE: &str = "K8S_NODE_NAME";

#[derive(Debug)]
pub(super) struct K8sApi {
    enabled: Enabled,
    node_variable: String,
    access: Access,
}

/// Reads who we are for the API server.
pub(super) fn read_access(fields: &mut Fields<'_>) -> Access {
    let access = Access::read(fields);
    let why = "few objects are asked for, each once";
    fields.no_effect("kube_api_qps", why);
    fields.no_effect("kube_api_burst", why);
    access
}

/// An object of the API. `path`: from the root of the API.
pub(super) async fn object(
    around: &Surroundings,
    client: &Client,
    path: &str,
) -> Result<Json, ApiFailure> {
    let page = around.within(ANSWER_TIMEOUT, client.page(path, "application/json")).await;
    let page = page.map_err(ApiFailure::Other)??;
    serde_json::from_slice(&page).map_err(|error| ApiFailure::Other(error.to_string()))
}

/// A failure in words, with the permission that may be missing.
pub(super) fn told(failure: &ApiFailure, what: &str, resource: &str) -> String {
    match failure {
        ApiFailure::Forbidden(reason) => {
            format!("{what}: {reason}: the role needs `get` of the resource `{resource}`")
        }
        ApiFailure::NotFound(reason) => format!("{what}: {reason}"),
        ApiFailure::Unauthorized(reason) => {
            format!("{what}: the API server does not know us: {reason}")
        }
        ApiFailure::Busy { reason, .. }
        | ApiFailure::Unavailable(reason)
        | ApiFailure::Other(reason) => format!("{what}: {reason}"),
        ApiFailure::Gone | ApiFailure::TooLarge => format!("{what}: there is no usable answer"),
    }
}

/// The UID of the namespace kube-system, which stands for the cluster.
pub(super) async fn cluster_uid(
    around: &Surroundings,
    client: &Client,
) -> Result<String, ApiFailure> {
    let namespace = object(around, client, "/api/v1/namespaces/kube-system").await?;
    let uid = text_in(&namespace, &["metadata", "uid"]).filter(|uid| !uid.is_empty());
    uid.map(str::to_owned).ok_or_else(|| ApiFailure::Other("it has no UID".to_owned()))
}

impl K8sApi {
    pub(super) fn read(fields: &mut Fields<'_>) -> K8sApi {
        let access = read_access(fields);
        let doc = "Environment variable with the name of the node.";
        let node_variable = fields.string("node_from_env_var", NODE_VARIABLE, doc);
        let node_variable = Some(node_variable).filter(|name| !name.is_empty());
        let node_variable = node_variable.unwrap_or_else(|| NODE_VARIABLE.to_owned());
        K8sApi { enabled: Enabled::read(fields, &ATTRIBUTES), node_variable, access }
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let name = &self.node_variable;
        let node = around.given(name).ok_or_else(|| {
            Failure::Final(format!(
                "the environment variable {name} has no name of a node: set it from the field \
                 `spec.nodeName` of the pod, or name another one in `node_from_env_var`"
            ))
        })?;
        let client = Client::new(self.access.clone());
        let mut found = self.enabled.resource();
        if self.enabled.has_any(&["k8s.node.name", "k8s.node.uid"]) {
            let path = format!("/api/v1/nodes/{}", segment(&node));
            let object = object(around, &client, &path).await;
            let missing = |failure| told(&failure, &format!("the node {node}"), "nodes");
            let object = object.map_err(|failure| Failure::Missing(missing(failure)))?;
            let text = |key| text_in(&object, &["metadata", key]).unwrap_or_default();
            found.text("k8s.node.uid", text("uid"));
            found.text("k8s.node.name", text("name"));
        }
        if self.enabled.has("k8s.cluster.uid") {
            match cluster_uid(around, &client).await {
                Ok(uid) => found.text("k8s.cluster.uid", uid),
                Err(failure) => {
                    let reason = told(&failure, "the namespace kube-system", "namespaces");
                    let is_denied =
                        matches!(failure, ApiFailure::Forbidden(_) | ApiFailure::Unauthorized(_));
                    if !is_denied {
                        return Err(Failure::Broken(reason));
                    }
                    // Roles of before this attribute may lack it, as the Collector allows.
                    tracing::warn!(%reason, "`k8s.cluster.uid` is left out");
                }
            }
        }
        found.done()
    }
}

impl Detector for K8sApi {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}
