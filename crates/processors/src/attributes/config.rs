use sluice_config::Fields;
use sluice_otlp::Signal;

use super::Attributes;
use crate::matching::{self, Properties, Selection};
use crate::{BuildError, actions};

/// Reads the options. They hold for all signals: see [`restrict`].
pub(super) fn read(fields: &mut Fields<'_>) -> Attributes {
    let doc = "Actions on the attributes of every selected item, in this order.";
    let actions = actions::read(fields, "actions", doc);
    let doc = "Only items with all of these properties are changed.";
    let include = fields.section_unless_empty("include", doc, matching::read);
    let doc = "Of those, items with all of these properties are not changed.";
    let exclude = fields.section_unless_empty("exclude", doc, matching::read);
    Attributes { actions, selection: Selection { include, exclude } }
}

/// What is left of `include` or `exclude` (that is its `name`) for items of one signal; nothing if
/// that is nothing, which the Collector allows for metrics only.
pub(super) fn restrict(
    name: &str,
    properties: Properties,
    signal: Signal,
    warnings: &mut Vec<String>,
) -> Result<Option<Properties>, BuildError> {
    let unfit = |message: String| Err(BuildError::Unfit { signal, message });
    let (own, foreign): (Vec<_>, Vec<_>) =
        given(&properties).into_iter().partition(|(_, signals)| signals.contains(&signal));
    let is_refused = |(property, _): &&(&str, _)| match signal {
        Signal::Traces => property.starts_with("log_"),
        Signal::Logs => ["services", "span_names", "span_kinds"].contains(property),
        Signal::Metrics => false,
    };
    if let Some((property, _)) = foreign.iter().find(is_refused) {
        return unfit(format!("`{name}` cannot have `{property}`"));
    }
    if !foreign.is_empty() {
        let foreign: Vec<String> =
            foreign.iter().map(|(property, _)| format!("`{name}.{property}`")).collect();
        warnings.push(format!(
            "{} cannot be matched against {signal} and has no effect there",
            foreign.join(" and ")
        ));
    }
    if !own.is_empty() {
        return Ok(Some(properties.for_signal(signal)));
    }
    let needed = match signal {
        Signal::Traces => {
            "`services`, `span_names`, `span_kinds`, `attributes`, `resources` or `libraries`"
        }
        Signal::Logs => {
            "`attributes`, `libraries`, `resources`, `log_bodies`, `log_severity_texts` or \
             `log_severity_number`"
        }
        Signal::Metrics => {
            warnings.push(format!(
                "`{name}` without `metric_names` or `resources` selects every metric"
            ));
            return Ok(None);
        }
    };
    unfit(format!("`{name}` needs at least one of {needed}"))
}

/// The properties that are given, with the signals whose items have them.
fn given(properties: &Properties) -> Vec<(&'static str, &'static [Signal])> {
    use Signal::{Logs, Metrics, Traces};
    let all: [(&str, &[Signal], bool); 10] = [
        ("services", &[Traces], properties.services.is_some()),
        ("span_names", &[Traces], properties.span_names.is_some()),
        ("span_kinds", &[Traces], properties.span_kinds.is_some()),
        ("log_bodies", &[Logs], properties.log_bodies.is_some()),
        ("log_severity_texts", &[Logs], properties.log_severity_texts.is_some()),
        ("log_severity_number", &[Logs], properties.log_severity_number.is_some()),
        ("metric_names", &[Metrics], properties.metric_names.is_some()),
        ("attributes", &[Traces, Logs], !properties.attributes.is_empty()),
        ("libraries", &[Traces, Logs], !properties.libraries.is_empty()),
        ("resources", &Signal::ALL, !properties.resources.is_empty()),
    ];
    let given = all.into_iter().filter(|(.., is_given)| *is_given);
    given.map(|(name, signals, _)| (name, signals)).collect()
}
