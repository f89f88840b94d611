//! The detector `oraclecloud`: an instance of Oracle Cloud, from its service of metadata.

use sluice_config::Fields;
use sluice_flow::BoxFuture;

use super::super::detector::{Detected, Detector, Enabled, Failure};
use super::super::surroundings::{Surroundings, text_in};

const ATTRIBUTES: [(&str, bool); 10] = [
    ("cloud.availability_zone", true),
    ("cloud.platform", true),
    ("cloud.provider", true),
    ("cloud.region", true),
    ("cloud.resource_id", false),
    ("host.id", true),
    ("host.name", true),
    ("host.type", true),
    ("k8s.cluster.name", true),
    ("oracle_cloud.realm", true),
];
const PATH: &str = "/opc/v2/instance/";

#[derive(Debug)]
pub(super) struct OracleCloud(Enabled);

impl OracleCloud {
    pub(super) fn read(fields: &mut Fields<'_>) -> OracleCloud {
        OracleCloud(Enabled::read(fields, &ATTRIBUTES))
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let url = format!("{}{PATH}", around.metadata());
        let asked = around.json(&url, &[("authorization", "Bearer Oracle")]).await;
        let instance = asked.map_err(Failure::Missing)?;
        let mut found = self.0.resource();
        found.text("cloud.provider", "oracle_cloud");
        found.text("cloud.platform", "oracle_cloud_oke");
        for (name, path) in [
            ("cloud.region", &["canonicalRegionName"][..]),
            ("cloud.resource_id", &["id"]),
            ("cloud.availability_zone", &["availabilityDomain"]),
            ("host.id", &["id"]),
            ("host.name", &["displayName"]),
            ("host.type", &["shape"]),
            ("k8s.cluster.name", &["metadata", "oke-cluster-display-name"]),
            ("oracle_cloud.realm", &["metadata", "realm"]),
        ] {
            found.text(name, text_in(&instance, path).unwrap_or_default());
        }
        found.done()
    }
}

impl Detector for OracleCloud {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}
