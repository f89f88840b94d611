//! Options of the mapping to Prometheus' names and labels.

use sluice_config::Fields;
use sluice_prometheus::{Pattern, ResourceLabels, Settings, Strategy};

pub(crate) fn namespace(fields: &mut Fields<'_>) -> String {
    fields.string("namespace", "", "Prefix of the names of metrics.")
}

/// Labels that series have beside their own ones.
pub(crate) fn labels(
    fields: &mut Fields<'_>,
    key: &str,
    strategy: Strategy,
    doc: &str,
) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    for (name, value) in fields.text_map(key, doc) {
        match Settings::label_name(strategy, &name).filter(|_| !value.is_empty()) {
            Some(name) => labels.push((name, value)),
            None => fields.error_at(key, "has an empty name or value"),
        }
    }
    labels
}

pub(crate) fn strategy(fields: &mut Fields<'_>) -> Strategy {
    let doc = "Add suffixes for types and units to names of metrics. `translation_strategy` \
               replaces it.";
    let has_suffixes = fields.boolean("add_metric_suffixes", true, doc);
    let doc = "How names of metrics and attributes become those of metrics and labels: \
               `Underscore…` replaces characters that old versions of Prometheus do not take, \
               `…WithSuffixes` adds types and units. Unset: `UnderscoreEscapingWithSuffixes`, or \
               as `add_metric_suffixes` says.";
    let given = fields.optional_choice("translation_strategy", &Strategy::ALL, doc);
    given.unwrap_or(match has_suffixes {
        true => Strategy::UnderscoreEscapingWithSuffixes,
        false => Strategy::UnderscoreEscapingWithoutSuffixes,
    })
}

pub(crate) fn resource_labels(fields: &mut Fields<'_>) -> ResourceLabels {
    let doc = "Resource attributes that become labels of every series.";
    let by_patterns = fields.section_or_default("resource_constant_labels", doc, |fields| {
        let doc = "Names, in which `*` stands for any text and `?` for any character. Empty while \
                   `excluded` is not: all.";
        let included = fields.string_list("included", &[], doc);
        let excluded = fields.string_list("excluded", &[], "Names that are left out.");
        let all = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        match included.is_empty() && excluded.is_empty() {
            true => ResourceLabels::None,
            false => {
                let (included, excluded) = (all(&included), all(&excluded));
                ResourceLabels::Matching { included, excluded }
            }
        }
    });
    let doc = "The older spelling of `resource_constant_labels`.";
    let older = fields.section_or_default("resource_to_telemetry_conversion", doc, |fields| {
        let enabled = fields.boolean("enabled", false, "Make all resource attributes labels.");
        let doc = "Leave out `service.name`, `service.namespace` and `service.instance.id`.";
        match (enabled, fields.boolean("exclude_service_attributes", false, doc)) {
            (false, _) => ResourceLabels::None,
            (true, false) => ResourceLabels::All,
            (true, true) => ResourceLabels::AllButService,
        }
    });
    if by_patterns != ResourceLabels::None && older != ResourceLabels::None {
        let message = "cannot stand beside `resource_constant_labels`";
        fields.error_at("resource_to_telemetry_conversion", message);
    }
    if by_patterns == ResourceLabels::None { older } else { by_patterns }
}
