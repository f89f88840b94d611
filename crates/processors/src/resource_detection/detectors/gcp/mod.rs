//! The detector `gcp`: Google's Compute Engine, GKE, Cloud Run and Functions, App Engine and Bare
//! Metal Solution, from variables and the service of metadata.

mod service;

use sluice_config::Fields;
use sluice_flow::BoxFuture;

use super::super::detector::{Detected, Detector, Enabled};
use super::super::surroundings::Surroundings;
use service::Service;

const ATTRIBUTES: [(&str, bool); 19] = [
    ("cloud.account.id", true),
    ("cloud.availability_zone", true),
    ("cloud.platform", true),
    ("cloud.provider", true),
    ("cloud.region", true),
    ("faas.instance", true),
    ("faas.name", true),
    ("faas.version", true),
    ("gcp.cloud_run.job.execution", true),
    ("gcp.cloud_run.job.task_index", true),
    ("gcp.gce.instance.hostname", false),
    ("gcp.gce.instance.name", false),
    ("gcp.gce.instance_group_manager.name", true),
    ("gcp.gce.instance_group_manager.region", true),
    ("gcp.gce.instance_group_manager.zone", true),
    ("host.id", true),
    ("host.name", true),
    ("host.type", true),
    ("k8s.cluster.name", true),
];

#[derive(Debug)]
pub(super) struct Gcp(Enabled);

impl Gcp {
    pub(super) fn read(fields: &mut Fields<'_>) -> Gcp {
        let why = "labels of an instance need Compute Engine's own API";
        fields.not_yet("labels", why);
        Gcp(Enabled::read(fields, &ATTRIBUTES))
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let mut found = self.0.resource();
        found.text("cloud.provider", "gcp");
        let names = ["BMS_PROJECT_ID", "BMS_INSTANCE_ID", "BMS_REGION"];
        if let [Some(project), Some(instance), Some(region)] = names.map(|it| around.given(it)) {
            found.text("cloud.account.id", project);
            found.text("cloud.platform", "gcp_bare_metal_solution");
            found.text("host.name", instance);
            found.text("cloud.region", region);
            return found.done();
        }
        let service = Service::open(around).await?;
        found.try_text("cloud.account.id", service.get("project/project-id").await);
        service.add_platform(&mut found).await;
        found.done()
    }
}

impl Detector for Gcp {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}
