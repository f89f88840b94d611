//! The detector `kubeadm`: a cluster that kubeadm made, from the configuration that it left there.

use sluice_config::{Fields, read_text};
use sluice_flow::BoxFuture;
use sluice_kubernetes::{Access, Client};

use super::super::detector::{Detected, Detector, Enabled, Failure};
use super::super::surroundings::{Surroundings, text_in};
use super::k8s_api::{cluster_uid, object, read_access, told};

const ATTRIBUTES: [(&str, bool); 2] = [("k8s.cluster.name", true), ("k8s.cluster.uid", true)];
const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config";

#[derive(Debug)]
pub(super) struct Kubeadm {
    enabled: Enabled,
    access: Access,
}

impl Kubeadm {
    pub(super) fn read(fields: &mut Fields<'_>) -> Kubeadm {
        let access = read_access(fields);
        Kubeadm { enabled: Enabled::read(fields, &ATTRIBUTES), access }
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let client = Client::new(self.access.clone());
        let mut found = self.enabled.resource();
        if self.enabled.has("k8s.cluster.name") {
            let what = "the config map kubeadm-config";
            let missing = |failure| Failure::Missing(told(&failure, what, "configmaps"));
            let map = object(around, &client, CONFIG_MAP).await.map_err(missing)?;
            let text = text_in(&map, &["data", "ClusterConfiguration"]);
            let missing = || Failure::Missing(format!("{what} has no ClusterConfiguration"));
            found.text("k8s.cluster.name", cluster_name(text.ok_or_else(missing)?)?);
        }
        if self.enabled.has("k8s.cluster.uid") {
            let what = "the namespace kube-system";
            let missing = |failure| Failure::Missing(told(&failure, what, "namespaces"));
            let uid = cluster_uid(around, &client).await.map_err(missing)?;
            found.text("k8s.cluster.uid", uid);
        }
        found.done()
    }
}

/// The name of the cluster in kubeadm's own configuration, which is YAML.
fn cluster_name(text: &str) -> Result<String, Failure> {
    let (name, problems) = read_text("ClusterConfiguration", text, |fields| {
        let name = fields.string("clusterName", "", "");
        fields.accept_rest();
        name
    });
    match problems.has_errors() {
        true => Err(Failure::Missing("the ClusterConfiguration of kubeadm is no YAML".to_owned())),
        false => Ok(name),
    }
}

impl Detector for Kubeadm {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}
