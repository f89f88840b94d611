//! The detector `elastic_beanstalk`: the file that Elastic Beanstalk writes where X-Ray is enabled.

use sluice_config::Fields;
use sluice_flow::BoxFuture;

use super::super::detector::{Detected, Detector, Enabled, Failure};
use super::super::surroundings::{Surroundings, text_in};

const ATTRIBUTES: [(&str, bool); 7] = [
    ("cloud.platform", true),
    ("cloud.provider", true),
    ("deployment.environment", true),
    // The Collector has these two behind a feature gate.
    ("deployment.environment.name", false),
    ("deployment.id", false),
    ("service.instance.id", true),
    ("service.version", true),
];
const FILE: &str = "/var/elasticbeanstalk/xray/environment.conf";

#[derive(Debug)]
pub(super) struct ElasticBeanstalk(Enabled);

impl ElasticBeanstalk {
    pub(super) fn read(fields: &mut Fields<'_>) -> ElasticBeanstalk {
        ElasticBeanstalk(Enabled::read(fields, &ATTRIBUTES))
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let text = around.read(FILE).await.map_err(Failure::Broken)?;
        let text = text.ok_or_else(|| Failure::Missing(format!("there is no {FILE}")))?;
        let broken = |error| Failure::Broken(format!("{FILE} cannot be read: {error}"));
        let file: serde_json::Value = serde_json::from_str(&text).map_err(broken)?;
        let id = file.get("deployment_id").and_then(serde_json::Value::as_i64).unwrap_or(0);
        let mut found = self.0.resource();
        found.text("cloud.provider", "aws");
        found.text("cloud.platform", "aws_elastic_beanstalk");
        found.text("service.instance.id", id.to_string());
        found.text("deployment.id", id.to_string());
        let named = |key| text_in(&file, &[key]).unwrap_or_default();
        found.text("deployment.environment", named("environment_name"));
        found.text("deployment.environment.name", named("environment_name"));
        found.text("service.version", named("version_label"));
        found.done()
    }
}

impl Detector for ElasticBeanstalk {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}
