//! The detector `azure`: a virtual machine of Azure, from its service of metadata.

use serde_json::Value as Json;
use sluice_config::{Fields, Pattern};
use sluice_flow::BoxFuture;
use sluice_otlp::AnyValue;

use super::super::detector::{Detected, Detector, Enabled, Failure};
use super::super::surroundings::{Surroundings, text_in};

const ATTRIBUTES: [(&str, bool); 11] = [
    ("azure.resourcegroup.name", true),
    ("azure.vm.name", true),
    ("azure.vm.scaleset.name", true),
    ("azure.vm.size", true),
    ("cloud.account.id", true),
    ("cloud.availability_zone", false),
    ("cloud.platform", true),
    ("cloud.provider", true),
    ("cloud.region", true),
    ("host.id", true),
    ("host.name", true),
];
const QUERY: &str = "/metadata/instance/compute?api-version=2020-09-01&format=json";

#[derive(Debug)]
pub(super) struct Azure {
    enabled: Enabled,
    tags: Vec<Pattern>,
}

/// Reads patterns, one of which a name has to match.
pub(super) fn read_patterns(fields: &mut Fields<'_>, key: &str, doc: &str) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for text in fields.string_list(key, &[], doc) {
        match Pattern::new(&text) {
            Ok(pattern) => patterns.push(pattern),
            Err(reason) => {
                let message = format!("has {text:?}, which is no regular expression: {reason}");
                fields.error_at(key, &message);
            }
        }
    }
    patterns
}

/// The metadata of the machine.
pub(super) async fn compute(around: &Surroundings) -> Result<Json, Failure> {
    let url = format!("{}{QUERY}", around.metadata());
    around.json(&url, &[("metadata", "true")]).await.map_err(Failure::Missing)
}

/// A text of the metadata, whatever the case of its key: Azure's own pages differ.
pub(super) fn text_of<'a>(compute: &'a Json, key: &str) -> &'a str {
    let is_key = |known: &&String| known.eq_ignore_ascii_case(key);
    let mut pairs = compute.as_object().into_iter().flatten();
    let found = pairs.find(|(known, _)| is_key(known)).and_then(|(_, value)| value.as_str());
    found.unwrap_or_default()
}

impl Azure {
    pub(super) fn read(fields: &mut Fields<'_>) -> Azure {
        let enabled = Enabled::read(fields, &ATTRIBUTES);
        let doc = "Regular expressions. A tag whose name matches one becomes `azure.tag.<name>`.";
        Azure { enabled, tags: read_patterns(fields, "tags", doc) }
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let compute = compute(around).await?;
        let given = |key| Some(text_of(&compute, key)).filter(|text| !text.is_empty());
        let mut found = self.enabled.resource();
        found.text("cloud.provider", "azure");
        found.text("cloud.platform", "azure.vm");
        // Machines made of specialized disks have no name of their own.
        let own = text_in(&compute, &["osProfile", "computerName"]);
        let own = own.filter(|name| !name.is_empty());
        found.found("host.name", own.or(given("name")));
        found.text("cloud.region", text_of(&compute, "location"));
        found.text("host.id", text_of(&compute, "vmId"));
        found.text("cloud.account.id", text_of(&compute, "subscriptionId"));
        found.found("cloud.availability_zone", given("zone"));
        found.text("azure.vm.name", text_of(&compute, "name"));
        found.text("azure.vm.size", text_of(&compute, "vmSize"));
        found.found("azure.vm.scaleset.name", given("vmScaleSetName"));
        found.text("azure.resourcegroup.name", text_of(&compute, "resourceGroupName"));
        let tags = compute.get("tagsList").and_then(Json::as_array).into_iter().flatten();
        for tag in tags {
            let (name, value) = (text_of(tag, "name"), text_of(tag, "value"));
            if self.tags.iter().any(|pattern| pattern.matches(name.as_bytes())) {
                found.add(format!("azure.tag.{name}"), AnyValue::String(value.to_owned()));
            }
        }
        found.done()
    }
}

impl Detector for Azure {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}
