//! The detector `digitalocean`: a droplet, from its service of metadata.

use serde_json::Value as Json;
use sluice_config::Fields;
use sluice_flow::BoxFuture;

use super::super::detector::{Detected, Detector, Enabled, Failure};
use super::super::surroundings::{Surroundings, text_in};

const ATTRIBUTES: [(&str, bool); 4] =
    [("cloud.provider", true), ("cloud.region", true), ("host.id", true), ("host.name", true)];
const PATH: &str = "/metadata/v1.json";

#[derive(Debug)]
pub(super) struct DigitalOcean(Enabled);

impl DigitalOcean {
    pub(super) fn read(fields: &mut Fields<'_>) -> DigitalOcean {
        DigitalOcean(Enabled::read(fields, &ATTRIBUTES))
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let url = format!("{}{PATH}", around.metadata());
        let droplet = around.json(&url, &[]).await.map_err(Failure::Missing)?;
        let id = droplet.get("droplet_id").and_then(Json::as_i64).unwrap_or(0);
        let mut found = self.0.resource();
        found.text("cloud.provider", "digitalocean");
        found.text("host.id", id.to_string());
        found.text("host.name", text_in(&droplet, &["hostname"]).unwrap_or_default());
        found.text("cloud.region", text_in(&droplet, &["region"]).unwrap_or_default());
        found.done()
    }
}

impl Detector for DigitalOcean {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}
