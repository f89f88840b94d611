//! The detector `aks`: a node of Azure's AKS, from its service of metadata.

use sluice_config::Fields;
use sluice_flow::BoxFuture;

use super::super::detector::{Detected, Detector, Enabled};
use super::super::surroundings::Surroundings;
use super::azure::{compute, text_of};

const ATTRIBUTES: [(&str, bool); 3] =
    [("cloud.platform", true), ("cloud.provider", true), ("k8s.cluster.name", false)];

#[derive(Debug)]
pub(super) struct Aks(Enabled);

impl Aks {
    pub(super) fn read(fields: &mut Fields<'_>) -> Aks {
        Aks(Enabled::read(fields, &ATTRIBUTES))
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        if around.given("KUBERNETES_SERVICE_HOST").is_none() {
            // No error even if missing metadata is one, as in the Collector.
            return Ok(Default::default());
        }
        let compute = compute(around).await?;
        let mut found = self.0.resource();
        found.text("cloud.provider", "azure");
        found.text("cloud.platform", "azure.aks");
        found.text("k8s.cluster.name", cluster_name(text_of(&compute, "resourceGroupName")));
        found.done()
    }
}

/// AKS names the group of a cluster's machines `MC_<group>_<cluster>_<location>`. A name of the
/// user's own, or with more underscores, stands for the cluster: it is unique, too.
fn cluster_name(group: &str) -> &str {
    match group.split('_').collect::<Vec<_>>()[..] {
        [mc, _, cluster, _] if mc.eq_ignore_ascii_case("mc") => cluster,
        _ => group,
    }
}

impl Detector for Aks {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_has_the_name_of_the_cluster_if_aks_made_it() {
        for (group, name) in [
            ("MC_group_cluster_eastus", "cluster"),
            ("mc_group_cluster_eastus", "cluster"),
            ("MC_group_a_b_eastus", "MC_group_a_b_eastus"),
            ("own-group", "own-group"),
            ("a_b_c_d", "a_b_c_d"),
        ] {
            assert_eq!(cluster_name(group), name);
        }
    }
}
