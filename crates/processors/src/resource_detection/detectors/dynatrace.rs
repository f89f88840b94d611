//! The detector `dynatrace`: the file of properties that Dynatrace's agent writes.

use sluice_flow::BoxFuture;
use sluice_otlp::AnyValue;

use super::super::detector::{Detected, Detector, Failure, Resource};
use super::super::surroundings::Surroundings;

const FILE: &str = "/var/lib/dynatrace/enrichment/dt_host_metadata.properties";
const PROPERTIES: [&str; 3] = ["dt.entity.host", "host.name", "dt.smartscape.host"];

#[derive(Debug)]
pub(super) struct Dynatrace;

impl Detector for Dynatrace {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(async move {
            let text = around.read(FILE).await.map_err(Failure::Broken)?.unwrap_or_default();
            let mut found = Resource::default();
            // Of a key that occurs twice, the last value counts.
            for (key, value) in text.lines().rev().filter_map(|line| line.split_once('=')) {
                let value = value.trim();
                if PROPERTIES.contains(&key) && !value.is_empty() {
                    let attributes = vec![(key.to_owned(), AnyValue::String(value.to_owned()))];
                    found.merge(Resource { attributes, ..Resource::default() });
                }
            }
            Ok(found)
        })
    }
}
