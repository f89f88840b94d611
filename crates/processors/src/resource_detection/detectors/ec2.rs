//! The detector `ec2`: an instance of Amazon EC2, from its service of metadata.

use sluice_config::{Fields, Pattern};
use sluice_flow::BoxFuture;
use sluice_otlp::AnyValue;

use super::super::detector::{Builder, Detected, Detector, Enabled, Failure};
use super::super::surroundings::{Surroundings, text_in};
use super::azure::read_patterns;
use super::imds::Imds;

const ATTRIBUTES: [(&str, bool); 9] = [
    ("cloud.account.id", true),
    ("cloud.availability_zone", true),
    ("cloud.platform", true),
    ("cloud.provider", true),
    ("cloud.region", true),
    ("host.id", true),
    ("host.image.id", true),
    ("host.name", true),
    ("host.type", true),
];
/// Attributes, and where the identity document has them.
pub(super) const IDENTITY: [(&str, &str); 6] = [
    ("cloud.region", "region"),
    ("cloud.account.id", "accountId"),
    ("cloud.availability_zone", "availabilityZone"),
    ("host.id", "instanceId"),
    ("host.image.id", "imageId"),
    ("host.type", "instanceType"),
];

#[derive(Debug)]
pub(super) struct Ec2 {
    enabled: Enabled,
    tags: Vec<Pattern>,
    fails_on_missing: bool,
}

impl Ec2 {
    pub(super) fn read(fields: &mut Fields<'_>) -> Ec2 {
        let enabled = Enabled::read(fields, &ATTRIBUTES);
        let doc = "Regular expressions. A tag of the instance whose key matches one becomes \
                   `ec2.tag.<key>`. They need `tags_from_imds: true`.";
        let tags = read_patterns(fields, "tags", doc);
        let doc = "Read tags from the service of metadata. The instance has to allow it \
                   (`InstanceMetadataTags`).";
        let from_imds = fields.boolean("tags_from_imds", false, doc);
        if !tags.is_empty() && !from_imds {
            let hint =
                "set `tags_from_imds: true`, and allow it in the instance's metadata options";
            let message = "needs EC2's API `DescribeTags`, which is not in this build of Sluice";
            fields.error_at_with_hint("tags", message, hint);
        }
        let why = "`retry` of the processor is for all detectors";
        fields.no_effect("max_attempts", why);
        fields.no_effect("max_backoff", why);
        let doc = "The former name of the processor's own `fail_on_missing_metadata`.";
        let fails_on_missing = fields.boolean("fail_on_missing_metadata", false, doc);
        if fails_on_missing {
            let message = "is deprecated: use `fail_on_missing_metadata` of the processor";
            fields.warn_at("fail_on_missing_metadata", message);
        }
        Ec2 { enabled, tags, fails_on_missing }
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let imds = Imds::open(around).await.map_err(Failure::Missing)?;
        imds.metadata("instance-id").await.map_err(Failure::Missing)?;
        let identity = imds.identity().await.map_err(Failure::Broken)?;
        let host_name = imds.metadata("hostname").await.map_err(Failure::Broken)?;
        let mut found = self.enabled.resource();
        found.text("cloud.provider", "aws");
        found.text("cloud.platform", "aws_ec2");
        for (name, key) in IDENTITY {
            found.text(name, text_in(&identity, &[key]).unwrap_or_default());
        }
        found.text("host.name", host_name);
        if !self.tags.is_empty() {
            self.add_tags(&imds, &mut found).await;
        }
        found.done()
    }

    /// Tags that cannot be read are left out, as in the Collector.
    async fn add_tags(&self, imds: &Imds<'_>, found: &mut Builder<'_>) {
        let left_out = |reason: String| {
            tracing::warn!(%reason, "tags of the instance cannot be read: they are left out");
        };
        let keys = match imds.metadata("tags/instance").await {
            Ok(keys) => keys,
            Err(reason) => return left_out(reason),
        };
        let keys = keys.lines().map(str::trim).filter(|key| !key.is_empty());
        for key in keys.filter(|key| self.tags.iter().any(|tag| tag.matches(key.as_bytes()))) {
            match imds.metadata(&format!("tags/instance/{key}")).await {
                Ok(value) => found.add(format!("ec2.tag.{key}"), AnyValue::String(value)),
                Err(reason) => left_out(reason),
            }
        }
    }
}

impl Detector for Ec2 {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }

    fn fails_on_missing(&self) -> bool {
        self.fails_on_missing
    }
}
